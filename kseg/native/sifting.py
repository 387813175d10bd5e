"""Pass 2 of a round in one go, for usual batches: what `cleaning.py` does in three steps, without columns in between.

Which records stay is told by a bit for each offset. A batch is usual if it has magic 2, timestamps of its records, no
delete horizon, and if its records are written as Kafka writes them and none that stays is a tombstone. The first one
that is not ends the call, and is the general steps' task.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.native._jit import inlined, kernel
from kseg.native.cleaning import (
    COPIED_BATCHES,
    DISCARD,
    DROPPED_BATCHES,
    EMPTIED_BATCHES,
    KEPT,
    NULL_KEYS,
    REBUILT_BATCHES,
    RETAIN_EMPTY,
    SUPERSEDED,
    begin_header,
    codecs_of,
    copy_batch,
    fill_fates,
    kept_attributes,
    room_for,
    write_empty,
)
from kseg.native.compress import pack_payload
from kseg.native.encode import write_header
from kseg.native.record_copies import LONG_TIME, copy_range, lead_of, write_retimed
from kseg.native.records import prefetch_records, read_record
from kseg.native.steps import FROM, FULL, GOT, ODD, READY, ROW, ROWS, STEP_CURSOR, end_of_group, next_rows, unpack_rows
from kseg.native.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CODEC_MASK,
    CONTROL_BIT,
    COUNT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAX_TIMESTAMP,
    SIZE,
)

# entries of the cursor of `sift_file`, behind those of `steps.py`
FILLED: Final = STEP_CURSOR  # bytes that are written
BATCHES: Final = STEP_CURSOR + 1  # rows of `written`
BYTES: Final = STEP_CURSOR + 2  # of the rows that were brought
CODECS: Final = STEP_CURSOR + 3  # that were met, a bit for each
CURSOR: Final = STEP_CURSOR + 4

# what `sift_file` returns beside what `steps.py` names
REST: Final = 4
PACKERS: Final = 5


@inlined
def _is_usual(table: Any, row: int, fate: int, first_offset: int) -> Any:
    return (
        table[MAGIC, row] == 2
        and table[ATTRIBUTES, row] & (CONTROL_BIT | DELETE_HORIZON_BIT | LOG_APPEND_TIME_BIT) == 0
        and fate & DISCARD == 0
        and table[COUNT, row] > 0
        and first_offset <= table[BASE_OFFSET, row]
        and -LONG_TIME < table[BASE_TIMESTAMP, row] < LONG_TIME
    )


@kernel
def sift_batches(
    data: Any, arena: Any, file_position: int, table: Any, first_row: int, end_row: int, starts: Any, ends: Any,
    fates: Any, bits: Any, first_offset: int, functions: Any, packing: Any, scratch: Any, out: Any, at: Any,
    written: Any, batches: Any, counts: Any, totals: Any,
) -> tuple[int, int, int]:  # fmt: skip
    """Write what is left of rows to `out[at:]`, and a row for each batch to `written`, from row `batches` on.

    Return (the row that is not usual, or `end_row`; rows of `written`, end of what was written). Records stay whose bit
    is set, counted from `first_offset`. Room, `functions` and `packing` are as in `cleaning.rewrite_batches`, but that
    headers are complete; `totals` is what `records.read_record` adds to.
    """
    shift = np.int64(data.shape[0])
    known = 8 * np.int64(bits.shape[0])
    for row in range(first_row, end_row):
        if not _is_usual(table, row, fates[row], first_offset):
            return row, batches, at
        in_arena = starts[row] >= shift
        source = arena if in_arena else data
        moved = shift if in_arena else np.int64(0)
        p = starts[row] - moved
        end = ends[row] - moved
        attributes = kept_attributes(table, row, 0xFF)
        codec = attributes & CODEC_MASK
        target = out if codec == 0 else scratch
        to: Any = at + HEADER_SIZE if codec == 0 else np.int64(0)
        first_place = table[BASE_OFFSET, row] - first_offset
        count = table[COUNT, row]
        kept = 0
        superseded = 0
        base_delta: Any = np.int64(0)  # of the first record that stays: the batch's time begins there
        top: Any = np.int64(-LONG_TIME)
        held: Any = np.int64(-1)  # where bytes begin that are copied as they are, with those of the records behind
        for _ in range(count):
            prefetch_records(source, p)
            start = p
            p, time_delta, delta, key_start, key_length, value_start, value_length, headers_start, headers = (
                read_record(source, p, end, totals)
            )
            place = first_place + delta
            if p < 0 or place < 0 or place >= known:
                return row, batches, at
            if key_length < 0 or not bits[place >> 3] >> (place & 7) & 1:
                superseded += key_length >= 0
                if held >= 0:
                    to = copy_range(target, to, source, held, start)
                    held = np.int64(-1)
                continue
            lead = lead_of(
                source, start, p, time_delta, delta, key_start, key_length, value_start, value_length, headers_start,
                headers,
            )  # fmt: skip
            if lead == 0 or value_length < 0:
                return row, batches, at
            if kept == 0:
                base_delta = time_delta
            kept += 1
            top = max(top, time_delta)
            if base_delta != 0:
                to = write_retimed(target, to, source, start + lead, p, time_delta - base_delta)
            elif held < 0:
                held = start
        if p != end:
            return row, batches, at
        if kept == count:
            at = copy_batch(data, file_position, table, row, out, at, written, batches)
            counts[COPIED_BATCHES] += 1
            batches += 1
        elif kept > 0:
            if held >= 0:
                to = copy_range(target, to, source, held, end)
            if codec != 0:
                to = pack_payload(codec, scratch, 0, to, out, at + HEADER_SIZE, functions[codec], packing)
                if to < 0:
                    return row, batches, at
            begin_header(table, row, written, batches, at, attributes)
            written[SIZE, batches] = to - at
            written[BASE_TIMESTAMP, batches] = table[BASE_TIMESTAMP, row] + base_delta
            written[MAX_TIMESTAMP, batches] = max(table[BASE_TIMESTAMP, row] + top, np.int64(-1))
            written[COUNT, batches] = kept
            write_header(out, written, batches)
            at = to
            counts[REBUILT_BATCHES] += 1
            batches += 1
        elif fates[row] & RETAIN_EMPTY:
            write_empty(table, row, written, batches, at)
            write_header(out, written, batches)
            at += HEADER_SIZE
            counts[EMPTIED_BATCHES] += 1
            batches += 1
        else:
            counts[DROPPED_BATCHES] += 1
        counts[KEPT] += kept
        counts[SUPERSEDED] += superseded
        counts[NULL_KEYS] += count - kept - superseded
    return end_row, batches, at


@inlined
def _has_room(
    table: Any, row: int, stop: int, skip: Any, starts: Any, ends: Any, scratch: Any, out: Any, written: Any,
    cursor: Any,
) -> bool:  # fmt: skip
    """Whether the outputs have room for what is left of rows, however they turn out."""
    if written.shape[1] - cursor[BATCHES] < stop - row:
        return False
    content, size = room_for(table, row, stop, skip, starts, ends)
    return bool(scratch.shape[0] >= content and out.shape[0] - cursor[FILLED] >= size)


@kernel
def sift_file(
    pread: int, descriptor: int, end: int, buffer: Any, table: Any, base_offset: int, arena: Any, limit: int,
    unpackers: Any, starts: Any, ends: Any, range_start: int, range_end: int, aborted_ids: Any, aborted_firsts: Any,
    aborted_markers: Any, empty_markers: Any, producers: Any, producer_ids: Any, rules: Any, fates: Any, skip: Any,
    bits: Any, first_offset: int, functions: Any, packing: Any, scratch: Any, out: Any, most: int, written: Any,
    counts: Any, cursor: Any, totals: Any,
) -> int:  # fmt: skip
    """Do the same for batches whose last offset is in `[range_start, range_end)`, straight from a file.

    Returns ODD where the next batch is for the walk; ENDED; FULL where `most` bytes are written or the rows from ROW to
    READY want more room; REST where the rows from ROW to READY are the general steps' task; PACKERS where there are
    codecs in CODECS of the cursor that were not there before, for which the caller gets `functions` ready. Fates are as
    in `cleaning.fill_fates`, payloads as in `codecs.fill_payloads`.
    """
    while True:
        while cursor[ROW] < cursor[ROWS]:
            row = cursor[ROW]
            if row == cursor[READY]:
                stop = end_of_group(table, row, cursor[ROWS])
                if not unpack_rows(buffer, table, stop, skip, arena, limit, unpackers, starts, ends, cursor):
                    return ODD
            ready = cursor[READY]
            if not _has_room(table, row, ready, skip, starts, ends, scratch, out, written, cursor):
                return FULL
            stopped, cursor[BATCHES], cursor[FILLED] = sift_batches(
                buffer, arena, cursor[FROM], table, row, ready, starts, ends, fates, bits, first_offset, functions,
                packing, scratch, out, cursor[FILLED], written, cursor[BATCHES], counts, totals,
            )  # fmt: skip
            cursor[ROW] = stopped
            if stopped < ready:
                return REST
            if cursor[FILLED] >= most:
                return FULL
        status = next_rows(pread, descriptor, end, buffer, table, base_offset, range_start, range_end, cursor)
        if status != GOT:
            return status
        fill_fates(
            table, cursor[ROW], cursor[ROWS], aborted_ids, aborted_firsts, aborted_markers, empty_markers, producers,
            producer_ids, rules, fates, skip,
        )  # fmt: skip
        for row in range(cursor[ROW], cursor[ROWS]):
            cursor[BYTES] += table[SIZE, row]
        codecs = codecs_of(table, cursor[ROW], cursor[ROWS]) | cursor[CODECS]
        if codecs != cursor[CODECS]:
            cursor[CODECS] = codecs
            return PACKERS
