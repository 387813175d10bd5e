"""The local log and the tier behind it as one store: a partition's directory shows the segments of both.

What a partition lacks on disk, because a broker deleted it when it was in the tier, appears under the names that it had
there. Everything above, from one log to Spark's tasks, thus reads both as one log. Local files come first: of the tier
only segments that begin before the first local one are shown.

Without local files, the tier itself is the directory, with a partition directory in it for each partition.
"""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kseg.errors import FormatError, LogError, StorageError
from kseg.index.epoch import LeaderEpochs
from kseg.log.checkpoints import read_leader_epochs
from kseg.log.metadata import PartitionMetadata, read_partition_metadata
from kseg.log.names import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    DirKind,
    FileKind,
    FileState,
    parse_partition_dir,
    parse_segment_file,
    segment_file_name,
)
from kseg.log.segment import Segment
from kseg.storage import Entries, Entry, RandomFile, RemoteCopy, Store
from kseg.tiering.layout import PlainPart
from kseg.tiering.metadata_records import SegmentRecord
from kseg.tiering.metadata_topic import MetadataImage, read_metadata
from kseg.tiering.segments import Epochs, RemoteSegment, choose_segments
from kseg.tiering.tier import Tier, TierPartition, is_object_path
from kseg.types import TopicPartition

Names = list[str]
Partitions = list[TierPartition]
Segments = list[RemoteSegment]

_KINDS = {
    FileKind.OFFSET_INDEX: PlainPart.OFFSET_INDEX,
    FileKind.TIME_INDEX: PlainPart.TIME_INDEX,
    FileKind.TXN_INDEX: PlainPart.TXN_INDEX,
}


@dataclass(slots=True)
class _Shown:
    """What a partition's directory shows of the tier."""

    partition: TierPartition
    entries: dict[str, Entry]
    segments: list[RemoteSegment]


