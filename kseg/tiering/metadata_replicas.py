"""Replicas of `__remote_log_metadata` that a run which died has left unequal.

Records go to one replica after the other, so a crash between two leaves the later ones short: prefixes of the others.
What they lack is appended if all of it is this directory's own: about uploads that stand in a journal, under ids that
were drawn at random and that nobody else knows. A broker would else truncate the longer ones, or not, depending on who
becomes leader.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import pyarrow as pa

from kseg.errors import KsegError
from kseg.format.batch import BatchHeader
from kseg.internal.remote_log_metadata import decode
from kseg.log.partition import Log, open_log
from kseg.log.writer import append_to
from kseg.schema import select_columns
from kseg.settings.replicas import epochs_below
from kseg.types import Codec

_COLUMNS = ["offset", "key", "value", "timestamp"]


def complete_replicas(replicas: Sequence[Log], own: Container[str], *, now_ms: int) -> int:
    """Append to short replicas what they lack of the longest, if it is a run's own; return how many were short.

    Where they differ in any other way nothing is done: who checks them next says so.

    Args:
        replicas: Of one partition of the topic.
        own: Ids of uploads that stand in journals.
    """
    logs = [open_log(log.directory) for log in replicas]
    longest = max(logs, key=lambda log: log.end_offset)
    short = [log for log in logs if log.end_offset < longest.end_offset]
    plans = [(log, plan_completion(log, longest, own)) for log in short]
    if any(tail is None for _, tail in plans):
        return 0
    for log, tail in plans:
        with append_to(log.directory, clock=lambda: now_ms / 1000) as writer:
            for header, rows in tail or ():
                writer.append(rows, leader_epoch=header.leader_epoch)
    return len(plans)


Tail = list[tuple[BatchHeader, pa.Table]]


def plan_completion(log: Log, longest: Log, own: Container[str]) -> Tail | None:
    """The batches that a replica lacks; None where it is no prefix of the other, or they are not a run's own."""
    if epochs_below(log, log.end_offset) != epochs_below(longest, log.end_offset):
        return None
    start = max(log.start_offset, longest.start_offset)
    if _read(log, start, log.end_offset) != _read(longest, start, log.end_offset):
        return None
    tail: Tail = []
    for header in longest.batches(log.end_offset, longest.end_offset):
        if header.base_offset is None or header.base_offset < log.end_offset or not _is_plain(header):
            return None
        rows = _read(longest, header.base_offset, header.last_offset + 1)
        if not all(_is_own(row, own) for row in rows.to_pylist()):
            return None
        tail.append((header, rows.select(["offset", "value", "timestamp"])))
    return tail


def _is_plain(header: BatchHeader) -> bool:
    return header.codec is Codec.NONE and header.producer_id < 0 and not header.is_control


def _read(log: Log, start: int, end: int) -> pa.Table:
    batches = log.read(start, end, columns=_COLUMNS, read_past_high_watermark=True)
    return pa.Table.from_batches(batches, schema=select_columns(_COLUMNS))


def _is_own(row: dict[str, object], own: Container[str]) -> bool:
    if row["key"] is not None or not isinstance(row["value"], bytes):
        return False
    try:
        fields = decode(None, row["value"])["value"]
        return fields["remoteLogSegmentId"]["id"] in own
    except (KsegError, KeyError, TypeError):
        return False
