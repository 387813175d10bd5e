"""The checks of one segment in a tier."""

from __future__ import annotations

from dataclasses import dataclass

from kseg.errors import FormatError, LogError
from kseg.log.names import FileKind
from kseg.log.segment import Segment
from kseg.log.walk import BatchWalker, ReadOptions, Walk, check_order
from kseg.tiering.chunk_file import ChunkFile
from kseg.tiering.chunks import Transform
from kseg.tiering.crypto import KeyRing
from kseg.tiering.layout import ChunkedPart
from kseg.tiering.listing import RemoteObjects, plain_segment, read_manifest
from kseg.tiering.manifest import SegmentManifest
from kseg.tiering.objects import RetryPolicy, TierObjects, open_tier
from kseg.tiering.small_parts import SMALL_PARTS, SmallParts

__all__ = ["SegmentCheck", "check_segment"]


@dataclass(frozen=True, slots=True)
class SegmentCheck:
    """A complete segment to check."""

    remote: str
    group: RemoteObjects
    keys: KeyRing
    deep: bool
    retry: RetryPolicy


def check_segment(check: SegmentCheck) -> int | None:
    """Check sizes against the manifest, and with `deep` every batch and entry; return the offset behind the segment.

    Raises:
        KsegError: What is wrong.
    """
    tier = open_tier(check.remote, retry=check.retry)
    if check.group.layout == "plain":
        return _check_plain(tier, check)
    manifest = read_manifest(tier, check.group)
    _check_sizes(check.group, manifest)
    if check.deep:
        _check_chunks(tier, check, manifest)
    return None if manifest.metadata is None else manifest.metadata.end_offset + 1


def _check_sizes(group: RemoteObjects, manifest: SegmentManifest) -> None:
    expected = {ChunkedPart.LOG: manifest.chunk_index.stored_size, ChunkedPart.INDEXES: manifest.indexes.size}
    for part, size in expected.items():
        found = group.parts[part].size
        if found != size:
            raise FormatError(f"{found} bytes, the manifest says {size}", path=group.parts[part].key)


def _check_chunks(tier: TierObjects, check: SegmentCheck, manifest: SegmentManifest) -> None:
    key = check.group.key(ChunkedPart.MANIFEST)
    cipher = None if manifest.encryption is None else check.keys.unwrap(manifest.encryption, tier.path(key))
    transform = Transform(manifest.compression, cipher)
    stored = tier.read(check.group.key(ChunkedPart.INDEXES))
    places = manifest.indexes
    slices = (places.offset, places.timestamp, places.transaction, places.producer_snapshot, places.leader_epoch)
    parts = {
        part: transform.restore_index(stored[place.position : place.end])
        for part, place in zip(SMALL_PARTS, slices, strict=True)
        if place is not None
    }
    small = SmallParts(parts, check.group)
    with ChunkFile(
        tier.store.open(tier.path(check.group.key(ChunkedPart.LOG))), manifest.chunk_index, transform
    ) as file:
        last = _check_batches(BatchWalker(file, ReadOptions(), check=True), check.group, file.path, small)
    told = manifest.metadata
    if told is not None and last > told.end_offset:
        raise LogError(f"holds offset {last}, its manifest says that it ends at {told.end_offset}", path=key)
    small.finish()


def _check_plain(tier: TierObjects, check: SegmentCheck) -> int:
    group, segment = check.group, plain_segment(tier, check.group)
    small, start = None, 0
    if check.deep:
        small = SmallParts({part: tier.read(group.key(part)) for part in SMALL_PARTS if part in group.parts}, group)
    with segment.open() as file:
        if not check.deep and FileKind.OFFSET_INDEX in segment.files:
            start = segment.checked_position(file, *_last_entry(segment))
        walk = segment.walk(file, start=start, check=True)
        last = _check_batches(walk, group, segment.path, small)
    if small is not None:
        small.finish()
    return last + 1


def _check_batches(walk: Walk, group: RemoteObjects, path: str, small: SmallParts | None) -> int:
    """Check batches; return the last offset."""
    last = group.name.start_offset - 1
    for chunk in walk:
        last = check_order(chunk, group.name.start_offset, last, path)
        if small is not None:
            small.add(chunk.table[:, : chunk.rows])
    walk.raise_if_torn()
    return last


def _last_entry(segment: Segment) -> tuple[int, int]:
    index = segment.offset_index
    return (int(index.offsets[-1]), int(index.positions[-1])) if len(index) else (segment.base_offset, 0)
