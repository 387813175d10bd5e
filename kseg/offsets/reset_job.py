"""Reset: write consumer groups' offsets to a stopped cluster's `__consumer_offsets`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from kseg.errors import OptionError
from kseg.internal import consumer_offsets
from kseg.internal.decode import coordinator_partition, encode_record
from kseg.log.group_offsets import committed_offsets
from kseg.log.lock import DirLock
from kseg.log.metadata_image import MetadataImage
from kseg.offsets.entries import OffsetEntry, read_entries
from kseg.offsets.places import GroupLogs, PathLike, find_group_logs
from kseg.offsets.report import ResetOffset, ResetReport
from kseg.offsets.reset_plan import EARLIEST, LATEST, Topics, find_offset, plan_offset
from kseg.settings.replicas import StoppedReplicas
from kseg.settings.values import Refusal
from kseg.storage import LocalStore
from kseg.types import TopicPartition
from kseg.views.group_state import SHARE, Group
from kseg.views.groups import load_groups
from kseg.views.places import one_each

_WITH_TOPIC_ID: Final = 4
_WITH_EPOCH: Final = 3  # brokers since 2.1 read it


def reset(
    path: PathLike | Sequence[PathLike],
    offsets: PathLike | Iterable[OffsetEntry] | None = None,
    *,
    group: str | None = None,
    topics: Iterable[str] | None = None,
    to: str | int | None = None,
    to_time_ms: int | None = None,
    metadata: PathLike | None = None,
    offsets_partitions: int | None = None,
    active_groups: bool = False,
    any_topic_id: bool = False,
    now_ms: int | None = None,
    dry_run: bool = False,
) -> ResetReport:
    """Let consumer groups stand elsewhere, or in another cluster: commit offsets for them while no broker runs.

    What is refused is in the report with its reason, and the others are written. An offset outside its partition is
    moved to the partition's start or end.

    Args:
        path: Log directories of all brokers that hold `__consumer_offsets`, or trees of them.
        offsets: What to write: a file that `export` wrote, or entries. None: `to` or `to_time_ms`, for `group` and
            `topics`.
        group: Of `offsets`, this group only.
        topics: Of `offsets`, these topics only.
        to: "earliest", "latest" or an offset.
        to_time_ms: The first record at or after this time; the end where there is none.
        metadata: A log directory that holds `__cluster_metadata-0`; by default `path`, where it does.
        offsets_partitions: How many partitions `__consumer_offsets` has, where no metadata log tells.
        active_groups: Also groups that had members when the cluster stopped: such members go on where they are.
        any_topic_id: Also offsets that were committed for another topic of that name.
        now_ms: The time of the commits: from then on brokers count offsets.retention.minutes.
        dry_run: Write nothing, and report what would be written.

    Raises:
        LockedError: A broker or another job holds a directory.
        OptionError: An argument is wrong, or there is no `__consumer_offsets`.
    """
    began = time.monotonic()
    _check_target(offsets, group, topics, to, to_time_ms)
    found = find_group_logs(path)
    if not all(isinstance(log.store, LocalStore) for log in found.coordinator):
        raise OptionError("offsets are written to local directories")
    source = found.source(metadata)
    replicas = StoppedReplicas(consumer_offsets.TOPIC, found.coordinator, source, offsets_partitions)
    if replicas.partitions is None:
        raise OptionError(
            f"it is not known how many partitions {consumer_offsets.TOPIC} has",
            hint="give the metadata log, or their number",
        )
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    job = _Job(found, replicas, source.image, active_groups, any_topic_id, now_ms, dry_run)
    with ExitStack() as stack:
        for parent in () if dry_run else sorted({str(Path(log.directory).parent) for log in found.coordinator}):
            stack.enter_context(DirLock(parent))
        for log in () if dry_run else found.logs:
            log.refresh()  # as it is now that nobody else can change it
        if offsets is None:
            entries = job.entries_for(group or "", sorted(topics or ()), to, to_time_ms)
        else:
            wanted = None if topics is None else frozenset(topics)
            given = read_entries(offsets) if isinstance(offsets, str | os.PathLike) else [e.check() for e in offsets]
            entries = [
                entry for entry in given if group in (None, entry.group) and (wanted is None or entry.topic in wanted)
            ]
        job.plan(entries)
        if not dry_run:
            job.apply()
    return ResetReport(dry_run, tuple(job.done), tuple(job.refusals), time.monotonic() - began)


def _check_target(
    offsets: object, group: str | None, topics: object, to: str | int | None, to_time_ms: int | None
) -> None:
    targets = sum(value is not None for value in (offsets, to, to_time_ms))
    if targets != 1:
        raise OptionError("say where the groups shall stand: a file of offsets, or one target")
    if offsets is None and (not group or not topics):
        raise OptionError("a target is for one group and for topics that are named")
    if isinstance(to, str) and to not in (EARLIEST, LATEST):
        raise OptionError(f"unknown target {to!r}; it is earliest, latest or an offset")


@dataclass(slots=True)
class _Job:
    """One call of `reset`."""

    found: GroupLogs
    replicas: StoppedReplicas
    image: MetadataImage | None
    active_groups: bool
    any_topic_id: bool
    now_ms: int
    dry_run: bool
    done: list[ResetOffset] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    _topics: Topics = field(init=False)
    _version: int = field(init=False, default=_WITH_EPOCH)

    def __post_init__(self) -> None:
        logs = {TopicPartition(log.topic, log.partition): log for log in one_each(self.found.logs)}
        self._topics = Topics(logs, self.image)

    def entries_for(
        self, group: str, topics: Iterable[str], to: str | int | None, time_ms: int | None
    ) -> list[OffsetEntry]:
        """The wishes that a target stands for."""
        entries = []
        for topic in topics:
            partitions = self._topics.partitions(topic)
            if not partitions:
                raise OptionError(f"no topic {topic} here", hint="'kseg ls' lists what there is")
            for partition in partitions:
                log = self._topics.logs.get(TopicPartition(topic, partition))
                if isinstance(to, int):
                    entries.append(OffsetEntry(group, topic, partition, to).check())
                elif log is not None:
                    offset = find_offset(log, self._topics, to=to, to_time_ms=time_ms)
                    entries.append(OffsetEntry(group, topic, partition, offset).check())
                else:
                    name = f"group {group}, {topic}-{partition}"
                    self.refusals.append(Refusal(name, "its log is in no directory that was given"))
        return entries

    def plan(self, entries: Iterable[OffsetEntry]) -> None:
        """Decide for each wish; whole groups are refused first."""
        assert self.replicas.partitions is not None
        commits = committed_offsets(self.found.logs)
        if any(commit.topic_id is not None for commit in commits):  # the brokers that wrote this read it too
            self._version = _WITH_TOPIC_ID
        before = {(commit.group, commit.topic, commit.partition): commit.offset for commit in commits}
        groups = {found.group: found for found in load_groups(self.found.logs).build()}
        by_group: dict[str, list[OffsetEntry]] = {}
        for entry in entries:
            by_group.setdefault(entry.group, []).append(entry)
        for group, wishes in sorted(by_group.items()):
            number = coordinator_partition(group, self.replicas.partitions)
            reason = self._refuse_group(groups.get(group)) or self.replicas.refusal(number)
            if reason is not None:
                self.refusals.append(Refusal(f"group {group}", reason))
                continue
            for wish in sorted(wishes, key=lambda entry: entry.place):
                planned = plan_offset(wish, self._topics, any_topic_id=self.any_topic_id)
                if isinstance(planned, Refusal):
                    self.refusals.append(planned)
                    continue
                entry, note = planned
                self.done.append(ResetOffset(entry, before.get(entry.place), wish.offset, number, note))

    def _refuse_group(self, group: Group | None) -> str | None:
        if group is not None and group.type == SHARE:
            return "it is a share group, whose place is not kept by commits"
        if group is not None and group.members and not self.active_groups:
            count = len(group.members)
            return (
                f"it had {count} member{'' if count == 1 else 's'} when the cluster stopped, and members that still "
                "run go on where they are: stop them, and ask for active groups"
            )
        return None

    def apply(self) -> None:
        """Append the records, a partition of `__consumer_offsets` at a time."""
        self.replicas.complete(now_ms=self.now_ms)
        by_partition: dict[int, list[OffsetEntry]] = {}
        for planned in self.done:
            by_partition.setdefault(planned.coordinator, []).append(planned.entry)
        for number, entries in sorted(by_partition.items()):
            pairs = [self._record(entry) for entry in entries]
            rows = pa.table(
                {
                    "key": pa.array([key for key, _ in pairs], pa.binary()),
                    "value": pa.array([value for _, value in pairs], pa.binary()),
                    "timestamp": pa.array([self.now_ms] * len(pairs), pa.int64()),
                }
            )
            self.replicas.append(number, rows, now_ms=self.now_ms)

    def _record(self, entry: OffsetEntry) -> tuple[bytes | None, bytes | None]:
        value = {
            "offset": entry.offset,
            "leaderEpoch": -1 if entry.leader_epoch is None else entry.leader_epoch,
            "metadata": entry.metadata,
            "commitTimestamp": self.now_ms,
        }
        if self._version >= _WITH_TOPIC_ID and entry.topic_id is not None:
            value["topicId"] = entry.topic_id
        return encode_record(
            consumer_offsets.TOPIC,
            {
                "type": "OffsetCommit",
                "typeId": consumer_offsets.OFFSET_COMMIT,
                "version": self._version,
                "key": {"group": entry.group, "topic": entry.topic, "partition": entry.partition},
                "value": value,
            },
        )
