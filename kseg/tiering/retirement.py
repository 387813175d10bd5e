"""Retire segments of a tier, because they expired or were replaced, and sweep their objects later.

The order is what makes every crash harmless:

1. `hide`, where segments are replaced: a mark hides the new ones before their first object is there.
2. `retire`: the cluster's metadata first. DELETE_SEGMENT_STARTED of what goes, behind COPY_SEGMENT_FINISHED of what
   replaces it, in one append; durable when it returns. Then the mark says so to whoever reads the bucket alone.
   Where no cluster knows of the tier, the mark is all there is.
3. `sweep`, after the grace period: the objects, first the one that makes a segment count; then DELETE_SEGMENT_FINISHED;
   then the mark. Readers that were planned before the change find all objects until then.

What the metadata names as copied is never touched, whatever a mark says. Each step that a run has not done, the next
one does. A broker that runs does not wait: it deletes what is DELETE_SEGMENT_STARTED within seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kseg.tiering.layout import COMMIT_PARTS, Part, PartitionPlace, RemoteName, parse_object
from kseg.tiering.listing import read_mark
from kseg.tiering.marks import Mark, State, is_mark
from kseg.tiering.metadata_records import COPY_FINISHED, COPY_STARTED, DELETE_FINISHED, DELETE_STARTED, SegmentRecord
from kseg.tiering.metadata_writer import MetadataTopic
from kseg.tiering.objects import StoredObject, TierObjects
from kseg.tiering.tier import TierPartition

GRACE_MS: Final = 24 * 3_600_000
"""How long objects stay after their segment was retired: readers that were planned before need them."""

Records = Mapping[str, SegmentRecord]
Uploads = dict[RemoteName, dict[Part, StoredObject]]


@dataclass(frozen=True, slots=True)
class PartitionTier:
    """One partition's place in a tier, and the cluster's metadata about it.

    Attributes:
        objects: Those of the partition's directory, by their names.
        topic: `NoTopic` where no cluster knows of the tier.
    """

    objects: TierObjects
    place: PartitionPlace
    topic: MetadataTopic

    @classmethod
    def of(cls, tier: TierObjects, partition: TierPartition, topic: MetadataTopic) -> PartitionTier:
        """The place of a partition that was found in a tier."""
        return cls(tier.below(partition.directory), partition.place, topic)

    def records(self) -> Records:
        """What the metadata says now, by segment ids; nothing where there is none."""
        return self.topic.segments(self.place.topic_id, self.place.partition)

    def write(self, values: Sequence[bytes], now_ms: int) -> None:
        """Write records; they are durable when this returns."""
        if values:
            self.topic.write(self.place.topic_id, self.place.partition, values, now_ms=now_ms)


@dataclass(frozen=True, slots=True)
class DatedMark:
    """A mark, and when it was put, by the store's clock."""

    mark: Mark
    since_ms: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep has deleted, or would; and what is retired and has to wait."""

    swept: tuple[RemoteName, ...] = ()
    swept_bytes: int = 0
    waiting: tuple[RemoteName, ...] = ()
    waiting_bytes: int = 0


def list_partition(where: PartitionTier) -> tuple[Uploads, list[DatedMark]]:
    """The objects of a partition by upload, complete or not, and its marks.

    Raises:
        FormatError: A mark cannot be read.
    """
    uploads: Uploads = {}
    marks = []
    for found in where.objects.list():
        if "/" in found.key:
            continue
        if is_mark(found.key):
            marks.append(DatedMark(read_mark(where.objects, found), found.mtime_ms))
        elif (parsed := parse_object(where.place, found.key)) is not None:
            uploads.setdefault(parsed[0], {})[parsed[1]] = found
    return uploads, marks


def hide(where: PartitionTier, mark: Mark) -> Mark:
    """Hide the segments that shall replace others, before their first object is uploaded.

    Putting the same mark again renews its time: an upload that is given up is swept after the grace period.
    """
    mark = replace(mark, state="pending")
    where.objects.put_bytes(mark.name, mark.to_bytes())
    return mark


def retire(where: PartitionTier, mark: Mark, *, finished: Iterable[SegmentRecord] = (), now_ms: int) -> Mark:
    """Retire the segments of a mark, which is the one that `hide` gave where they are replaced.

    A second call changes nothing.

    Args:
        finished: The segments that replace them: all their objects are there, and only their COPY_SEGMENT_STARTED.
        now_ms: The time of the records.
    """
    known = where.records()
    values = [
        record.finished_value(now_ms)
        for record in finished
        if (told := known.get(record.segment_id)) is not None and told.state == COPY_STARTED
    ]
    values += [
        told.update_value(DELETE_STARTED, now_ms)
        for name in mark.segments
        if (told := known.get(name.segment_id)) is not None and told.state in (COPY_STARTED, COPY_FINISHED)
    ]
    where.write(values, now_ms)
    mark = replace(mark, state="retired")
    stored = where.objects.stat(mark.name)
    if stored is None or where.objects.read(mark.name) != mark.to_bytes():
        where.objects.put_bytes(mark.name, mark.to_bytes())
    return mark


def sweep(
    where: PartitionTier,
    *,
    grace_ms: int = GRACE_MS,
    pending_ms: int | None = None,
    now_ms: int,
    dry_run: bool = False,
) -> Sweep:
    """Delete the objects of what was retired longer ago than the grace period; bring to an end what a run left undone.

    Args:
        pending_ms: For how long a replacement has to be under way before it is given up, the grace period unless told;
            only who replaces segments knows that nobody else does.
        now_ms: The clock for what the metadata tells; marks are as old as the store's own clock says.
        dry_run: Change nothing.
    """
    limits: dict[State, int] = {"retired": grace_ms, "pending": grace_ms if pending_ms is None else pending_ms}
    known = where.records()
    uploads, marks = list_partition(where)
    store_now = _store_now(where, dry_run=dry_run) if marks else now_ms
    if not dry_run:
        marks = [_settled(where, dated, known) for dated in marks]
        over = [d.mark for d in marks if d.mark.state == "pending" and store_now - d.since_ms >= limits["pending"]]
        _give_up(where, over, known, now_ms)
    left_ms = _times_left(known, marks, limits, now_ms, store_now)
    due = sorted(name for name, left in left_ms.items() if left <= 0)
    waiting = sorted(name for name, left in left_ms.items() if left > 0 and name in uploads)
    if not dry_run:
        marked = {name for dated in marks for name in dated.mark.hidden}
        if unmarked := tuple(name for name in waiting if name not in marked):  # a run died before it had put one
            mark = Mark("deletion", unmarked)
            where.objects.put_bytes(mark.name, mark.to_bytes())
        if any(name in uploads for name in due):  # a run may have died between a record and its fsync
            where.topic.write(where.place.topic_id, where.place.partition, (), now_ms=now_ms)
        for name in due:
            _delete_objects(where, uploads.get(name, {}))
        told = [known[name.segment_id] for name in due if name.segment_id in known]
        where.write([r.update_value(DELETE_FINISHED, now_ms) for r in told if r.state == DELETE_STARTED], now_ms)
        left = uploads.keys() - set(due)
        for dated in marks:
            is_over = dated.mark.state == "retired" or dated.mark in over
            if is_over and not any(_is_kept(name, left, known) for name in dated.mark.hidden):
                where.objects.delete(dated.mark.name)
    gone = [name for name in due if name in uploads]
    return Sweep(tuple(gone), _bytes_of(uploads, gone), tuple(waiting), _bytes_of(uploads, waiting))


def _delete_objects(where: PartitionTier, parts: Mapping[Part, StoredObject]) -> None:
    """Delete a segment's objects, first the one that makes it count: what is left is seen to be incomplete."""
    first = COMMIT_PARTS[where.place.layout]
    for part in sorted(parts, key=lambda part: part != first):
        where.objects.delete(parts[part].key)


