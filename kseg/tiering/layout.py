"""Names of objects in a tier: the two layouts that brokers' plugins write, made and taken apart.

| layout    | written by                 | a partition's objects are in                                   |
|-----------|----------------------------|----------------------------------------------------------------|
| `chunked` | Aiven's plugin             | `<prefix><topic>-<topic id>/<partition>/`                      |
| `plain`   | Kafka's LocalTieredStorage | `<prefix>kafka-tiered-storage/<topic>-<partition>-<topic id>/` |

and are named `<start offset>-<segment id><part>` there.

Start offsets have 20 digits; ids are uuids in base64url of 22 characters. The prefix of `chunked` is glued on as it is:
no separator is added.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from kseg.errors import OptionError
from kseg.log.metadata import is_uuid
from kseg.log.names import MAX_OFFSET, MAX_PARTITION, parse_partition_dir
from kseg.types import TopicPartition

Layout = Literal["chunked", "plain"]
LAYOUTS: Final[tuple[Layout, ...]] = ("chunked", "plain")
PLAIN_ROOT: Final = "kafka-tiered-storage"


class ChunkedPart(StrEnum):
    """An object of a segment in the `chunked` layout, in the order of upload: the manifest last."""

    LOG = ".log"
    INDEXES = ".indexes"
    MANIFEST = ".rsm-manifest"


class PlainPart(StrEnum):
    """An object of a segment in the `plain` layout, in the order of upload; all but the first three may be missing."""

    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TXN_INDEX = ".txnindex"
    SNAPSHOT = ".snapshot"
    LEADER_EPOCHS = ".leader_epoch_checkpoint"


KEPT_SUFFIX: Final = ".kseg-old"
"""Of a manifest that is kept beside its replacement until that was proved; readers do not see such objects."""

Part = ChunkedPart | PlainPart
COMMIT_PARTS: Final[dict[Layout, Part]] = {"chunked": ChunkedPart.MANIFEST, "plain": PlainPart.LOG}
"""Uploaded last, and deleted first: without it an upload is not complete."""
_PARTS: Final[dict[Layout, dict[str, Part]]] = {
    "chunked": {part.value: part for part in ChunkedPart},
    "plain": {part.value: part for part in PlainPart},
}
_OBJECT = re.compile(r"([0-9]{20,})-([A-Za-z0-9_-]{22})(\.[a-z_-]+)")
_CHUNKED_DIR = re.compile(r"(.+)-([A-Za-z0-9_-]{22})", re.DOTALL)
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")


@dataclass(frozen=True, slots=True, order=True)
class RemoteName:
    """Which segment of which topic: what all objects of one upload share."""

    topic: str
    partition: int
    topic_id: str
    start_offset: int
    segment_id: str

    def __post_init__(self) -> None:
        if parse_partition_dir(f"{self.topic}-{self.partition}") is None:
            raise OptionError(f"{self.topic!r}, partition {self.partition}, cannot be a topic's partition")
        if not is_uuid(self.topic_id) or not is_uuid(self.segment_id):
            raise OptionError(f"{self.topic_id!r} and {self.segment_id!r} must be uuids in base64 of 22 characters")
        if not 0 <= self.start_offset <= MAX_OFFSET:
            raise OptionError(f"{self.start_offset} cannot be an offset")

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the segment belongs to."""
        return TopicPartition(self.topic, self.partition)

    @property
    def stem(self) -> str:
        """The object's name without its part."""
        return f"{self.start_offset:020d}-{self.segment_id}"

    def directory(self, layout: Layout) -> str:
        """Where the objects of the partition are, below the prefix."""
        if layout == "chunked":
            return f"{self.topic}-{self.topic_id}/{self.partition}"
        return f"{PLAIN_ROOT}/{self.topic}-{self.partition}-{self.topic_id}"

    def key(self, part: Part, prefix: str = "") -> str:
        """The object's key; its layout is that of the part. The prefix is glued on as it is."""
        layout: Layout = "chunked" if isinstance(part, ChunkedPart) else "plain"
        return f"{prefix}{self.directory(layout)}/{self.stem}{part.value}"


@dataclass(frozen=True, slots=True)
class PartitionPlace:
    """A directory of a tier that holds the segments of one partition."""

    layout: Layout
    topic: str
    partition: int
    topic_id: str

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


def parse_chunked_dir(topic_dir: str, partition_dir: str) -> PartitionPlace | None:
    """Take the two directory names of the `chunked` layout apart; None where they are no such names.

    A prefix that does not end at a separator cannot be told from the topic's name.
    """
    match = _CHUNKED_DIR.fullmatch(topic_dir)
    if match is None or not is_uuid(match[2]) or not _PARTITION.fullmatch(partition_dir):
        return None
    if int(partition_dir) > MAX_PARTITION or parse_partition_dir(f"{match[1]}-{partition_dir}") is None:
        return None
    return PartitionPlace("chunked", match[1], int(partition_dir), match[2])


def parse_plain_dir(name: str) -> PartitionPlace | None:
    """Take the directory name of the `plain` layout apart; None where it is no such name."""
    match = _CHUNKED_DIR.fullmatch(name)
    parsed = parse_partition_dir(match[1]) if match is not None and is_uuid(match[2]) else None
    if match is None or parsed is None or parsed.kind.value:
        return None
    return PartitionPlace("plain", parsed.topic_partition.topic, parsed.topic_partition.partition, match[2])


def parse_object(place: PartitionPlace, name: str) -> tuple[RemoteName, Part] | None:
    """Take an object's name in a partition's directory apart; None where it is no such name."""
    match = _OBJECT.fullmatch(name)
    part = _PARTS[place.layout].get(match[3]) if match is not None else None
    if match is None or part is None or int(match[1]) > MAX_OFFSET or not is_uuid(match[2]):
        return None
    return RemoteName(place.topic, place.partition, place.topic_id, int(match[1]), match[2]), part


def parse_key(key: str) -> tuple[str, RemoteName, Part] | None:
    """Take a whole key apart: prefix, segment and part; None where it is of neither layout."""
    names = key.split("/")
    if len(names) < 3:
        return None
    is_plain = names[-3] == PLAIN_ROOT
    place = parse_plain_dir(names[-2]) if is_plain else parse_chunked_dir(names[-3], names[-2])
    parsed = parse_object(place, names[-1]) if place is not None else None
    if parsed is None:
        return None
    return "".join(f"{name}/" for name in names[:-3]), *parsed


def kept_manifest(key: str) -> str | None:
    """The key of the manifest that an object is the kept copy of; None where it is none."""
    original = key.removesuffix(KEPT_SUFFIX)
    parsed = parse_key(original) if original != key else None
    return original if parsed is not None and parsed[2] is ChunkedPart.MANIFEST else None
