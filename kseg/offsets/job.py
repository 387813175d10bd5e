"""Read and export what consumer groups have committed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from kseg import durable
from kseg.offsets.entries import OffsetEntry, format_entries
from kseg.offsets.places import PathLike, find_group_logs
from kseg.offsets.report import GroupOffset, OffsetsReport
from kseg.views import offsets as view
from kseg.views.groups import load_groups


def read(
    path: PathLike | Sequence[PathLike], *, group: str | None = None, topics: Iterable[str] | None = None
) -> OffsetsReport:
    """The committed offsets of consumer groups, and how far they are behind; a live broker does not mind.

    Args:
        path: Log directories that hold `__consumer_offsets`, or trees of them.
        group: This one only.
        topics: These only.

    Raises:
        OptionError: There is no `__consumer_offsets`.
    """
    logs = find_group_logs(path)
    wanted = None if topics is None else frozenset(topics)
    states = {found.group: found.state for found in load_groups(logs.logs).build()}
    rows = (row for unit in view.plan(logs.logs) for batch in unit.read() for row in _rows(batch))
    return OffsetsReport(
        tuple(
            _offset(row, states.get(row["group"], "Empty"))
            for row in rows
            if group in (None, row["group"]) and (wanted is None or row["topic"] in wanted)
        )
    )


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of the view, times as microseconds."""
    column = batch.schema.get_field_index("commitTimestamp")
    rows: list[dict[str, Any]] = batch.set_column(
        column, "commitTimestamp", batch.column(column).cast(pa.int64())
    ).to_pylist()
    return rows


def _offset(row: dict[str, Any], state: str) -> GroupOffset:
    entry = OffsetEntry(
        row["group"],
        row["topic"],
        row["partition"],
        row["offset"],
        row["leaderEpoch"],
        row["metadata"],
        None if row["commitTimestamp"] is None else row["commitTimestamp"] // 1000,
        row["topicId"],
    )
    return GroupOffset(entry, row["endOffset"], row["lag"], state)


def export(
    path: PathLike | Sequence[PathLike],
    target: PathLike,
    *,
    group: str | None = None,
    topics: Iterable[str] | None = None,
) -> OffsetsReport:
    """Write the committed offsets to a file, JSON of a line for each, which `reset` takes; it appears as a whole."""
    report = read(path, group=group, topics=topics)
    durable.publish(os.fspath(target), format_entries(found.entry for found in report.offsets))
    return report
