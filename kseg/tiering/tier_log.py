"""What a tier holds of one partition: the segments that are its log, and other uploads that are still there.

Jobs that change a tier work on this and not on a `Log`: a log over both tiers shows no copies of local segments, and
nobody's log shows what was retired; both hold records all the same.
"""

from __future__ import annotations

import functools
import posixpath
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kseg.errors import OptionError
from kseg.index.epoch import LeaderEpochs
from kseg.log.names import FileKind
from kseg.log.segment import Segment
from kseg.storage import LocalStore
from kseg.tiering.layout import Layout, PlainPart, RemoteName
from kseg.tiering.metadata_records import SegmentRecord
from kseg.tiering.segments import Epochs, RemoteSegment, choose_segments
from kseg.tiering.store import remote_end, remote_segment
from kseg.tiering.tier import Tier, TierPartition

_KINDS: Final = {
    PlainPart.OFFSET_INDEX: FileKind.OFFSET_INDEX,
    PlainPart.TIME_INDEX: FileKind.TIME_INDEX,
    PlainPart.TXN_INDEX: FileKind.TXN_INDEX,
}
_NOBODY: Final = "AAAAAAAAAAAAAAAAAAAAAA"


@dataclass(frozen=True, slots=True)
class TierLog:
    """The complete uploads of a partition, by offset.

    Attributes:
        current: Those that are the log.
        others: Those that are not, or not any more: retired, superseded by another upload, or not known to the cluster.
    """

    tier: Tier
    place: TierPartition
    current: tuple[RemoteSegment, ...]
    others: tuple[RemoteSegment, ...]

    @property
    def layout(self) -> Layout:
        """How the objects look."""
        return self.place.place.layout

    def segment(self, upload: RemoteSegment) -> Segment:
        """An upload, to be read where it is.

        Where it ends its batches tell, and not what is known of it: the offsets at its end may have no records.
        """
        return remote_segment(self.tier, upload)

    def keys_of(self, upload: RemoteSegment) -> list[str]:
        """The paths of the objects of an upload, as the store lists them."""
        names = (entry.name for entry in self.tier.store.list(upload.directory) if not entry.is_dir)
        return [posixpath.join(upload.directory, name) for name in names if name.startswith(upload.name.stem + ".")]


def read_tier_log(tier: Tier, place: TierPartition, known: Mapping[str, SegmentRecord] | None) -> TierLog:
    """List a partition of a tier.

    Args:
        known: What the cluster's metadata says of the partition; None where there is no cluster.
    """
    found = tier.segments(place)
    current = current_segments(tier, found, known)
    ids = {segment.name.segment_id for segment in current}
    others = tuple(segment for segment in found if segment.name.segment_id not in ids)
    return TierLog(tier, place, tuple(current), others)


def current_segments(
    tier: Tier, found: Sequence[RemoteSegment], known: Mapping[str, SegmentRecord] | None
) -> list[RemoteSegment]:
    """The uploads that are the log, where no local log is at hand: the newest leader epochs are its lineage."""

    def epochs_of(segment: RemoteSegment) -> Epochs:
        history = LeaderEpochs(tier.history(segment)).truncate_from_start(segment.start_offset)
        return segment.leader_epochs or history.entries

    return choose_segments(
        found,
        known,
        lineage=lambda: tier.newest_history(found),
        epochs_of=epochs_of,
        end_of=functools.partial(remote_end, tier),
        exact=True,
    )


def root_of(tier: Tier, place: TierPartition) -> str:
    """The URI below which `RemoteName.key` names the objects of a partition.

    Raises:
        OptionError: The prefix is glued to the topic's name.
    """
    where = place.place
    inside = RemoteName(where.topic, where.partition, where.topic_id, 0, _NOBODY).directory(where.layout)
    root, directory = tier.root.rstrip("/"), place.directory
    base = directory.removesuffix("/" + inside)
    if base == directory:
        raise OptionError(
            "the prefix of this tier is glued to the topic's name: its objects are read, not rewritten",
            path=tier.uri,
            hint="give a prefix that ends with a slash",
        )
    if isinstance(tier.store, LocalStore):
        return base
    parts = urllib.parse.urlsplit(tier.uri)
    path = parts.path.rstrip("/")
    if base.startswith(root):
        path += base[len(root) :]
    elif root.startswith(base) and path.endswith(root[len(base) :]):
        path = path.removesuffix(root[len(base) :])
    else:
        raise OptionError("give the URI of the tier's root, not of a part of it", path=tier.uri)
    return urllib.parse.urlunsplit(parts._replace(path=path))
