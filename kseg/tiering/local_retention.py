"""Local retention of a tiered partition: what is local goes by its own limits, each segment once its copy is proved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kseg.errors import KsegError
from kseg.retention.plan import RetentionPlan
from kseg.runner import run_tasks
from kseg.settings.source import SettingsSource
from kseg.settings.values import Refusal
from kseg.tiering.local_files import resolve_local_limits
from kseg.tiering.offload_partition import PartitionRun
from kseg.tiering.upload import UploadTask, verify_copy


def delete_local(
    run: PartitionRun,
    source: SettingsSource,
    *,
    copied_until: int | None = None,
    start_offset: int | None = None,
    dry_run: bool,
    spark: Any = None,
    workers: int | None = None,
) -> tuple[RetentionPlan | None, list[Refusal]]:
    """Delete the local segments that may go; return what went, and why others have to stay.

    Args:
        copied_until: The offset behind what will be in the tier, for a dry run.
        start_offset: What the log start will be, for a dry run.
    """
    limits = resolve_local_limits(run.log, source)
    if isinstance(limits, Refusal):
        return None, [Refusal(limits.subject, f"local files stay: {limits.reason}")]
    refusals: list[Refusal] = []
    plan = run.plan_deletion(limits, copied_until=copied_until, start_offset=start_offset)
    if not dry_run:
        found = _first_unproved(run, run.unproved(plan), spark, workers)
        if found is not None:
            bound, refusal = found
            refusals.append(refusal)
            plan = run.plan_deletion(limits, copied_until=bound)
    run.delete(plan)
    return plan, refusals


def _first_unproved(
    run: PartitionRun, unproved: Sequence[tuple[int, UploadTask | None]], spark: Any, workers: int | None
) -> tuple[int, Refusal] | None:
    """The first segment whose copy cannot be proved, and why; None where all can."""
    tasks = [task for _, task in unproved if task is not None]
    results = iter(run_tasks(verify_copy, tasks, spark=spark, workers=workers))
    for base, task in unproved:
        outcome = None if task is None else next(results)
        if outcome is None or isinstance(outcome, KsegError):
            reason = "the tier has no copy of it" if outcome is None else f"its copy is not proved: {outcome}"
            name = f"{run.log.topic}-{run.log.partition}, segment {base}"
            return base, Refusal(name, f"it stays: {reason}", is_damage=outcome is not None)
    return None
