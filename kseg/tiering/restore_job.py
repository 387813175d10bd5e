"""Restore: segments of a tier back into log directories, with the offsets that they had."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kseg.errors import JobError, KsegError, LockedError, LogError, OptionError
from kseg.index.epoch import LeaderEpochs
from kseg.log.names import partition_dir_name
from kseg.log.writer_place import make_log_dir
from kseg.offsets.entries import OffsetEntry, read_entries
from kseg.offsets.report import ResetReport
from kseg.offsets.reset_job import reset
from kseg.progress import SILENT, Progress
from kseg.runner import run_tasks
from kseg.settings.values import Refusal
from kseg.storage import LocalStore, open_store
from kseg.tiering.crypto import KeyRing
from kseg.tiering.metadata_topic import MetadataImage, read_metadata
from kseg.tiering.objects import RetryPolicy, check_remote
from kseg.tiering.restore_partition import (
    local_bases,
    place_segments,
    refuse_other_topic,
    refuse_overlap,
    restoring,
    segments_in_range,
)
from kseg.tiering.restore_report import PartitionRestore, RestoredSegment, RestoreReport
from kseg.tiering.restore_segment import FetchTask, fetch_segment, rebuild_parts, restored_epochs
from kseg.tiering.segments import RemoteSegment
from kseg.tiering.tier import Tier, TierPartition
from kseg.tiering.tier_log import current_segments

PathLike = str | os.PathLike[str]


def restore(
    remote: str,
    path: PathLike,
    *,
    topics: Iterable[str] | None = None,
    partition: int | None = None,
    start: int | None = None,
    end: int | None = None,
    topic_id: str | None = None,
    metadata: PathLike | None = None,
    keys: Mapping[str, PathLike] | None = None,
    allow_shared_keys: bool = False,
    offsets: PathLike | None = None,
    offsets_partitions: int | None = None,
    retry: RetryPolicy | None = None,
    dry_run: bool = False,
    workers: int | None = None,
    progress: Progress = SILENT,
) -> RestoreReport:
    """Bring segments back from a tier, each into `<path>/<topic>-<partition>`, so that a broker loads them.

    A partition that still has local segments gets back what lies before them; one that has none is made, with its
    topic id and leader epochs. Every batch is checked before anything is put in place. Segments are restored whole, so
    the first and the last may hold offsets outside `[start, end)`.

    Args:
        remote: The tier, as `kseg.tiering.offload` takes it; the layout is seen from the objects.
        path: A local log directory; it is made where it is missing.
        topics: These only; None is all that the tier holds.
        partition: This one only.
        start: The first offset that is wanted.
        end: The offset behind the last that is wanted.
        topic_id: Which topic, where the tier holds several of one name.
        metadata: A log directory with `__remote_log_metadata`, which tells what is valid of what overlaps.
        keys: Files of private keys by id, for encrypted segments.
        allow_shared_keys: Take key files that others can read.
        offsets: A file that `kseg.offsets.export` wrote: what groups had committed for the partitions that are
            restored is committed in `path`, which has to hold `__consumer_offsets`. What is behind a restored log's
            end becomes that end.
        offsets_partitions: How many partitions `__consumer_offsets` has, where no metadata log in `path` tells.
        dry_run: Change nothing, and report what would be restored.
        workers: Threads; by default one per core.

    Raises:
        LockedError: A broker or another job holds the directory.
        OptionError: An argument is wrong, or the tier holds nothing that was asked for.
    """
    began = time.monotonic()
    if not isinstance(open_store(path)[0], LocalStore):
        raise OptionError(f"segments are restored to a local directory, not to {os.fspath(path)!r}")
    ring = KeyRing(keys, allow_shared=allow_shared_keys)
    groups = None if offsets is None else read_entries(offsets)
    tier = Tier(check_remote(remote), ring, retry)
    image = None if metadata is None else read_metadata(*open_store(metadata))
    wanted = None if topics is None else frozenset(topics)
    job = _Job(tier, Path(open_store(path)[1]), start, end, image, dry_run, workers, progress)
    found = [
        place
        for place in tier.partitions()
        if (wanted is None or place.place.topic in wanted)
        and partition in (None, place.place.partition)
        and topic_id in (None, place.place.topic_id)
    ]
    if not found:
        raise OptionError(f"{remote} holds nothing that was asked for")
    for place in job.without_doubles(found):
        job.take(place)
    if groups is not None:
        job.take_groups(groups, offsets_partitions)
    return job.report(time.monotonic() - began)


@dataclass(slots=True)
class _Job:
    """One call of `restore`."""

    tier: Tier
    path: Path
    start: int | None
    end: int | None
    image: MetadataImage | None
    dry_run: bool
    workers: int | None
    progress: Progress
    done: list[PartitionRestore] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    groups: ResetReport | None = None

    def without_doubles(self, found: list[TierPartition]) -> list[TierPartition]:
        """One place for each partition; where there are several, it is refused."""
        by_name: dict[str, list[TierPartition]] = {}
        for place in found:
            by_name.setdefault(str(place.place.topic_partition), []).append(place)
        for name, places in by_name.items():
            if len(places) > 1:
                ids = ", ".join(sorted(f"{place.place.topic_id} ({place.place.layout})" for place in places))
                self.refusals.append(Refusal(name, f"the tier has several of it: {ids}: say which topic id"))
        return [places[0] for places in by_name.values() if len(places) == 1]

    def take(self, place: TierPartition) -> None:
        """Restore one partition; what stands against it goes to the report."""
        name = place.place.topic_partition
        directory = self.path / partition_dir_name(name)
        restored: tuple[RestoredSegment, ...] = ()
        error = rebuilt = None
        try:
            chosen, before = self._choose(place, directory)
            restored, rebuilt = self._restore(place, directory, chosen, before)
        except (LockedError, OptionError):
            raise
        except KsegError as failure:
            error = str(failure)
        self.done.append(
            PartitionRestore(name.topic, name.partition, place.place.topic_id, str(directory), restored, error, rebuilt)
        )

    def take_groups(self, entries: Iterable[OffsetEntry], partitions: int | None) -> None:
        """Commit where groups stood in the partitions that are here now."""
        here = {(found.topic, found.partition) for found in self.done if found.error is None}
        wanted = [entry for entry in entries if (entry.topic, entry.partition) in here]
        try:
            self.groups = reset(self.path, wanted, offsets_partitions=partitions, dry_run=self.dry_run)
        except LockedError:
            raise
        except KsegError as error:  # the segments are back all the same
            self.refusals.append(Refusal("consumer groups", str(error)))
            return
        self.refusals += self.groups.refusals

    def _choose(self, place: TierPartition, directory: Path) -> tuple[list[RemoteSegment], RemoteSegment | None]:
        """The segments to restore, and the one before them."""
        known = None if self.image is None else self.image.of(place.place.topic_id, place.place.partition)
        if self.image is not None and known is None:
            raise LogError(f"the metadata says nothing of {place.place.topic_partition}")
        refuse_other_topic(directory, place.place.topic_id)
        current = current_segments(self.tier, self.tier.segments(place), known)
        bases = local_bases(directory)
        end = self.end if not bases else min(bases[0], bases[0] if self.end is None else self.end)
        if bases and all(segment.start_offset >= bases[0] for segment in current):
            return [], None  # all of it is here already
        chosen = segments_in_range(current, self.start, end, str(place.place.topic_partition))
        earlier = [segment for segment in current if segment.start_offset < chosen[0].start_offset]
        return chosen, max(earlier, key=lambda segment: segment.start_offset, default=None)

    def _restore(
        self, place: TierPartition, directory: Path, chosen: list[RemoteSegment], before: RemoteSegment | None
    ) -> tuple[tuple[RestoredSegment, ...], str | None]:
        """Restore segments; return them, and why their leader epochs were built anew, where they were."""
        topic_id = place.place.topic_id
        bases = local_bases(directory)
        # what nobody tells of the last segment is seen once it is here
        end = chosen[-1].next_offset if chosen else None
        end = end or (bases[0] if bases else None)
        if self.dry_run:
            refuse_overlap(directory, end)
            return tuple(_planned(segment) for segment in chosen), None
        make_log_dir(self.path)
        with restoring(directory, topic_id, end) as (session, folder):
            self.progress.begin(f"restore {place.place.topic_partition}", sum(segment.size for segment in chosen))
            try:
                tasks = [
                    FetchTask(self.tier, segment, str(folder), earlier)
                    for earlier, segment in itertools.pairwise([before, *chosen])
                    if segment is not None
                ]
                sizes = [segment.size for segment in chosen]
                results = run_tasks(fetch_segment, tasks, workers=self.workers, progress=self.progress, weights=sizes)
            finally:
                self.progress.end()
            fetched = []
            for result in results:
                if isinstance(result, KsegError):
                    raise result
                fetched.append(result)
            restored = rebuild_parts(folder, fetched)
            if bases and restored and (restored[-1].next_offset or 0) > bases[0]:
                raise JobError(f"what came back ends at {restored[-1].next_offset}", path=str(directory))
            epochs, why = restored_epochs(fetched) if fetched else (LeaderEpochs(), None)
            place_segments(directory, folder, session, restored, topic_id, epochs)
        return tuple(restored), None if bases else why  # local segments have epochs of their own

    def report(self, seconds: float) -> RestoreReport:
        """What was done."""
        segments = [segment for found in self.done if found.error is None for segment in found.segments]
        return RestoreReport(
            self.dry_run,
            self.tier.uri,
            tuple(self.done),
            tuple(self.refusals),
            len(segments),
            sum(segment.bytes for segment in segments),
            seconds,
            self.groups,
        )


def _planned(segment: RemoteSegment) -> RestoredSegment:
    return RestoredSegment(segment.start_offset, segment.next_offset, segment.size, segment.name.segment_id)
