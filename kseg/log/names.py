"""The grammar of names in a log directory: segment files, partition directories, KRaft snapshots.

A segment's files share its base offset, padded with zeros to 20 digits. Transient suffixes mark the steps of a
replacement or deletion (`docs/file-format.md`, "Names"):

| suffix     | meaning                                                        |
|------------|----------------------------------------------------------------|
| (none)     | live                                                           |
| `.deleted` | given up; removed after a delay, or at the next start          |
| `.cleaned` | being written by the cleaner; worthless after a crash          |
| `.swap`    | complete replacement; a start-up carries the swap to its end   |
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kseg.types import MAX_OFFSET as MAX_OFFSET
from kseg.types import TopicPartition

MAX_PARTITION: Final = 2**31 - 1
MAX_NAME_LENGTH: Final = 255
METADATA_TOPIC: Final = "__cluster_metadata"
LOCK_FILE: Final = ".lock"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
META_PROPERTIES_FILE: Final = "meta.properties"
PARTITION_METADATA_FILE: Final = "partition.metadata"
LEADER_EPOCH_FILE: Final = "leader-epoch-checkpoint"
SIDE_DIR: Final = ".kseg"
IGNORED_DIRS: Final = frozenset({"remote-log-index-cache", "lost+found"})


class FileKind(StrEnum):
    """What a segment's file holds; the value is its suffix."""

    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TXN_INDEX = ".txnindex"
    SNAPSHOT = ".snapshot"


class FileState(StrEnum):
    """Where a segment's file stands; the value is the suffix behind its kind."""

    LIVE = ""
    DELETED = ".deleted"
    CLEANED = ".cleaned"
    SWAP = ".swap"


class DirKind(StrEnum):
    """What a partition's directory is; the value is the end of its name."""

    CURRENT = ""
    DELETE = "-delete"
    STRAY = "-stray"
    FUTURE = "-future"


@dataclass(frozen=True, slots=True, order=True)
class SegmentFile:
    """A segment file's name, taken apart."""

    base_offset: int
    kind: FileKind
    state: FileState = FileState.LIVE

    @property
    def name(self) -> str:
        """The file's name."""
        return segment_file_name(self.base_offset, self.kind, self.state)


@dataclass(frozen=True, slots=True)
class PartitionDir:
    """A partition directory's name, taken apart; of a `-delete` or `-stray` one the topic may be cut short."""

    topic_partition: TopicPartition
    kind: DirKind = DirKind.CURRENT
    unique_id: str = ""

    @property
    def is_cluster_metadata(self) -> bool:
        """True for the metadata quorum's own log, which the log manager leaves to raft."""
        return self.topic_partition.topic == METADATA_TOPIC


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """Name of a KRaft metadata snapshot; `suffix` is empty, `.part` (incomplete) or `.deleted`."""

    end_offset: int
    epoch: int
    suffix: str = ""


_SEGMENT = re.compile(
    r"(?P<base>[0-9]{20})(?P<kind>\.log|\.index|\.timeindex|\.txnindex|\.snapshot)"
    r"(?P<state>|\.deleted|\.cleaned|\.swap)",
)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PARTITION_DIR = re.compile(
    r"(?P<topic>.+)-(?P<partition>[0-9]{1,10})(?:\.(?P<id>[^\s.]+)(?P<kind>-delete|-stray|-future))?", re.DOTALL
)
_SNAPSHOT = re.compile(
    r"(?P<offset>[0-9]{20})-(?P<epoch>[0-9]{10})(?:-[0-9]+)?\.checkpoint(?P<suffix>|\.part|\.deleted)"
)


def parse_segment_file(name: str) -> SegmentFile | None:
    """Take a segment file's name apart; None where it is no such name."""
    match = _SEGMENT.fullmatch(name)
    if match is None or (base := int(match["base"])) > MAX_OFFSET:
        return None
    return SegmentFile(base, FileKind(match["kind"]), FileState(match["state"]))


def segment_file_name(base_offset: int, kind: FileKind, state: FileState = FileState.LIVE) -> str:
    """Name of a segment's file."""
    return f"{base_offset:020d}{kind.value}{state.value}"


def parse_partition_dir(name: str) -> PartitionDir | None:
    """Take a partition directory's name apart; None where it is no such name.

    The partition is what follows the last dash: topics may hold dashes and dots.
    """
    match = _PARTITION_DIR.fullmatch(name)
    if match is None or not _TOPIC.fullmatch(match["topic"]) or match["topic"] in (".", ".."):
        return None
    partition = int(match["partition"])
    if partition > MAX_PARTITION:
        return None
    return PartitionDir(TopicPartition(match["topic"], partition), DirKind(match["kind"] or ""), match["id"] or "")


def partition_dir_name(tp: TopicPartition, kind: DirKind = DirKind.CURRENT, unique_id: str | None = None) -> str:
    """Name of a partition's directory; names of `-delete` and `-stray` ones are cut to what a file system takes."""
    if kind is DirKind.CURRENT:
        return str(tp)
    suffix = f"-{tp.partition}.{unique_id or uuid.uuid4().hex}{kind.value}"
    topic = tp.topic if kind is DirKind.FUTURE else tp.topic[: MAX_NAME_LENGTH - len(suffix)]
    return topic + suffix


def parse_snapshot_file(name: str) -> SnapshotFile | None:
    """Take a KRaft snapshot's name apart; None where it is no such name."""
    match = _SNAPSHOT.fullmatch(name)
    if match is None or (offset := int(match["offset"])) > MAX_OFFSET or (epoch := int(match["epoch"])) > MAX_PARTITION:
        return None
    return SnapshotFile(offset, epoch, match["suffix"])


def snapshot_file_name(end_offset: int, epoch: int) -> str:
    """Name of a complete KRaft snapshot."""
    return f"{end_offset:020d}-{epoch:010d}.checkpoint"
