"""Copy one segment to the tier, and prove the copy: what a task of an offload does.

The manifest of the `chunked` layout is not written here: whoever runs the tasks publishes manifests in the order of the
offsets, since a manifest says that its segment is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from kseg.errors import ChecksumError, StorageError
from kseg.index.epoch import EpochStart
from kseg.log.partition import Log
from kseg.log.staging import check_nonce
from kseg.storage import LocalStore
from kseg.tiering.chunks import Transform, iter_chunks, read_chunk, store_indexes
from kseg.tiering.crypto import KeyRing, SegmentCipher
from kseg.tiering.layout import ChunkedPart, Layout, PlainPart, RemoteName
from kseg.tiering.manifest import RemoteSegmentMetadata, SegmentManifest
from kseg.tiering.metadata_records import SegmentRecord
from kseg.tiering.objects import (
    PIECE_BYTES,
    Digest,
    Pieces,
    RetryPolicy,
    Tally,
    TierObjects,
    file_pieces,
    new_room,
    open_tier,
)
from kseg.tiering.parts import CACHED_BYTES, CheckedLog, SegmentParts, find_segment, read_parts

DEFAULT_CHUNK_SIZE: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class TierOptions:
    """Where copies go and how they look there.

    Attributes:
        public_key: Id and file of the public key that wraps the data keys of `chunked`; None: nothing is encrypted.
        keys: Private keys, to read back what was encrypted in an earlier run.
    """

    remote: str
    layout: Layout = "chunked"
    chunk_size: int = DEFAULT_CHUNK_SIZE
    compression: bool = True
    public_key: tuple[str, str] | None = None
    keys: KeyRing = field(default_factory=KeyRing)
    max_bytes_per_second: float | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    def open(self) -> TierObjects:
        """Open the tier."""
        return open_tier(self.remote, max_bytes_per_second=self.max_bytes_per_second, retry=self.retry)


@dataclass(frozen=True, slots=True)
class UploadTask:
    """One segment to copy; `record` says which and under which id.

    Attributes:
        resumed: An earlier run has begun with it, and may have come as far as the manifest.
    """

    directory: str
    next_base: int
    record: SegmentRecord
    options: TierOptions
    verify: bool
    nonce: tuple[str, bytes] | None = None
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A segment whose objects, the manifest aside, are in the tier."""

    record: SegmentRecord
    stored_bytes: int
    manifest: bytes | None
    verified: bool


def upload_segment(task: UploadTask) -> Uploaded:
    """Check the segment, copy it, and where it was asked for read the copy back.

    Raises:
        FormatError: The segment, or the copy that was read back, is damaged.
        StorageError: A file or the tier failed, again and again.
    """
    if task.nonce is not None:
        check_nonce(Path(task.nonce[0]), task.nonce[1])
    log = Log(LocalStore(), task.directory)
    segment = find_segment(log, task.record.start_offset)
    if segment.size != task.record.size:
        raise StorageError(f"{segment.size} bytes, {task.record.size} were expected", path=segment.path)
    tier = task.options.open()
    checked = CheckedLog(segment, task.next_base, CACHED_BYTES if _is_done_at_once(tier, task) else PIECE_BYTES)
    if task.resumed:  # what an earlier run has left may be a good copy: it stays where the segment here is none
        checked.check()
    return _upload(tier, checked.pieces, lambda: read_parts(log, checked), task)


@dataclass(frozen=True, slots=True)
class MadeSegment:
    """A log file and the parts that go with it, checked, and what is to be done with them."""

    path: str
    parts: SegmentParts
    task: UploadTask


def upload_files(made: MadeSegment) -> Uploaded:
    """Copy a segment whose parts are known; the manifest of `chunked` is left to whoever publishes it.

    Raises:
        FormatError: The copy that was read back is damaged.
        StorageError: A file or the tier failed, again and again.
    """
    tier, task = made.task.options.open(), made.task
    room = new_room(CACHED_BYTES if _is_done_at_once(tier, task) else PIECE_BYTES)
    pieces = partial(file_pieces, made.path, expected_size=task.record.size, room=room)
    return _upload(tier, pieces, lambda: made.parts, task)


def _is_done_at_once(tier: TierObjects, task: UploadTask) -> bool:
    """Whether a piece of the log is done with when the next is asked for; chunks are made of them at once."""
    return tier.takes_at_once or task.options.layout == "chunked"


def _upload(tier: TierObjects, log_pieces: Pieces, read: Callable[[], SegmentParts], task: UploadTask) -> Uploaded:
    """Copy a segment. The log comes first: it is checked as it goes by, and tells what belongs into the indexes.

    Args:
        log_pieces: Gives the log; each piece may be overwritten by the next.
        read: Gives the other parts, once the log is there.
    """
    return (_upload_plain if task.options.layout == "plain" else _upload_chunked)(tier, log_pieces, read, task)


def _upload_plain(
    tier: TierObjects, log_pieces: Pieces, read: Callable[[], SegmentParts], task: UploadTask
) -> Uploaded:
    """Copy the files of a segment; the offset index comes last: a listing that shows it shows a complete segment."""
    name = task.record.name
    pieces = log_pieces if tier.takes_at_once else lambda: (bytes(piece) for piece in log_pieces())
    tally = Tally(pieces)
    stored = tier.put(name.key(PlainPart.LOG), tally if task.verify else pieces)
    parts = read()
    small = {
        PlainPart.TXN_INDEX: parts.txn_index,
        PlainPart.SNAPSHOT: parts.snapshot,
        PlainPart.LEADER_EPOCHS: parts.leader_epochs or None,
        PlainPart.TIME_INDEX: parts.time_index,
        PlainPart.OFFSET_INDEX: parts.offset_index,
    }
    there = {name.key(part): data for part, data in small.items() if data is not None}
    stored += tier.put_together(there)
    if task.verify:
        check_digest(tier, name.key(PlainPart.LOG), tally.digest)
        for key, data in there.items():
            check_digest(tier, key, Digest().add(data))
    return Uploaded(task.record, stored, None, task.verify)


