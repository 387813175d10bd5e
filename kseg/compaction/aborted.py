"""What the transaction index of a segment that is written anew has to list."""

from __future__ import annotations

from collections.abc import Sequence

from kseg.index.txn import AbortedTxn
from kseg.log.partition import Log
from kseg.log.segment import Segment


def listed_aborts(log: Log, segments: Sequence[Segment]) -> dict[int, tuple[AbortedTxn, ...]]:
    """The aborted transactions whose marker is in each of some segments of a log, by base offset.

    A segment's own index tells them, but not where a broker would rebuild that index when it starts. A segment that is
    written anew has sound indexes, so nobody would rebuild it any more: its transactions come from the batches.
    """
    rebuilt = {segment.base_offset for segment in segments if segment.needs_rebuild}
    listed = {s.base_offset: tuple(s.txn_index) for s in segments if s.base_offset not in rebuilt}
    if rebuilt:
        bases = [segment.base_offset for segment in log.segments]
        ends = dict(zip(bases, [*bases[1:], log.end_offset], strict=True))
        found = log.aborted_transactions(min(rebuilt), ends[max(rebuilt)])
        by_marker = {txn.last_offset: txn for txn in found}  # a replay from a snapshot may tell one a second time
        listed |= {b: tuple(by_marker[last] for last in by_marker if b <= last < ends[b]) for b in rebuilt}
    return listed
