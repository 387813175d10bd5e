"""Erase records from a tier: segments that hold some are rewritten and retired; what is still there is told."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kseg.compaction.erase_report import Lingering, PlaceErasure
from kseg.compaction.erase_work import EraseWork
from kseg.compaction.eraser import Keeping, SegmentErasure
from kseg.compaction.remote import TierAccess
from kseg.errors import KsegError, LockedError
from kseg.log.partition import Log
from kseg.progress import SILENT
from kseg.settings.source import SettingsSource
from kseg.tiering.layout import RemoteName
from kseg.tiering.replacement import Rewritten
from kseg.tiering.retirement import PartitionTier, list_partition
from kseg.tiering.segments import RemoteSegment
from kseg.tiering.store import TieredStore
from kseg.tiering.tier import TierPartition
from kseg.tiering.tier_log import TierLog

WAVE: Final = 4
"""Segments that are rewritten, uploaded and take effect together: so many are on the disk at a time."""


@dataclass(frozen=True, slots=True)
class TierErasure:
    """What an erasure came to in a tier."""

    places: tuple[PlaceErasure, ...] = ()
    not_covered: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    lingering: tuple[Lingering, ...] = ()


def erase_tier(
    access: TierAccess, source: SettingsSource, logs: Sequence[Log], work: EraseWork, *, dry_run: bool
) -> TierErasure:
    """Erase from all partitions of the topics that a tier holds.

    Args:
        logs: The local logs that may be changed.
    """
    by_id = {(log.topic_id, log.partition): log for log in logs}
    run = RemoteErase(access, work, dry_run)
    places, not_covered, refusals = [], [], []
    for place in access.places:
        where = place.place
        if source.refuse_topic(where.topic) is not None:
            continue
        local = by_id.get((where.topic_id, where.partition))
        refusal = access.refusal(place, local)
        if refusal is None:
            places.append(run.take(place, local))
        elif local is None:
            not_covered.append(f"{where.topic_partition} in the tier: {refusal}")
        else:
            refusals.append(f"{where.topic_partition} in the tier: {refusal}")
    return TierErasure(tuple(places), tuple(not_covered), tuple(refusals), tuple(run.lingering))


@dataclass(slots=True)
class RemoteErase:
    """The part of an erasure that is in a tier; `lingering` still holds such records, though nobody reads it."""

    access: TierAccess
    work: EraseWork
    dry_run: bool
    lingering: list[Lingering] = field(default_factory=list)

    def take(self, place: TierPartition, local: Log | None) -> PlaceErasure:
        """Search one partition and, unless it is a dry run, erase there; its failure does not stop the others.

        Args:
            local: The partition's local log, where there is one: it knows the producers at its end.
        """
        tp = place.place.topic_partition
        report = PlaceErasure(tp.topic, tp.partition, place.directory, tier="remote")
        try:
            log, where = self.access.open(place)
            counts = self._count(log, "search")
            report = replace(report, segments_searched=len(counts), records=sum(counts))
            doomed = [upload for upload, count in zip(log.current, counts, strict=True) if count]
            if not self.dry_run:
                if doomed:
                    keeping = Keeping.of(local or self._log_of(log))
                    report = replace(report, segments=tuple(self._erase(log, where, doomed, keeping)))
                self.access.sweep(where)
                log, where = self.access.open(place)
                left = sum(self._count(log, "last look")) if doomed else 0
                report = replace(report, left=left)
            self.lingering += self._find_lingering(log, where)
        except LockedError:
            raise
        except KsegError as error:
            return replace(report, error=str(error))
        return report

    def _count(self, log: TierLog, phase: str) -> list[int]:
        """Records that are meant, by segment of the log."""
        segments = [log.segment(upload) for upload in log.current]
        with self.work.phase(f"{_name(log)} {phase}", segments):
            return self.work.count(segments)

    def _log_of(self, log: TierLog) -> Log:
        """The log that the tier holds, alone."""
        store = TieredStore(log.tier, None)
        return Log(store, store.directory_of(log.place))

    def _erase(
        self, log: TierLog, where: PartitionTier, doomed: Sequence[RemoteSegment], keeping: Keeping
    ) -> list[SegmentErasure]:
        replacer = self.access.replacer(log, where, "erase")
        erased: list[SegmentErasure] = []
        for first in range(0, len(doomed), WAVE):
            wave = doomed[first : first + WAVE]
            segments = [log.segment(upload) for upload in wave]
            # the last batch of each stays, so that a segment in a tier always tells where it ends
            tasks = [
                (s, keeping.until(s.next_offset), tuple(s.txn_index)) for s in segments
            ]  # no upload lacks an index
            with self.access.staging() as folder, self.work.phase(f"{_name(log)} erase", segments):
                done = self.work.erase(tasks, folder, folder)
                items = [Rewritten((upload,), folder) for upload in wave]
                replacer.replace(items, spark=self.work.spark, workers=self.work.workers)
            erased += done
        return erased

    def _find_lingering(self, log: TierLog, where: PartitionTier) -> list[Lingering]:
        """Uploads that nobody reads and that hold such records, or cannot be searched."""
        found = []
        work = replace(self.work, progress=SILENT)  # mostly nothing, and often not to be read
        counts = work.try_count([log.segment(upload) for upload in log.others])
        for upload, records in zip(log.others, counts, strict=True):
            why = "retired" if upload.is_retired else "not a part of the log"
            if isinstance(records, KsegError):
                found.append(_lingering(log, upload.name, None, f"{why}; it cannot be read: {records}"))
            elif records:
                found.append(_lingering(log, upload.name, records, why))
        complete = {upload.name for upload in (*log.current, *log.others)}
        broken = sorted(list_partition(where)[0].keys() - complete)
        return found + [_lingering(log, name, None, "an upload, or a deletion, that did not end") for name in broken]


def _name(log: TierLog) -> str:
    return f"{log.place.place.topic_partition} in the tier"


def _lingering(log: TierLog, name: RemoteName, records: int | None, why: str) -> Lingering:
    path = posixpath.join(log.place.directory, name.stem)
    return Lingering(name.topic, name.partition, name.start_offset, path, records, why)