def check_digest(tier: TierObjects, key: str, expected: Digest) -> None:
    """Read an object back.

    Raises:
        ChecksumError: It is not what was written.
    """
    found = tier.digest(key)
    if found != expected:
        raise ChecksumError(
            f"read back {found.size} bytes with checksum {found.crc:08x}, "
            f"written were {expected.size} with {expected.crc:08x}",
            path=tier.path(key),
        )


def _upload_chunked(
    tier: TierObjects, log_pieces: Pieces, read: Callable[[], SegmentParts], task: UploadTask
) -> Uploaded:
    options, name = task.options, task.record.name
    if task.resumed:  # a manifest says that the other objects are complete: they are about to change
        tier.delete(name.key(ChunkedPart.MANIFEST))
    cipher = None if options.public_key is None else SegmentCipher.random()
    transform = Transform(options.compression, cipher)
    stored_sizes: list[int] = []
    tally = Tally(log_pieces)

    def stored_pieces() -> Iterator[bytes]:
        stored_sizes.clear()
        for chunk in iter_chunks((tally if task.verify else log_pieces)(), options.chunk_size, task.record.size):
            stored = transform.store_chunk(chunk)
            stored_sizes.append(len(stored))
            yield stored

    log_bytes = tier.put(name.key(ChunkedPart.LOG), stored_pieces)
    parts = read()
    indexes, slices = store_indexes(
        transform,
        offset=parts.offset_index,
        timestamp=parts.time_index,
        producer_snapshot=parts.snapshot,
        leader_epoch=parts.leader_epochs,
        transaction=parts.txn_index,
    )
    index_bytes = tier.put_bytes(name.key(ChunkedPart.INDEXES), indexes)
    manifest = SegmentManifest(
        transform.index_of(options.chunk_size, task.record.size, stored_sizes),
        slices,
        options.compression,
        None if cipher is None or options.public_key is None else cipher.wrap(*options.public_key),
        segment_metadata(task.record),
    )
    if task.verify:
        check_digest(tier, name.key(ChunkedPart.INDEXES), Digest().add(indexes))
        check_log_copy(tier, name, manifest, transform, tally.digest)
    data = manifest.to_bytes()
    return Uploaded(task.record, log_bytes + index_bytes + len(data), data, task.verify)


def segment_metadata(record: SegmentRecord) -> RemoteSegmentMetadata:
    """A segment's description as its manifest holds it."""
    return RemoteSegmentMetadata(
        record.name,
        record.end_offset,
        record.max_timestamp_ms,
        record.broker_id,
        record.event_timestamp_ms,
        tuple(EpochStart(*entry) for entry in record.epochs),
        record.txn_index_empty,
    )


def check_log_copy(
    tier: TierObjects, name: RemoteName, manifest: SegmentManifest, transform: Transform, original: Digest
) -> None:
    """Read a copy of a log back through all that was done to its chunks, and compare.

    Raises:
        FormatError: It is not what was copied.
    """
    found = Digest()
    with tier.store.open(tier.path(name.key(ChunkedPart.LOG))) as file:
        for place in manifest.chunk_index:
            found = found.add(read_chunk(file, place, transform))
    if found != original:
        raise ChecksumError(
            f"the copy has checksum {found.crc:08x}, the segment {original.crc:08x}",
            path=tier.path(name.key(ChunkedPart.LOG)),
        )


def verify_copy(task: UploadTask) -> Uploaded:
    """Prove that the tier has a segment as it is here, for one that was copied in an earlier run.

    Raises:
        FormatError: It has not.
        StorageError: An object is missing.
    """
    log = Log(LocalStore(), task.directory)
    segment = find_segment(log, task.record.start_offset)
    original = Digest()
    for piece in file_pieces(segment.path, expected_size=segment.size, room=new_room()):
        original = original.add(piece)
    tier, name = task.options.open(), task.record.name
    if task.options.layout == "plain":
        check_digest(tier, name.key(PlainPart.LOG), original)
        for part in (PlainPart.OFFSET_INDEX, PlainPart.TIME_INDEX, PlainPart.SNAPSHOT, PlainPart.LEADER_EPOCHS):
            tier.digest(name.key(part))
        return Uploaded(task.record, original.size, None, True)
    key = name.key(ChunkedPart.MANIFEST)
    manifest = SegmentManifest.parse(tier.read(key), tier.path(key))
    cipher = None if manifest.encryption is None else task.options.keys.unwrap(manifest.encryption, tier.path(key))
    transform = Transform(manifest.compression, cipher)
    check_log_copy(tier, name, manifest, transform, original)
    indexes = tier.read(name.key(ChunkedPart.INDEXES))
    if len(indexes) != manifest.indexes.size:
        raise StorageError(
            f"{len(indexes)} bytes, the manifest says {manifest.indexes.size}",
            path=tier.path(name.key(ChunkedPart.INDEXES)),
        )
    for place in manifest.indexes:
        transform.restore_index(indexes[place.position : place.end])
    return Uploaded(task.record, manifest.chunk_index.stored_size, None, True)
