"""Slow, obvious twins of the index and producer kernels, and the batch table of a log file."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kseg.index.producer import ProducerEntry
from kseg.index.txn import AbortedTxn
from kseg.native import table as columns
from kseg.native.headers import WALKED, fill_headers


def table_of(path):
    """The batch table of a whole .log file, and how many rows it has."""
    data = np.fromfile(path, np.uint8)
    table = columns.new_table(len(data) // 26 + 1)
    rows, end, status = fill_headers(data, 0, len(data), 0, table, 0)
    assert (end, status) == (len(data), WALKED), path
    return table, rows


def make_table(batches):
    """A batch table of dicts; what is not given is -1, or 0 for attributes; sizes default to 100."""
    table = columns.new_table(len(batches))
    table[:] = -1
    table[columns.ATTRIBUTES] = 0
    table[columns.MAGIC] = 2
    table[columns.SIZE] = 100
    for row, batch in enumerate(batches):
        for name, value in batch.items():
            table[getattr(columns, name.upper()), row] = value
    return table


def index_twin(batches, base_offset, interval):
    """Kafka's append rule over (last offset, max timestamp, size): the two lists of entries of a sealed segment."""
    offset_entries, time_entries = [], []
    top, top_offset = -1, base_offset
    position = since = 0
    for last_offset, max_timestamp, size in batches:
        if max_timestamp > top:
            top, top_offset = max_timestamp, last_offset
        if since > interval:
            offset_entries.append((last_offset, position))
            if top > (time_entries[-1][0] if time_entries else -1):
                time_entries.append((top, top_offset))
            since = 0
        since += size
        position += size
    if top > (time_entries[-1][0] if time_entries else -1):
        time_entries.append((top, top_offset))
    return offset_entries, time_entries


@dataclass
class ProducerTwin:
    """Producer state with a dict and objects: one batch at a time."""

    producers: dict = field(default_factory=dict)
    aborted: list = field(default_factory=list)
    completed: list = field(default_factory=list)

    def add(self, table, row):
        pid = int(table[columns.PRODUCER_ID, row])
        attributes = int(table[columns.ATTRIBUTES, row])
        if pid < 0:
            return
        marker = int(table[columns.MARKER_TYPE, row])
        is_control = bool(attributes & columns.CONTROL_BIT)
        if is_control and marker not in (0, 1):
            self.producers.setdefault(pid, dict(ENTRY))
            return
        state = self.producers.setdefault(pid, dict(ENTRY))
        epoch = int(table[columns.PRODUCER_EPOCH, row])
        if epoch != state["epoch"]:
            state.update(epoch=epoch, last_sequence=-1, last_offset=-1, offset_delta=0)
        state["timestamp"] = int(table[columns.MARKER_TIMESTAMP if is_control else columns.MAX_TIMESTAMP, row])
        base, last = int(table[columns.BASE_OFFSET, row]), int(table[columns.LAST_OFFSET, row])
        if is_control:
            state["coordinator_epoch"] = int(table[columns.COORDINATOR_EPOCH, row])
            first = state["txn_first_offset"]
            if first >= 0:
                others = [s["txn_first_offset"] for p, s in self.producers.items() if p != pid]
                stable = min((o for o in others if o >= 0), default=base + 1)
                self.completed.append((first, base))
                if marker == 0:
                    self.aborted.append(AbortedTxn(pid, first, base, stable))
                state["txn_first_offset"] = -1
            return
        sequence = int(table[columns.BASE_SEQUENCE, row])
        after = sequence + last - base  # a sequence that is negative, from damage, does not wrap around
        state["last_sequence"] = -1 if sequence == -1 else after % 2**31 if sequence >= 0 else after
        state.update(last_offset=last, offset_delta=last - base)
        if attributes & columns.TRANSACTIONAL_BIT and state["txn_first_offset"] < 0:
            state["txn_first_offset"] = base

    def entries(self):
        return [ProducerEntry(pid, **state) for pid, state in sorted(self.producers.items())]

    def first_unstable(self, high_watermark):
        firsts = [s["txn_first_offset"] for s in self.producers.values() if s["txn_first_offset"] >= 0]
        return min(firsts + [first for first, last in self.completed if last >= high_watermark], default=None)


ENTRY = {
    "epoch": -1,
    "last_sequence": -1,
    "last_offset": -1,
    "offset_delta": 0,
    "timestamp": -1,
    "coordinator_epoch": -1,
    "txn_first_offset": -1,
}
