"""Rounds that have nothing to do."""

from __future__ import annotations

import os
from dataclasses import dataclass

from kseg.compaction.policy import CleanableRange
from kseg.compaction.report import PartitionCompaction
from kseg.log.checkpoints import CheckpointKind, update_checkpoint
from kseg.log.partition import Log
from kseg.log.writer_session import WriteSession
from kseg.types import TopicPartition


@dataclass(frozen=True, slots=True)
class SkippedRound:
    """Why nothing is cleaned.

    Attributes:
        by_checkpoint: Whether the range begins where the checkpoint says, and not where a caller does.
    """

    reason: str
    range: CleanableRange
    by_checkpoint: bool

    def finish(self, log: Log, session: WriteSession | None, *, dry_run: bool) -> PartitionCompaction:
        """Tell of it, and put a checkpoint right that lies outside of the log.

        Kafka does that before it looks at what there is to clean (LogCleanerManager.cleanableOffsets).

        Args:
            session: The right to change the log; None where it stays as it is.
        """
        first_dirty = self.range.first_dirty
        is_wrong = self.range.checkpoint_was_wrong and self.by_checkpoint
        reason = self.reason
        if is_wrong and session is not None:
            session.begin_changes()
            parent = os.path.dirname(log.directory)  # noqa: PTH120
            tp = TopicPartition(log.topic, log.partition)
            update_checkpoint(parent, CheckpointKind.CLEANER, {tp: first_dirty}, replace_malformed=True)
        if is_wrong and (dry_run or session is not None):
            verb = "would be" if dry_run else "was"
            reason += f"; the checkpoint lay outside of the log and {verb} set to its start, {first_dirty}"
        return PartitionCompaction(
            log.topic,
            log.partition,
            log.directory,
            skipped=reason,
            is_usual=True,
            dry_run=dry_run,
            first_dirty=first_dirty,
            first_uncleanable=self.range.first_uncleanable,
            checkpoint=first_dirty if self.by_checkpoint else -1,
            checkpoint_reset=is_wrong,
            dirty_ratio=self.range.dirty_ratio,
        )
