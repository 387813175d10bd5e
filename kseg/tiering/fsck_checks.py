"""The checks of one segment in a tier."""

from __future__ import annotations

from dataclasses import dataclass

from kseg.errors import FormatError, LogError
from kseg.log.names import FileKind
from kseg.log.segment import Segment
from kseg.log.walk import BatchWalker, ReadOptions, check_order
from kseg.tiering.chunk_file import ChunkFile
from kseg.tiering.chunks import Transform
from kseg.tiering.crypto import KeyRing
from kseg.tiering.layout import ChunkedPart
from kseg.tiering.listing import RemoteObjects, plain_segment, read_manifest
from kseg.tiering.manifest import SegmentManifest
from kseg.tiering.objects import RetryPolicy, TierObjects, open_tier

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
    """Check sizes against the manifest, and with `deep` every batch; return the offset behind the segment.

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
    indexes = tier.read(check.group.key(ChunkedPart.INDEXES))
    for place in manifest.indexes:
        transform.restore_index(indexes[place.position : place.end])
    stored = tier.store.open(tier.path(check.group.key(ChunkedPart.LOG)))
    with ChunkFile(stored, manifest.chunk_index, transform) as file:
        walk = BatchWalker(file, ReadOptions(), check=True)
        last = check.group.name.start_offset - 1
        for chunk in walk:
            last = check_order(chunk, check.group.name.start_offset, last, file.path)
        walk.raise_if_torn()
    if manifest.metadata is not None and last > manifest.metadata.end_offset:
        raise LogError(
            f"holds offset {last}, its manifest says that it ends at {manifest.metadata.end_offset}", path=key
        )


def _check_plain(tier: TierObjects, check: SegmentCheck) -> int:
    segment = plain_segment(tier, check.group)
    start = 0
    with segment.open() as file:
        if not check.deep and FileKind.OFFSET_INDEX in segment.files:
            start = segment.checked_position(file, *_last_entry(segment))
        last = segment.base_offset - 1
        walk = segment.walk(file, start=start, check=True)
        for chunk in walk:
            last = check_order(chunk, segment.base_offset, last, segment.path)
        walk.raise_if_torn()
    return last + 1


def _last_entry(segment: Segment) -> tuple[int, int]:
    index = segment.offset_index
    return (int(index.offsets[-1]), int(index.positions[-1])) if len(index) else (segment.base_offset, 0)
