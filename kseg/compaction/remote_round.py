"""The part of a round that is in a tier: groups of its segments are written elsewhere, uploaded, and replaced there."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from kseg.compaction.output import CleanedSegment
from kseg.compaction.remote import TierAccess
from kseg.errors import LogError
from kseg.log.partition import Log
from kseg.log.segment import Segment
from kseg.tiering.cleaned import read_cleaned, write_cleaned
from kseg.tiering.layout import PlainPart
from kseg.tiering.replacement import Replaced, Rewritten
from kseg.tiering.tier import TierPartition


def find_place(access: TierAccess, log: Log) -> TierPartition | None:
    """Where the tier holds a log's partition, None where it does not.

    Raises:
        LogError: It does so in more than one place.
    """
    wanted = log.topic_id, log.partition
    found = [p for p in access.places if (p.place.topic_id, p.place.partition) == wanted]
    if len(found) > 1:
        raise LogError("the tier holds the partition in both layouts", path=access.tier.uri)
    return found[0] if found else None


class RemoteTarget:
    """Takes what a round has made of segments in a tier."""

    def __init__(self, access: TierAccess, place: TierPartition, stack: ExitStack) -> None:
        self._access = access
        self._place = place
        self._stack = stack
        self._folder: Path | None = None
        self._log, self._where = access.open(place)
        self._replacer = access.replacer(self._log, self._where, "compaction")
        stems = {posixpath.join(u.directory, u.name.stem) + PlainPart.LOG.value: u for u in self._log.current}
        self._uploads = stems
        self.replaced: list[Replaced] = []

    def folder(self) -> Path:
        """Where files are made: outside of any log."""
        if self._folder is None:
            self._folder = self._stack.enter_context(self._access.staging())
        return self._folder

    def put(self, new: CleanedSegment, group: Sequence[Segment]) -> None:
        """Let a new segment take the place of a group; its files are gone afterwards."""
        try:
            old = tuple(self._uploads[segment.path] for segment in group)
        except KeyError as error:
            raise LogError("the segment is not a part of the log any more", path=str(error.args[0])) from None
        self.replaced += self._replacer.replace([Rewritten(old, self.folder())])
        new.abandon()

    @property
    def checkpoint(self) -> int | None:
        """Where the last round over the tier alone ended."""
        return read_cleaned(self._where.objects)

    def move_checkpoint(self, offset: int) -> None:
        """Let the next round over the tier alone begin there."""
        write_cleaned(self._where.objects, offset)

    def sweep(self) -> None:
        """Delete the objects of what was retired, where a grace period was given and is over."""
        self._access.sweep(self._where)

    def retired(self) -> tuple[str, ...]:
        """The objects of this round's old segments, without what tells the parts apart."""
        return tuple(
            posixpath.join(self._place.directory, name.stem) for replaced in self.replaced for name in replaced.old
        )