def _store_now(where: PartitionTier, *, dry_run: bool) -> int:
    return int(time.time() * 1000) if dry_run else where.objects.now_ms()  # to ask the store is to write


def _times_left(
    known: Records, marks: Iterable[DatedMark], limits: Mapping[State, int], now_ms: int, store_now: int
) -> dict[RemoteName, int]:
    """The retired segments, and how long they stay: by the metadata where it tells, else by their marks."""
    ends = {
        record.name: limits["retired"] - (now_ms - record.event_timestamp_ms)
        for record in known.values()
        if record.state == DELETE_STARTED
    }
    for dated in marks:
        for name in dated.mark.hidden:
            told = known.get(name.segment_id)
            if told is None or told.state == DELETE_FINISHED:
                ends[name] = limits[dated.mark.state] - (store_now - dated.since_ms)
    return ends


def _settled(where: PartitionTier, dated: DatedMark, known: Records) -> DatedMark:
    """The mark as it has to be: where the metadata has taken the new segments, a run died before it said so here."""
    mark = dated.mark
    told = [known.get(name.segment_id) for name in mark.replaced_by]
    if mark.state == "retired" or not told or any(r is None or r.state != COPY_FINISHED for r in told):
        return dated
    mark = replace(mark, state="retired")
    where.objects.put_bytes(mark.name, mark.to_bytes())
    stored = where.objects.stat(mark.name)
    return DatedMark(mark, dated.since_ms if stored is None else stored.mtime_ms)


def _give_up(where: PartitionTier, marks: Iterable[Mark], known: Records, now_ms: int) -> None:
    """Tell the cluster that copies which were announced will not come; their objects go with the next sweeps."""
    pending = [name.segment_id for mark in marks for name in mark.replaced_by]
    told = [known[segment_id] for segment_id in pending if segment_id in known]
    where.write([r.update_value(DELETE_STARTED, now_ms) for r in told if r.state == COPY_STARTED], now_ms)


def _is_kept(name: RemoteName, left: set[RemoteName], known: Records) -> bool:
    """Whether a mark has to go on hiding a segment: objects are there, or a copy was announced."""
    told = known.get(name.segment_id)
    return name in left or (told is not None and told.state == COPY_STARTED)


def _bytes_of(uploads: Uploads, names: Iterable[RemoteName]) -> int:
    return sum(found.size for name in names for found in uploads[name].values())
