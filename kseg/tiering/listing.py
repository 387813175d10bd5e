"""What is in a tier, by its objects alone: segments with their parts, complete or not, and what belongs to none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from kseg.errors import FormatError
from kseg.log.names import FileKind
from kseg.log.segment import Segment
from kseg.storage import Entry
from kseg.tiering.layout import ChunkedPart, Layout, Part, PlainPart, RemoteName, parse_key
from kseg.tiering.manifest import SegmentManifest
from kseg.tiering.marks import Mark, hidden_ids, is_mark
from kseg.tiering.objects import StoredObject, TierObjects

REQUIRED: Final[dict[Layout, tuple[Part, ...]]] = {
    "chunked": tuple(ChunkedPart),
    "plain": (PlainPart.LOG, PlainPart.OFFSET_INDEX, PlainPart.TIME_INDEX, PlainPart.SNAPSHOT),
}
FILE_KINDS: Final = {
    PlainPart.LOG: FileKind.LOG,
    PlainPart.OFFSET_INDEX: FileKind.OFFSET_INDEX,
    PlainPart.TIME_INDEX: FileKind.TIME_INDEX,
    PlainPart.TXN_INDEX: FileKind.TXN_INDEX,
}


@dataclass(frozen=True, slots=True)
class RemoteObjects:
    """The objects of one upload."""

    name: RemoteName
    layout: Layout
    prefix: str
    parts: dict[Part, StoredObject] = field(default_factory=dict)

    @property
    def missing(self) -> tuple[Part, ...]:
        """Parts that have to be there and are not."""
        return tuple(part for part in REQUIRED[self.layout] if part not in self.parts)

    @property
    def bytes(self) -> int:
        """Of all objects."""
        return sum(found.size for found in self.parts.values())

    def key(self, part: Part) -> str:
        """The key of a part."""
        return self.name.key(part, self.prefix)


def list_tier(tier: TierObjects, folder: str = "") -> tuple[list[RemoteObjects], list[StoredObject]]:
    """The uploads below a folder, by topic, partition and offset; and the objects that are no segment's."""
    return group_objects(tier.list(folder))


def group_objects(objects: Iterable[StoredObject]) -> tuple[list[RemoteObjects], list[StoredObject]]:
    """Put objects that belong together in one place."""
    found: dict[tuple[str, Layout, RemoteName], RemoteObjects] = {}
    strangers = []
    for stored in objects:
        parsed = parse_key(stored.key)
        if parsed is None:
            strangers.append(stored)
            continue
        prefix, name, part = parsed
        layout: Layout = "chunked" if isinstance(part, ChunkedPart) else "plain"
        group = found.setdefault((prefix, layout, name), RemoteObjects(name, layout, prefix))
        group.parts[part] = stored
    return sorted(found.values(), key=lambda group: (group.name, group.prefix)), strangers


def list_partition(tier: TierObjects, name: RemoteName, layout: Layout) -> list[RemoteObjects]:
    """The uploads of one partition that no mark hides, by offset."""
    groups, others = list_tier(tier, name.directory(layout))
    hidden = hidden_ids(read_mark(tier, found) for found in others if is_mark(found.key))
    return [group for group in groups if group.name.segment_id not in hidden]


def read_mark(tier: TierObjects, found: StoredObject) -> Mark:
    """A mark of retired segments, by its object.

    Raises:
        FormatError: It is broken.
    """
    return Mark.parse(found.key.rpartition("/")[2], tier.read(found.key), tier.path(found.key))


def read_manifest(tier: TierObjects, group: RemoteObjects) -> SegmentManifest:
    """The manifest of a segment in the `chunked` layout.

    Raises:
        FormatError: It is broken, or that of another segment.
    """
    key = group.key(ChunkedPart.MANIFEST)
    manifest = SegmentManifest.parse(tier.read(key), tier.path(key))
    if manifest.metadata is not None and manifest.metadata.name != group.name:
        raise FormatError("the manifest is that of another segment", path=tier.path(key))
    return manifest


def plain_segment(tier: TierObjects, group: RemoteObjects) -> Segment:
    """A segment of the `plain` layout, to be read where it is."""
    files = {
        kind: Entry(f"{group.name.stem}{part.value}", group.parts[part].size, group.parts[part].mtime_ms, False)
        for part, kind in FILE_KINDS.items()
        if part in group.parts
    }
    folder = tier.path(group.key(PlainPart.LOG).rpartition("/")[0])
    return Segment(tier.store, folder, group.name.start_offset, files)


def log_size(tier: TierObjects, group: RemoteObjects) -> int:
    """Bytes of a complete upload's log, as it was before it was copied."""
    if group.layout == "plain":
        return group.parts[PlainPart.LOG].size
    return read_manifest(tier, group).chunk_index.original_file_size
