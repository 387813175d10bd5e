"""A tier: the partitions and segments that an object store holds in one of the two layouts, and their files.

Whatever the layout, a segment shows itself as the files of the `plain` one: `<stem>.log`, `<stem>.index` and so on,
each with the bytes that a broker had on its disk. So paths of a tier name one upload for good: two uploads of the same
offsets have different ids.
"""

from __future__ import annotations

import functools
import logging
import os
import posixpath
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

from kseg.errors import FormatError, IndexFileError, LogError, StorageError, TruncatedError
from kseg.index.epoch import EpochStart, LeaderEpochs
from kseg.storage import Entry, RandomFile, Store, open_store
from kseg.storage_retry import RetryingStore, RetryPolicy
from kseg.tiering.chunk_file import ChunkFile
from kseg.tiering.chunks import Transform
from kseg.tiering.crypto import OVERHEAD, KeyRing
from kseg.tiering.layout import (
    PLAIN_ROOT,
    ChunkedPart,
    Part,
    PartitionPlace,
    PlainPart,
    RemoteName,
    parse_chunked_dir,
    parse_object,
    parse_plain_dir,
)
from kseg.tiering.manifest import MAX_MANIFEST_BYTES, SegmentManifest, Slice
from kseg.tiering.marks import MAX_MARK_BYTES, Mark, hidden_ids, is_mark
from kseg.tiering.objects import check_remote
from kseg.tiering.segments import RemoteSegment

logger = logging.getLogger(__name__)

MAX_DEPTH: Final = 6  # of directories between the URI and a partition's objects
INDEX_CACHE_BYTES: Final = 64 << 20
THREADS: Final = 16  # that fetch manifests
_OBJECT_NAME = re.compile(r"[0-9]{20,}-[A-Za-z0-9_-]{22}\.[a-z_-]+")
_FSCK_HINT: Final = "'kseg fsck' lists what a tier lacks"


Uploads = dict[RemoteName, dict[Part, Entry]]
Segments = list[RemoteSegment]
Marks = list[Mark]


@dataclass(frozen=True, slots=True)
class TierPartition:
    """A directory of the tier that holds one partition's objects."""

    place: PartitionPlace
    directory: str


def is_object_path(path: str) -> bool:
    """Whether a path names a segment's file in a tier, by its last part."""
    return _OBJECT_NAME.fullmatch(path.rpartition("/")[2]) is not None


def place_of(path: str) -> PartitionPlace | None:
    """Which partition's objects a directory holds, by its name and its parent's; None where it is no such directory."""
    parent, _, name = path.rstrip("/").rpartition("/")
    parent_name = parent.rpartition("/")[2]
    if parent_name == PLAIN_ROOT:
        return parse_plain_dir(name)
    return parse_chunked_dir(parent_name, name)


@functools.lru_cache(maxsize=8)
def _open_tier(uri: str, keys: tuple[tuple[str, str], ...], allow_shared: bool, retry: RetryPolicy) -> Tier:
    return Tier(uri, KeyRing(dict(keys), allow_shared=allow_shared), retry)


def open_tier(uri: str, keys: KeyRing | None = None, retry: RetryPolicy | None = None) -> Tier:
    """The tier of a URI; the same one for the same keys, so that what was fetched is kept."""
    keys = keys or KeyRing()
    if "://" not in uri:
        uri = os.path.abspath(uri)  # noqa: PTH100  (as open_store does)
    return _open_tier(uri, tuple(sorted(keys.files.items())), keys.allow_shared, retry or RetryPolicy())


