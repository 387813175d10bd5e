"""Which topic ids are current, by the metadata log: a topic that was deleted and made again has a new one."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from kseg.errors import KsegError
from kseg.format.arrow import RecordDecoder
from kseg.internal import cluster_metadata
from kseg.internal.schema import Fields
from kseg.log.names import SnapshotFile, parse_snapshot_file, snapshot_file_name
from kseg.log.partition import Log
from kseg.log.scan import read_batches
from kseg.log.visibility import NONE_ABORTED
from kseg.log.walk import BatchWalker
from kseg.schema import select_columns

_COLUMNS = ("offset", "value")
_END = 2**63 - 1


def current_topic_ids(metadata: Log) -> dict[str, str]:
    """Read topic ids by name, from the newest snapshot beside the metadata log and the records behind it.

    Records of a metadata transaction count when it ends, and not at all where it does not.
    """
    snapshot = _newest_snapshot(metadata)
    ids: dict[str, str] = {}
    pending: list[Fields] | None = None
    for record in _records(metadata, snapshot):
        kind = record["type"]
        if kind == "BeginTransactionRecord":
            pending = []
        elif kind == "EndTransactionRecord":
            for held in pending or ():
                _apply(ids, held)
            pending = None
        elif kind == "AbortTransactionRecord":
            pending = None
        elif pending is not None:
            pending.append(record)
        else:
            _apply(ids, record)
    return ids


def _apply(ids: dict[str, str], record: Fields) -> None:
    value = record["value"]
    if record["type"] == "TopicRecord":
        ids[value["name"]] = value["topicId"]
    elif record["type"] == "RemoveTopicRecord":
        for name in [name for name, topic_id in ids.items() if topic_id == value["topicId"]]:
            del ids[name]


def _newest_snapshot(metadata: Log) -> SnapshotFile | None:
    names = (parse_snapshot_file(entry.name) for entry in metadata.store.list(metadata.directory) if entry.size)
    whole = [name for name in names if name is not None and not name.suffix]
    return max(whole, key=lambda name: (name.end_offset, name.epoch), default=None)


def _records(metadata: Log, snapshot: SnapshotFile | None) -> Iterator[Fields]:
    if snapshot is not None:
        yield from _decoded(_snapshot_batches(metadata, snapshot), metadata.directory)
    start = metadata.start_offset if snapshot is None else max(snapshot.end_offset, metadata.start_offset)
    # raft keeps its high watermark to itself, so that nothing less than the end is known
    batches = metadata.read(start, columns=_COLUMNS, read_past_high_watermark=True)
    yield from _decoded(batches, metadata.directory)


def _snapshot_batches(metadata: Log, snapshot: SnapshotFile) -> Iterator[pa.RecordBatch]:
    path = metadata.store.join(metadata.directory, snapshot_file_name(snapshot.end_offset, snapshot.epoch))
    decoder = RecordDecoder(
        select_columns(_COLUMNS),
        topic=metadata.topic,
        partition=metadata.partition,
        max_batch_bytes=metadata.options.max_batch_bytes,
    )
    with metadata.store.open(path) as file:
        walker = BatchWalker(file, metadata.options)
        yield from read_batches(walker, decoder, NONE_ABORTED, 0, 0, _END)
        walker.raise_if_torn()


def _decoded(batches: Iterator[pa.RecordBatch], path: str) -> Iterator[Fields]:
    for batch in batches:
        for offset, value in zip(*(batch.column(name).to_pylist() for name in _COLUMNS), strict=True):
            try:
                yield cluster_metadata.decode(None, value)
            except KsegError as error:
                raise error.with_context(path=path, offset=offset) from None
