"""One partition of an offload: which segments are copied, under which ids, and what of it is done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kseg.errors import KsegError, LogError
from kseg.log.metadata import read_meta_properties
from kseg.log.names import FileKind
from kseg.log.partition import Log
from kseg.log.segment import Segment
from kseg.log.writer_place import random_topic_id
from kseg.log.writer_session import WriteSession
from kseg.retention.plan import Limits, RetentionPlan, Rule
from kseg.tiering.journal import Journal, Upload
from kseg.tiering.layout import ChunkedPart, RemoteName
from kseg.tiering.listing import list_partition, log_size
from kseg.tiering.local_files import apply_local_deletion, plan_local_deletion
from kseg.tiering.metadata_records import COPY_FINISHED, COPY_STARTED, SegmentRecord
from kseg.tiering.metadata_writer import MetadataTopic, NoTopic
from kseg.tiering.objects import TierObjects
from kseg.tiering.offload_report import OffloadedSegment, PartitionOffload
from kseg.tiering.plan import epochs_within, plan_offload
from kseg.tiering.upload import TierOptions, Uploaded, UploadTask


class PartitionRun:
    """The work on one partition; `pending` are the segments that are still to be copied, oldest first."""

    def __init__(
        self,
        log: Log,
        session: WriteSession | None,
        topic: MetadataTopic,
        options: TierOptions,
        *,
        now_ms: int,
        verify: bool,
    ) -> None:
        """Look what is to be done; nothing is changed."""
        if log.topic_id is None:
            raise LogError("no partition.metadata tells the topic's id", path=log.directory)
        self.log = log
        self.topic_id: str = log.topic_id
        self.session = session
        self.error: str | None = None
        self.refusal: str | None = None
        """Why not all of it can be copied."""
        self._topic = topic
        self._options = options
        self._now_ms = now_ms
        self._verify = verify
        self._journal = Journal(Path(log.directory), options.remote, options.layout)
        meta = read_meta_properties(log.store, str(Path(log.directory).parent))
        self._broker_id = -1 if meta is None or meta.node_id is None else meta.node_id
        self._done: list[OffloadedSegment] = []
        self._verified: set[int] = set()
        self._deleted: tuple[int, ...] = ()
        self._freed = 0
        self._epochs = log.leader_epochs()
        self._copied = self._find_copied()
        self._started = {found.segment_id for found in self._known.values() if found.state == COPY_STARTED}
        self.pending = self._plan()

    def settle(self) -> None:
        """Take out of the journal what an earlier run has finished, but could not write down."""
        copied = self._copied.items()
        self._journal.end([base for base, known in copied if self._journal.find(*_bounds(known)) == known.segment_id])

    def _find_copied(self) -> dict[int, SegmentRecord]:
        """Segments that are in the tier, by base: what the metadata topic says, or without one the objects."""
        self._known = self._topic.segments(self.topic_id, self.log.partition)
        if not isinstance(self._topic, NoTopic):
            return {found.start_offset: found for found in self._known.values() if found.state == COPY_FINISHED}
        name = RemoteName(self.log.topic, self.log.partition, self.topic_id, 0, random_topic_id())
        tier = self._options.open()
        local = {segment.base_offset: segment for segment in self.log.segments}
        following = {segment.base_offset: segment.ceiling for segment in self.log.segments}
        copied = {}
        for group in list_partition(tier, name, self._options.layout):
            base = group.name.start_offset
            ceiling = following.get(base)
            if group.missing or ceiling is None or log_size(tier, group) != local[base].size:
                continue
            copied[base] = self._describe(local[base], ceiling, group.name.segment_id)
        return copied

    @property
    def copied_until(self) -> int:
        """The offset behind the last one that is in the tier."""
        return max((found.end_offset + 1 for found in self._copied.values()), default=0)

    def _plan(self) -> list[SegmentRecord]:
        segments = {segment.base_offset: segment for segment in self.log.segments}
        planned = plan_offload(
            self.log.segments,
            start_offset=self.log.start_offset,
            stable_offset=self.log.last_stable_offset,
            copied_until=0 if isinstance(self._topic, NoTopic) else self.copied_until,
        )
        pending = []
        for base, following in planned:
            if base in self._copied and isinstance(self._topic, NoTopic):
                continue
            if not epochs_within(self._epochs, base, following):  # RemoteLogSegmentMetadata takes none without
                self.refusal = (
                    f"no leader epoch is known of the segment at {base}, as where batches have magic 0 or 1; a broker "
                    "does not copy such a segment to a tier, nor those behind it, until the log start lies behind it"
                )
                break
            segment_id = self._journal.find(base, following) or random_topic_id()
            pending.append(self._describe(segments[base], following, segment_id))
        return pending

    def _describe(self, segment: Segment, next_base: int, segment_id: str) -> SegmentRecord:
        epochs = epochs_within(self._epochs, segment.base_offset, next_base)
        txn_index = segment.files.get(FileKind.TXN_INDEX)
        return SegmentRecord(
            self.log.topic,
            self.topic_id,
            self.log.partition,
            segment_id,
            segment.base_offset,
            next_base - 1,
            segment.largest_timestamp,
            self._broker_id,
            self._now_ms,
            segment.size,
            epochs,
            not segment.needs_rebuild and (txn_index is None or not txn_index.size),
        )

    def begin(self, count: int, nonce: tuple[str, bytes] | None) -> list[UploadTask]:
        """Announce the next segments, durably, and give their tasks."""
        wave = self.pending[:count]
        if not wave:
            return []
        tasks = [self.task(record, nonce) for record in wave]  # before the journal has all of them
        self._journal.begin(Upload(r.start_offset, r.end_offset + 1, r.segment_id) for r in wave)
        values = [record.started_value() for record in wave if record.segment_id not in self._started]
        if values:
            self._topic.write(self.topic_id, self.log.partition, values, now_ms=self._now_ms)
        self._started |= {record.segment_id for record in wave}
        return tasks

    def task(self, record: SegmentRecord, nonce: tuple[str, bytes] | None = None) -> UploadTask:
        """The task of a segment."""
        next_base = record.end_offset + 1
        resumed = self._journal.find(record.start_offset, next_base) == record.segment_id
        return UploadTask(self.log.directory, next_base, record, self._options, self._verify, nonce, resumed)

    def finish(self, tier: TierObjects, results: Sequence[Uploaded | KsegError]) -> None:
        """Publish what was uploaded, in the order of the offsets, up to the first that failed."""
        done: list[Uploaded] = []
        for result in results:
            try:
                done.append(self._published(tier, result))
            except KsegError as error:
                self.error = str(error)
                break
        if done:
            values = [found.record.finished_value(self._now_ms) for found in done]
            self._topic.write(self.topic_id, self.log.partition, values, now_ms=self._now_ms)
            self._journal.end(found.record.start_offset for found in done)
        for found in done:
            self._copied[found.record.start_offset] = found.record
            self._done.append(_described(found))
            if found.verified:
                self._verified.add(found.record.start_offset)
        self.pending = [] if self.error is not None else self.pending[len(results) :]

    def _published(self, tier: TierObjects, found: Uploaded | KsegError) -> Uploaded:
        """What was uploaded, with its manifest, where it has one, in place."""
        if isinstance(found, KsegError):
            raise found
        if found.manifest is not None:
            key = found.record.name.key(ChunkedPart.MANIFEST)
            tier.put_bytes(key, found.manifest)
            if self._verify and tier.read(key) != found.manifest:
                raise LogError("the manifest that was read back is another", path=tier.path(key))
        return found

    def plan_deletion(
        self, limits: Limits, *, copied_until: int | None = None, start_offset: int | None = None
    ) -> RetentionPlan:
        """Which local segments may go once their copies are proved."""
        until = self.copied_until if copied_until is None else copied_until
        return plan_local_deletion(self.log, limits, copied_until=until, now_ms=self._now_ms, start_offset=start_offset)

    def unproved(self, plan: RetentionPlan) -> list[tuple[int, UploadTask | None]]:
        """The segments of a plan whose copies were not read back yet, with the task that does it; None: no copy."""
        found: list[tuple[int, UploadTask | None]] = []
        for base, rule in plan.doomed:
            if base in self._verified or rule is Rule.START:  # nobody reads what is below the log start
                continue
            copy = self._copied.get(base)
            found.append((base, None if copy is None else self.task(copy)))
        return found

    def delete(self, plan: RetentionPlan) -> None:
        """Delete local segments."""
        if plan.doomed and self.session is not None:
            self._freed += apply_local_deletion(self.log, plan, self.session)
        self._deleted = tuple(base for base, _ in plan.doomed)

    def report(self, *, dry_run: bool) -> PartitionOffload:
        """What was done, or would be."""
        planned = [_described(Uploaded(record, 0, None, False)) for record in self.pending] if dry_run else []
        return PartitionOffload(
            self.log.topic,
            self.log.partition,
            self.log.directory,
            tuple(self._done + planned),
            self._deleted,
            self._freed,
            self.log.segments[0].base_offset if self.log.segments else self.log.start_offset,
            self.error,
        )


def _bounds(record: SegmentRecord) -> tuple[int, int]:
    return record.start_offset, record.end_offset + 1


def _described(found: Uploaded) -> OffloadedSegment:
    record = found.record
    return OffloadedSegment(
        record.start_offset, record.end_offset + 1, record.size, found.stored_bytes, record.segment_id, found.verified
    )
