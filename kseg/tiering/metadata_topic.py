"""What `__remote_log_metadata` in a log directory says of the segments in the tier."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kseg.errors import KsegError, OptionError
from kseg.internal.remote_log_metadata import TOPIC, decode
from kseg.log.names import DirKind, FileKind, parse_partition_dir, parse_segment_file
from kseg.log.partition import Log
from kseg.storage import Store
from kseg.tiering.metadata_records import DELETE_STARTED, SegmentRecord, apply_record

_KEPT_IMAGES: Final = 16


Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """All that the topic says, by topic id and partition, then by segment id."""

    partitions: Mapping[Partition, Mapping[str, SegmentRecord]] = field(default_factory=dict)

    def of(self, topic_id: str, partition: int) -> Mapping[str, SegmentRecord] | None:
        """The segments of a partition; None where nothing was ever said of it."""
        return self.partitions.get((topic_id, partition))


_images: dict[tuple[object, ...], MetadataImage] = {}
_lock = threading.Lock()


def read_metadata(store: Store, log_dir: str) -> MetadataImage:
    """Replay the partitions of the topic that a log directory holds; kept until their files change."""
    logs = [Log(store, directory) for directory in _directories(store, log_dir)]
    if not logs:
        return MetadataImage()
    files = ((entry.name, entry.size, entry.mtime_ms) for log in logs for entry in store.list(log.directory))
    signature = (type(store), log_dir, *files)
    with _lock:
        image = _images.get(signature)
    if image is None:
        image = MetadataImage(_replay(logs))
        with _lock:
            while len(_images) >= _KEPT_IMAGES:
                _images.pop(next(iter(_images)))
            _images[signature] = image
    return image


def _directories(store: Store, log_dir: str) -> Iterator[str]:
    for entry in store.list(log_dir):
        place = parse_partition_dir(entry.name) if entry.is_dir else None
        if place is not None and place.topic_partition.topic == TOPIC and place.kind is DirKind.CURRENT:
            directory = store.join(log_dir, entry.name)
            names = (parse_segment_file(file.name) for file in store.list(directory))
            if any(name is not None and name.kind is FileKind.LOG for name in names):
                yield directory


def _replay(logs: list[Log]) -> dict[Partition, dict[str, SegmentRecord]]:
    partitions: dict[Partition, dict[str, SegmentRecord]] = {}
    for log in logs:
        # a record behind the high watermark may be lost again, but is all that is known of a segment that may be gone
        for batch in log.read(columns=["offset", "key", "value"], read_past_high_watermark=True):
            for row in batch.to_pylist():
                try:
                    _apply(partitions, decode(row["key"], row["value"]))
                except (KsegError, KeyError) as error:
                    problem = error if isinstance(error, KsegError) else OptionError(f"no field {error}")
                    raise problem.with_context(path=log.directory, offset=row["offset"]) from None
    return partitions


def _apply(partitions: dict[Partition, dict[str, SegmentRecord]], record: Mapping[str, Any]) -> None:
    value, kind = record.get("value"), record.get("typeId")
    if not isinstance(value, dict):
        return  # a tombstone, or a type that is not known yet
    if kind == 2:
        place = value["topicIdPartition"]
        segments = partitions.setdefault((place["id"], place["partition"]), {})
        for segment_id, known in segments.items():
            segments[segment_id] = replace(known, state=DELETE_STARTED)
    elif kind in (0, 1):
        place = value["remoteLogSegmentId"]["topicIdPartition"]
        apply_record(partitions.setdefault((place["id"], place["partition"]), {}), record)