class Tier:
    """An object store with segments in it; what was fetched of manifests and indexes is kept in memory.

    Calls to the store that fail are tried again, here and in the tasks of Spark.
    """

    def __init__(self, uri: str, keys: KeyRing | None = None, retry: RetryPolicy | None = None) -> None:
        self.uri = check_remote(uri)
        self.keys = keys or KeyRing()
        raw, root = open_store(uri)
        self.store: Store = RetryingStore(raw, retry)
        self.retry = retry
        self.root = root.rstrip("/") or "/"
        self._lock = threading.Lock()
        self._manifests: dict[str, tuple[object, SegmentManifest]] = {}
        self._transforms: dict[str, Transform] = {}
        self._indexes: OrderedDict[str, bytes] = OrderedDict()
        self._told: set[str] = set()

    def __repr__(self) -> str:
        return f"Tier({self.uri!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return open_tier, (self.uri, self.keys, self.retry)

    def warn_once(self, message: str) -> None:
        """Say something in the log, the same only once: a tier is listed often."""
        with self._lock:
            is_new = message not in self._told
            self._told.add(message)
        if is_new:
            logger.warning("%s", message)

    # -- what there is -------------------------------------------------------------------------------------------------

    def partitions(self) -> list[TierPartition]:
        """The partitions that the tier holds, by topic and number."""
        walked = list(self._walk(self.root, MAX_DEPTH)) or list(self._walk_glued())
        found = sorted(walked, key=lambda item: (item.place.topic_partition, item.directory))
        if not found and self.store.stat(self.root) is None:
            error = StorageError("there is no such tier", path=self.uri)
            error.missing = True
            raise error
        return found

    def _walk(self, path: str, depth: int) -> Iterator[TierPartition]:
        place = place_of(path)
        if place is not None:
            yield TierPartition(place, path)
        elif depth:
            for name in self._dirs(path):
                yield from self._walk(posixpath.join(path, name), depth - 1)

    def _walk_glued(self) -> Iterator[TierPartition]:
        """Where the URI ends inside a name: Aiven's plugin glues its prefix to the topic's name."""
        parent, _, prefix = self.root.rpartition("/")
        for topic in self._dirs(parent) if parent else ():
            if topic.startswith(prefix) and topic != prefix:
                for partition in self._dirs(posixpath.join(parent, topic)):
                    place = parse_chunked_dir(topic.removeprefix(prefix), partition)
                    if place is not None:
                        yield TierPartition(place, posixpath.join(parent, topic, partition))

    def _dirs(self, path: str) -> list[str]:
        try:
            return [entry.name for entry in self.store.list(path) if entry.is_dir and not entry.name.startswith(".")]
        except StorageError as error:
            if not error.missing:
                raise
            return []

    def segments(self, partition: TierPartition) -> list[RemoteSegment]:
        """The complete uploads of a partition, by name; what lacks its manifest or an index is none."""
        entries = [entry for entry in self.store.list(partition.directory) if not entry.is_dir]
        try:
            marks = [self._mark(posixpath.join(partition.directory, e.name)) for e in entries if is_mark(e.name)]
        except StorageError as error:
            if not error.missing:
                raise
            return self.segments(partition)  # swept since it was listed, and with it what it was about
        uploads: dict[RemoteName, dict[Part, Entry]] = {}
        for entry in entries:
            parsed = parse_object(partition.place, entry.name)
            if parsed is not None:
                uploads.setdefault(parsed[0], {})[parsed[1]] = entry
        hidden = hidden_ids(marks)
        found = (
            self._plain(partition, uploads)
            if partition.place.layout == "plain"
            else self._chunked(partition, uploads, hidden)
        )
        return [replace(segment, is_retired=segment.name.segment_id in hidden) for segment in found]

    def _mark(self, path: str) -> Mark:
        return Mark.parse(path.rpartition("/")[2], self.store.read(path, MAX_MARK_BYTES), path)

    def _plain(self, partition: TierPartition, uploads: Uploads) -> Segments:
        needed = {PlainPart.LOG, PlainPart.OFFSET_INDEX, PlainPart.TIME_INDEX}
        complete = {name: parts for name, parts in uploads.items() if needed <= parts.keys()}
        return [_plain_segment(name, partition.directory, parts) for name, parts in sorted(complete.items())]

    def _chunked(self, partition: TierPartition, uploads: Uploads, hidden: frozenset[str]) -> Segments:
        complete = {name: parts for name, parts in uploads.items() if ChunkedPart.MANIFEST in parts}

        def fetch(name: RemoteName) -> SegmentManifest | None:
            stem = posixpath.join(partition.directory, name.stem)
            try:
                return self._manifest(stem, complete[name][ChunkedPart.MANIFEST])
            except StorageError as error:
                if not error.missing or name.segment_id not in hidden:
                    raise
                return None  # a retired one may be swept at any time

        with ThreadPoolExecutor(min(max(len(complete), 1), THREADS)) as pool:
            manifests = dict(zip(complete, pool.map(fetch, complete), strict=True))
        return [
            _chunked_segment(name, partition.directory, manifest, complete[name][ChunkedPart.MANIFEST])
            for name, manifest in sorted(manifests.items(), key=lambda item: item[0])
            if manifest is not None
        ]

    def leader_epochs(self, segment: RemoteSegment) -> tuple[EpochStart, ...]:
        """The partition's leader epochs up to the end of a segment, as they were when it was copied."""
        if PlainPart.LEADER_EPOCHS not in segment.sidecars:
            return ()
        path = posixpath.join(segment.directory, segment.name.stem + PlainPart.LEADER_EPOCHS.value)
        return LeaderEpochs.parse(self.read(path), path).entries

    def history(self, segment: RemoteSegment) -> tuple[EpochStart, ...]:
        """The same, and none where they cannot be understood."""
        try:
            return self.leader_epochs(segment)
        except IndexFileError:
            return ()

    def newest_history(self, segments: Sequence[RemoteSegment]) -> tuple[EpochStart, ...]:
        """The leader epochs of the segment that the newest leader copied; those of all are fetched, many at once."""
        with ThreadPoolExecutor(min(max(len(segments), 1), THREADS)) as pool:
            return max(pool.map(self.history, segments), key=_newest, default=())

    def manifest(self, segment: RemoteSegment) -> SegmentManifest:
        """The manifest of a segment in the `chunked` layout."""
        return self._manifest(posixpath.join(segment.directory, segment.name.stem))

    # -- files ---------------------------------------------------------------------------------------------------------

    def open(self, path: str) -> RandomFile:
        """Open a segment's log, by the path that `is_object_path` knows; other files are read whole.

        Raises:
            StorageError: The segment is gone; `missing` is set.
            LogError: Only a part of the segment is gone.
            TruncatedError: The object is shorter or longer than the manifest says.
        """
        if _is_plain(path):
            return self.store.open(path)
        stem = path.removesuffix(ChunkedPart.LOG.value)
        manifest = self._manifest(stem)
        transform = self._transform(stem, manifest)
        file = self._open_part(stem, ChunkedPart.LOG)
        if file.size != manifest.chunk_index.stored_size:
            file.close()
            raise TruncatedError(
                f"the object has {file.size} bytes, its manifest says {manifest.chunk_index.stored_size}",
                path=path,
                hint=_FSCK_HINT,
            )
        return ChunkFile(file, manifest.chunk_index, transform)

    def stat(self, path: str) -> Entry | None:
        """What is at the path of a segment's file, or None."""
        found = self.store.stat(path)
        if found is not None or _is_plain(path):
            return found
        stem, _, suffix = path.rpartition(".")
        if f".{suffix}" not in set(PlainPart) or self.store.stat(stem + ChunkedPart.MANIFEST.value) is None:
            return None
        return Entry(path.rpartition("/")[2], len(self.read(path)), -1, False)

    def read(self, path: str, limit: int | None = None) -> bytes:
        """A segment's sidecar file, whole; kept in memory."""
        with self._lock:
            if path in self._indexes:
                self._indexes.move_to_end(path)
                return self._indexes[path][:limit]
        if _is_plain(path):
            self._keep({path: self.store.read(path)})
        else:
            self._keep(self._read_indexes(path))
        with self._lock:
            data = self._indexes.get(path)
        if data is None:
            error = StorageError("the segment has no such file", path=path)
            error.missing = True
            raise error
        return data[:limit]

    def _keep(self, files: dict[str, bytes]) -> None:
        with self._lock:
            self._indexes.update(files)
            total = sum(len(data) for data in self._indexes.values())
            while total > INDEX_CACHE_BYTES and len(self._indexes) > len(files):
                total -= len(self._indexes.popitem(last=False)[1])

    def _read_indexes(self, path: str) -> dict[str, bytes]:
        """All indexes of a segment, in one fetch, by the path of each."""
        stem = path.rpartition(".")[0]
        manifest = self._manifest(stem)
        transform = self._transform(stem, manifest)
        with self._open_part(stem, ChunkedPart.INDEXES) as file:
            stored = bytearray(min(file.size, manifest.indexes.size))
            got = file.read_into(0, stored)
        if got < manifest.indexes.size:
            raise TruncatedError(
                f"the object has {got} bytes, its manifest says {manifest.indexes.size}",
                path=stem + ChunkedPart.INDEXES.value,
                hint=_FSCK_HINT,
            )
        found: dict[str, bytes] = {}
        for part, place in _slices(manifest).items():
            try:
                found[stem + part.value] = transform.restore_index(memoryview(stored)[place.position : place.end])
            except FormatError as error:
                if stem + part.value == path:  # the others are not asked for
                    raise error.with_context(path=stem + ChunkedPart.INDEXES.value) from None
        return found

    def _open_part(self, stem: str, part: ChunkedPart) -> RandomFile:
        try:
            return self.store.open(stem + part.value)
        except StorageError as error:
            if not error.missing or self.store.stat(stem + ChunkedPart.MANIFEST.value) is None:
                raise
            raise LogError(
                "the object is missing, its manifest is there", path=stem + part.value, hint=_FSCK_HINT
            ) from error

    def _manifest(self, stem: str, entry: Entry | None = None) -> SegmentManifest:
        """The manifest of a segment; read again where a listing shows that it was replaced."""
        path = stem + ChunkedPart.MANIFEST.value
        with self._lock:
            kept = self._manifests.get(stem)
        version = None if entry is None else (entry.size, entry.mtime_ms)
        if kept is not None and version in (None, kept[0]):
            return kept[1]
        manifest = SegmentManifest.parse(self.store.read(path, MAX_MANIFEST_BYTES), path)
        with self._lock:
            self._manifests[stem] = (version, manifest)
            self._transforms.pop(stem, None)
        return manifest

    def _transform(self, stem: str, manifest: SegmentManifest) -> Transform:
        with self._lock:
            kept = self._transforms.get(stem)
        if kept is None:
            encryption, path = manifest.encryption, stem + ChunkedPart.MANIFEST.value
            kept = Transform(manifest.compression, None if encryption is None else self.keys.unwrap(encryption, path))
            with self._lock:
                self._transforms[stem] = kept
        return kept


