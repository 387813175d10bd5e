"""A tier whose small parts can be exchanged for others, in both layouts; nothing in it is encrypted."""

from __future__ import annotations

from dataclasses import replace

from kseg.tiering.chunks import Transform, store_indexes
from kseg.tiering.layout import PlainPart
from kseg.tiering.manifest import SegmentManifest

NAMES = {
    PlainPart.OFFSET_INDEX: "offset",
    PlainPart.TIME_INDEX: "timestamp",
    PlainPart.SNAPSHOT: "producer_snapshot",
    PlainPart.LEADER_EPOCHS: "leader_epoch",
    PlainPart.TXN_INDEX: "transaction",
}


def read_part(tier, base, part):
    """A small part of the segment that begins at an offset; None where it has none."""
    logs = list(tier.rglob(f"{base:020d}-*.log"))
    path = logs[0].with_suffix(part.value)
    return _chunked_parts(logs[0])[part] if _is_chunked(logs[0]) else path.read_bytes() if path.exists() else None


def change_part(tier, base, part, data):
    """Put another in its place, or with None take it away."""
    (log,) = tier.rglob(f"{base:020d}-*.log")
    path = log.with_suffix(part.value)
    if not _is_chunked(log):
        path.unlink() if data is None else path.write_bytes(data)
        return
    parts = _chunked_parts(log) | {part: data}
    stored, places = store_indexes(Transform(), **{name: parts[part] for part, name in NAMES.items()})
    manifest = SegmentManifest.parse(log.with_suffix(".rsm-manifest").read_bytes(), "")
    log.with_suffix(".indexes").write_bytes(stored)
    log.with_suffix(".rsm-manifest").write_bytes(replace(manifest, indexes=places).to_bytes())


def _is_chunked(log):
    return log.with_suffix(".rsm-manifest").exists()


def _chunked_parts(log):
    stored = log.with_suffix(".indexes").read_bytes()
    places = SegmentManifest.parse(log.with_suffix(".rsm-manifest").read_bytes(), "").indexes
    found = {part: getattr(places, name) for part, name in NAMES.items()}
    return {part: None if place is None else stored[place.position : place.end] for part, place in found.items()}
