"""The checks of one segment in a tier."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kseg.errors import FormatError, KsegError, LogError
from kseg.log.names import FileKind
from kseg.log.segment import Segment
from kseg.log.walk import BatchWalker, ReadOptions, Walk, check_order
from kseg.tiering.chunk_file import ChunkFile
from kseg.tiering.chunks import Transform
from kseg.tiering.crypto import KeyRing
from kseg.tiering.layout import ChunkedPart, PlainPart
from kseg.tiering.listing import RemoteObjects, plain_segment, read_manifest
from kseg.tiering.manifest import SegmentManifest
from kseg.tiering.objects import RetryPolicy, TierObjects, open_tier
from kseg.tiering.producer_parts import state_before
from kseg.tiering.small_parts import SMALL_PARTS, Problems, SmallParts

__all__ = ["SegmentCheck", "check_segment", "neighbours"]


@dataclass(frozen=True, slots=True)
class SegmentCheck:
    """A complete segment to check; `before` and `behind` are those next to it in the tier."""

    remote: str
    group: RemoteObjects
    keys: KeyRing
    deep: bool
    retry: RetryPolicy
    before: RemoteObjects | None = None
    behind: RemoteObjects | None = None

    def end_offset(self, last: int) -> int:
        """Where the segment ends, by the last offset that it holds, where nobody tells."""
        return last + 1 if self.behind is None else max(last + 1, self.behind.name.start_offset)


def neighbours(groups: Sequence[RemoteObjects]) -> Iterator[tuple[RemoteObjects | None, RemoteObjects | None]]:
    """For each of the groups, in their order, the segments of the same partition that begin before and behind it."""
    places: dict[tuple[object, ...], dict[int, RemoteObjects]] = {}
    for group in groups:
        places.setdefault(_place(group), {})[group.name.start_offset] = group
    ordered = {place: sorted(found) for place, found in places.items()}
    for group in groups:
        found, starts = places[_place(group)], ordered[_place(group)]
        slot = bisect.bisect_left(starts, group.name.start_offset)
        before = found[starts[slot - 1]] if slot else None
        yield before, found[starts[slot + 1]] if slot + 1 < len(starts) else None


def _place(group: RemoteObjects) -> tuple[object, ...]:
    return group.prefix, group.layout, group.name.topic, group.name.topic_id, group.name.partition


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
    transform = _transform(tier, check, check.group, manifest)
    small = _small_parts(tier, check, _stored_parts(tier, check.group, manifest, transform))
    with ChunkFile(
        tier.store.open(tier.path(check.group.key(ChunkedPart.LOG))), manifest.chunk_index, transform
    ) as file:
        last = _check_batches(BatchWalker(file, ReadOptions(), check=True), check.group, file.path, small)
    told = manifest.metadata
    if told is not None and last > told.end_offset:
        raise LogError(f"holds offset {last}, its manifest says that it ends at {told.end_offset}", path=key)
    _raise_first(small.finish(check.end_offset(last) if told is None else told.end_offset + 1))
    place = manifest.indexes.transaction
    if told is not None and told.txn_index_empty and place is not None and place.size:
        raise LogError("says that there is no transaction index: brokers do not look into the one that is", path=key)


def _transform(tier: TierObjects, check: SegmentCheck, group: RemoteObjects, manifest: SegmentManifest) -> Transform:
    path = tier.path(group.key(ChunkedPart.MANIFEST))
    return Transform(
        manifest.compression, None if manifest.encryption is None else check.keys.unwrap(manifest.encryption, path)
    )


def _stored_parts(
    tier: TierObjects, group: RemoteObjects, manifest: SegmentManifest, transform: Transform
) -> dict[PlainPart, bytes]:
    stored = tier.read(group.key(ChunkedPart.INDEXES))
    places = manifest.indexes
    slices = (places.offset, places.timestamp, places.transaction, places.producer_snapshot, places.leader_epoch)
    return {
        part: transform.restore_index(stored[place.position : place.end])
        for part, place in zip(SMALL_PARTS, slices, strict=True)
        if place is not None
    }


def _small_parts(tier: TierObjects, check: SegmentCheck, parts: Mapping[PlainPart, bytes]) -> SmallParts:
    group = check.group
    stem = f"{group.name.directory(group.layout)}/{group.name.stem}"
    before = state_before(_snapshot_before(tier, check), group.name.start_offset)
    return SmallParts(parts, group.name.start_offset, stem, before)


def _snapshot_before(tier: TierObjects, check: SegmentCheck) -> bytes | None:
    """The snapshot of the segment before, None where it cannot be had: what is wrong with it is told where it is."""
    before = check.before
    if before is None:
        return None
    try:
        if before.layout == "plain":
            return tier.read(before.key(PlainPart.SNAPSHOT))
        manifest = read_manifest(tier, before)
        transform = _transform(tier, check, before, manifest)
        return _stored_parts(tier, before, manifest, transform)[PlainPart.SNAPSHOT]
    except KsegError:
        return None


def _check_plain(tier: TierObjects, check: SegmentCheck) -> int:
    group, segment = check.group, plain_segment(tier, check.group)
    small, start = None, 0
    if check.deep:
        parts = {part: tier.read(group.key(part)) for part in SMALL_PARTS if part in group.parts}
        small = _small_parts(tier, check, parts)
    with segment.open() as file:
        if not check.deep and FileKind.OFFSET_INDEX in segment.files:
            start = segment.checked_position(file, *_last_entry(segment))
        walk = segment.walk(file, start=start, check=True)
        last = _check_batches(walk, group, segment.path, small)
    if small is not None:
        _raise_first(small.finish(check.end_offset(last)))
    return last + 1


def _raise_first(problems: Problems) -> None:
    for problem in problems.values():
        raise problem


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