class TieredStore:
    """A store whose partition directories hold what is local and what is in a tier.

    Args:
        tier: The tier.
        local: Where the local files are; None where there are none: then paths begin at the tier's own root.
    """

    def __init__(self, tier: Tier, local: Store | None) -> None:
        self.tier = tier
        self.local = local
        self._shown: dict[str, _Shown] = {}
        self._first_local: dict[str, int] = {}
        self._images: dict[str, MetadataImage] = {}
        self._known_partitions: Partitions | None = None

    def __repr__(self) -> str:
        return f"TieredStore({self.tier!r}, {self.local!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return TieredStore, (self.tier, self.local)

    # -- Store ---------------------------------------------------------------------------------------------------------

    def list(self, path: str) -> Entries:
        """See Store."""
        place = parse_partition_dir(path.rstrip("/").rpartition("/")[2])
        if place is None or place.kind is not DirKind.CURRENT:
            return self._list_other(path)
        entries, problem = self._local_entries(path)
        shown = self._look(path, entries)
        if shown is None:
            if problem is not None:
                raise problem
            return entries if self.local is not None else self._list_other(path)
        names = {entry.name for entry in entries}
        remote = [entry for name, entry in shown.entries.items() if name not in names]
        return sorted([*entries, *remote], key=lambda entry: entry.name)

    def stat(self, path: str) -> Entry | None:
        """See Store."""
        if is_object_path(path):
            return self.tier.stat(path)
        found = None if self.local is None else self.local.stat(path)
        if found is not None:
            return found
        directory, name = posixpath.split(path)
        if self._shown_in(path) is not None:
            return Entry(name, 0, -1, True)
        data = self._made_file(directory, name)
        if data is not None:
            return Entry(name, len(data), -1, False)
        return self._remote_entry(directory, name)

    def read(self, path: str, limit: int | None = None) -> bytes:
        """See Store."""
        if is_object_path(path):
            return self.tier.read(path, limit)
        missing = StorageError("no such file or directory", path=path)
        missing.missing = True
        if self.local is not None:
            try:
                return self.local.read(path, limit)
            except StorageError as error:
                if not error.missing:
                    raise
                missing = error
        directory, name = posixpath.split(path)
        data = self._made_file(directory, name)
        if data is not None:
            return data[:limit]
        entry = self._remote_entry(directory, name)
        if entry is None or entry.remote is None:
            raise missing
        return self.tier.read(entry.remote.path, limit)

    def open(self, path: str) -> RandomFile:
        """See Store."""
        if is_object_path(path):
            return self.tier.open(path)
        if self.local is not None:
            return self.local.open(path)
        found = self.open_copy(path)
        if found is None:
            error = StorageError("no such file or directory", path=path)
            error.missing = True
            raise error
        return found

    def join(self, path: str, *names: str) -> str:
        """See Store."""
        return posixpath.join(path, *names)

    def open_copy(self, path: str) -> RandomFile | None:
        """Open the tier's copy of a local log file that was deleted since it was listed; None where there is none."""
        directory, name = posixpath.split(path)
        self._shown.pop(directory, None)
        entry = self._remote_entry(directory, name)
        return None if entry is None or entry.remote is None else self.tier.open(entry.remote.path)

    def directory_of(self, partition: TierPartition) -> str:
        """Where a partition shows itself in a tier without local files."""
        return next(directory for directory, found in self._partition_dirs.items() if found == partition)

    # -- what the tier adds --------------------------------------------------------------------------------------------

    def _local_entries(self, path: str) -> tuple[Entries, StorageError | None]:
        """The local files of a directory, and why there are none where it is not there."""
        try:
            return ([] if self.local is None else self.local.list(path)), None
        except StorageError as error:
            if not error.missing:
                raise
            return [], error

    def _list_other(self, path: str) -> Entries:
        if self.local is not None:
            return self.local.list(path)
        names = self._virtual_dirs(path)
        if not names:
            error = StorageError("no such file or directory", path=path)
            error.missing = True
            raise error
        return [Entry(name, 0, -1, True) for name in names]

    def _virtual_dirs(self, path: str) -> Names:
        """Names of the directories in one that is only shown."""
        start = path.rstrip("/") + "/"
        below = (directory[len(start) :] for directory in self._partition_dirs if directory.startswith(start))
        return sorted({name.partition("/")[0] for name in below})

    @functools.cached_property
    def _partition_dirs(self) -> dict[str, TierPartition]:
        """Where each partition shows itself in a tier without local files; topic ids tell apart what has one name."""
        found = self._partitions()
        counts: dict[TopicPartition, int] = {}
        for partition in found:
            tp = partition.place.topic_partition
            counts[tp] = counts.get(tp, 0) + 1
        return {
            posixpath.join(
                self.tier.root,
                *([partition.place.topic_id] if counts[partition.place.topic_partition] > 1 else []),
                str(partition.place.topic_partition),
            ): partition
            for partition in found
        }

    def _partitions(self, *, again: bool = False) -> Partitions:
        if self._known_partitions is None or again:
            self._known_partitions = self.tier.partitions()
        return self._known_partitions

    def _look(self, path: str, entries: Entries) -> _Shown | None:
        """Look what the tier has for a partition's directory, whose local files are `entries`."""
        directory = path.rstrip("/")
        first_local = min(_local_bases(entries), default=2**63)
        # what was local and is not any more may be in a part of the tier that was not there at the last look
        again = first_local > self._first_local.get(directory, first_local)
        self._first_local[directory] = first_local
        partition = self._find(directory, again=again)
        if partition is None:
            return None
        segments = self._choose(directory, partition)
        older = [segment for segment in segments if segment.start_offset < first_local]
        for message in _gaps(older, first_local):
            self.tier.warn_once(f"{directory}: {message}")
        shown = _Shown(partition, _entries_of(older), segments)
        self._shown[directory] = shown
        return shown

    def _find(self, directory: str, *, again: bool) -> TierPartition | None:
        """The partition of the tier that a directory is of: by its topic id, where it has one."""
        if self.local is None:
            return self._partition_dirs.get(directory)
        place = parse_partition_dir(directory.rpartition("/")[2])
        if place is None:
            return None
        metadata = read_partition_metadata(self.local, directory)
        for look_again in (False, True) if again else (False,):
            found = [
                partition
                for partition in self._partitions(again=look_again)
                if partition.place.partition == place.topic_partition.partition
                and (
                    partition.place.topic == place.topic_partition.topic
                    if metadata is None
                    else partition.place.topic_id == metadata.topic_id
                )
            ]
            if len(found) == 1:
                return found[0]
            if found:
                places = ", ".join(partition.directory for partition in found)
                raise LogError(
                    f"the tier holds {place.topic_partition} more than once: {places}",
                    path=directory,
                    hint="give the URI of one of them",
                )
        return None

    def _choose(self, directory: str, partition: TierPartition) -> Segments:
        found = self.tier.segments(partition)
        ids = {segment.name.segment_id for segment in found}
        known = self._known(directory, partition, ids)
        if known is not None:
            lost = [told.name.stem for told in known.values() if told.is_finished and told.name.segment_id not in ids]
            if lost:
                self.tier.warn_once(f"{directory}: segments that were offloaded are not in the tier: {', '.join(lost)}")
        return choose_segments(
            found,
            known,
            lineage=functools.partial(self._lineage, directory, found),
            epochs_of=self._epochs_of,
            end_of=functools.partial(remote_end, self.tier),
        )

    def _known(self, directory: str, partition: TierPartition, found: set[str]) -> Mapping[str, SegmentRecord] | None:
        """What the metadata topic beside a partition says of it.

        The topic is read once for all partitions, and again where the tier has segments that were not finished then.
        """
        if self.local is None:
            return None
        parent, place = directory.rpartition("/")[0], partition.place
        if parent in self._images:
            known = self._images[parent].of(place.topic_id, place.partition)
            if known is not None and all(segment_id in known and known[segment_id].is_finished for segment_id in found):
                return known
        there = self.local.stat(parent) is not None
        self._images[parent] = read_metadata(self.local, parent) if there else MetadataImage()
        return self._images[parent].of(place.topic_id, place.partition)

    def _lineage(self, directory: str, found: Sequence[RemoteSegment]) -> Epochs:
        """The partition's leader epochs: the local checkpoint's, else those of the newest segment."""
        newest = self.tier.newest_history(found)  # those of all will be asked for
        local = None if self.local is None else read_leader_epochs(self.local, directory)
        return newest if local is None else local.entries

    def _epochs_of(self, segment: RemoteSegment) -> Epochs:
        """The epochs inside a segment; from its own history where nothing else tells."""
        if segment.leader_epochs is not None:
            return segment.leader_epochs
        history = LeaderEpochs(self.tier.history(segment)).truncate_from_start(segment.start_offset)
        return history.entries

    def _remote_entry(self, directory: str, name: str) -> Entry | None:
        shown = self._shown_in(directory)
        return None if shown is None else shown.entries.get(name)

    def _shown_in(self, directory: str) -> _Shown | None:
        if directory not in self._shown and parse_partition_dir(directory.rpartition("/")[2]) is not None:
            self._look(directory, self._local_entries(directory)[0])
        return self._shown.get(directory)

    def _made_file(self, directory: str, name: str) -> bytes | None:
        """Files that a tier does not hold as such: which topic this is, and its leader epochs."""
        makers: dict[str, Callable[[_Shown], bytes | None]] = {
            PARTITION_METADATA_FILE: lambda shown: PartitionMetadata(shown.partition.place.topic_id).to_bytes(),
            LEADER_EPOCH_FILE: self._newest_epochs,
        }
        if name not in makers:
            return None
        shown = self._shown_in(directory)
        return None if shown is None else makers[name](shown)

    def _newest_epochs(self, shown: _Shown) -> bytes | None:
        if not shown.segments:
            return None
        return LeaderEpochs(self.tier.leader_epochs(shown.segments[-1])).to_bytes()