def _is_plain(path: str) -> bool:
    place = place_of(path.rpartition("/")[0])
    return place is not None and place.layout == "plain"


def _slices(manifest: SegmentManifest) -> dict[PlainPart, Slice]:
    parts = (
        PlainPart.OFFSET_INDEX,
        PlainPart.TIME_INDEX,
        PlainPart.SNAPSHOT,
        PlainPart.LEADER_EPOCHS,
        PlainPart.TXN_INDEX,
    )
    return dict(zip(parts, manifest.indexes, strict=False))


def _plain_segment(name: RemoteName, directory: str, parts: dict[Part, Entry]) -> RemoteSegment:
    sidecars = {PlainPart(part): entry.size for part, entry in parts.items() if part is not PlainPart.LOG}
    log = parts[PlainPart.LOG]
    return RemoteSegment(name, "plain", directory, log.size, log.mtime_ms, sidecars)


def _chunked_segment(name: RemoteName, directory: str, manifest: SegmentManifest, entry: Entry) -> RemoteSegment:
    extra = OVERHEAD if manifest.encryption is not None else 0
    sidecars = {part: max(place.size - extra, 0) for part, place in _slices(manifest).items()}
    size, told = manifest.chunk_index.original_file_size, manifest.metadata
    if told is None:
        return RemoteSegment(name, "chunked", directory, size, entry.mtime_ms, sidecars)
    return RemoteSegment(
        name,
        "chunked",
        directory,
        size,
        entry.mtime_ms,
        sidecars,
        told.end_offset + 1,
        told.max_timestamp_ms,
        told.leader_epochs,
        told.event_timestamp_ms,
    )


def _newest(epochs: tuple[EpochStart, ...]) -> EpochStart:
    return epochs[-1] if epochs else EpochStart(-1, -1)