def remote_segment(tier: Tier, upload: RemoteSegment) -> Segment:
    """An upload as a segment, to be read where it is; where it ends its batches tell."""
    stem = posixpath.join(upload.directory, upload.name.stem)
    base = upload.start_offset
    log = segment_file_name(base, FileKind.LOG)
    copy = RemoteCopy(stem + PlainPart.LOG.value, None, upload.max_timestamp)
    files = {FileKind.LOG: Entry(log, upload.size, upload.mtime_ms, False, copy)}
    for kind, part in _KINDS.items():
        if part in upload.sidecars:
            copy = RemoteCopy(stem + part.value)
            files[kind] = Entry(segment_file_name(base, kind), upload.sidecars[part], upload.mtime_ms, False, copy)
    return Segment(TieredStore(tier, None), upload.directory, base, files, ceiling=upload.next_offset)


def remote_end(tier: Tier, upload: RemoteSegment) -> int | None:
    """The offset behind the batches of an upload; None where these are damaged, which is told when they are read."""
    try:
        return remote_segment(tier, upload).next_offset
    except FormatError:
        return None


def _local_bases(entries: Entries) -> list[int]:
    names = (parse_segment_file(entry.name) for entry in entries if not entry.is_dir)
    counted = (FileState.LIVE, FileState.SWAP)
    return [n.base_offset for n in names if n is not None and n.kind is FileKind.LOG and n.state in counted]


def _entries_of(older: list[RemoteSegment]) -> dict[str, Entry]:
    """Files of segments under the names that a broker gives them, each with its place in the tier."""
    shown: dict[str, Entry] = {}
    for segment in older:
        stem = posixpath.join(segment.directory, segment.name.stem)
        log = RemoteCopy(stem + PlainPart.LOG.value, segment.next_offset, segment.max_timestamp)
        base = segment.start_offset
        name = segment_file_name(base, FileKind.LOG)
        shown[name] = Entry(name, segment.size, segment.mtime_ms, False, log)
        for kind, part in _KINDS.items():
            if part in segment.sidecars:
                name, copy = segment_file_name(base, kind), RemoteCopy(stem + part.value)
                shown[name] = Entry(name, segment.sidecars[part], segment.mtime_ms, False, copy)
        if PlainPart.SNAPSHOT in segment.sidecars and segment.next_offset is not None:
            name = segment_file_name(segment.next_offset, FileKind.SNAPSHOT)
            copy = RemoteCopy(stem + PlainPart.SNAPSHOT.value)
            shown[name] = Entry(name, segment.sidecars[PlainPart.SNAPSHOT], segment.mtime_ms, False, copy)
    return shown


def _gaps(older: list[RemoteSegment], first_local: int) -> Iterator[str]:
    """Offsets between segments that nobody has."""
    starts = [segment.start_offset for segment in older[1:]]
    if first_local < 2**63:
        starts.append(first_local)
    for segment, following in zip(older, starts, strict=False):
        if segment.next_offset is not None and segment.next_offset < following:
            yield f"offsets {segment.next_offset} to {following - 1} are neither local nor in the tier"
