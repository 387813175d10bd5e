"""The batches that most are where they are small: of magic 2, no markers, of no aborted transaction.

Where a batch holds one record, a row of the batch table costs as much as the record. So these are checked,
decompressed and decoded one after the other, each while it is in the CPU's nearest cache. The first one that is not
plain, whether unusual or broken, ends that: the table is filled from there on (`straight.py`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.native._jit import inlined, kernel, stay_apart
from kseg.native.codecs import ZSTD, decompress
from kseg.native.crc32c import inlined_crc32c
from kseg.native.memory import load_i16, load_i32, load_i64, load_u8, wrap_i64
from kseg.native.plain_records import SLACK, read_plain
from kseg.native.records import KEY_BYTES, NULL_KEYS, NULL_VALUES, VALUE_BYTES
from kseg.native.rows import FILLED, NEXT_POSITION, NEXT_RECORD, fill_plain
from kseg.native.short_copies import BEYOND
from kseg.native.steps import HELD, LAST, STEP_CURSOR, WALKED
from kseg.native.table import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MIN_RECORD_SIZE,
    TRANSACTIONAL_BIT,
)

STAMPS: Final = STEP_CURSOR  # entry of the cursor: timestamp type of all records in the outputs
SMALL_BYTES: Final = 8 << 10  # of a larger batch the row costs nothing, and an unusual record at its end much


@inlined
def _plain_size(buffer: Any, at: int, held: int, unusual: int) -> Any:
    """Bytes of the batch at `at`, if all of it is there and its header is one of those that most are; else 0."""
    if held - at < HEADER_SIZE:
        return 0
    size = load_i32(buffer, at + 8) + LOG_OVERHEAD
    if size < HEADER_SIZE or size > min(held - at, SMALL_BYTES):
        return 0
    attributes = load_i16(buffer, at + 21)
    if load_u8(buffer, at + 16) != 2 or attributes & unusual or attributes & CODEC_MASK > ZSTD:
        return 0
    return size


@inlined
def _find_payload(
    buffer: Any, at: int, size: int, arena: Any, limit: int, functions: Any
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Where the records of a batch are: (the array, start, end), in the arena where they were compressed.

    The end is negative where they cannot be decompressed, or not in the room there is.
    """
    codec = load_i16(buffer, at + 21) & CODEC_MASK
    zero: Any = np.int64(0)
    if codec == 0:
        return buffer, at + HEADER_SIZE, at + size
    room: Any = min(np.int64(arena.shape[0]), np.int64(limit))
    return arena, zero, decompress(codec, 2, buffer, at + HEADER_SIZE, at + size, arena, zero, room, functions)


@kernel
def fill_plain_batches(
    buffer: Any, producers: Any, base_offset: int, arena: Any, limit: int, functions: Any, span: Any, scale: Any,
    out: Any, cursor: Any, state: Any,
) -> bool:  # fmt: skip
    """Decode plain batches from where the walk stands, as long as they lie within `span`; say whether `out` is full.

    Offsets, checksums and records are checked as those of others are. A batch that is left in the middle, since there
    is no room for all of it, stays the next one; NEXT_RECORD and NEXT_POSITION of the state tell how far it is done.
    """
    stay_apart()
    _, _, _, key, value, _ = out
    unusual = CONTROL_BIT
    if producers.shape[0]:
        unusual |= TRANSACTIONAL_BIT
    at: Any = np.int64(cursor[WALKED])
    held: Any = np.int64(cursor[HELD])
    before: Any = np.int64(max(cursor[LAST], base_offset - 1))
    place = (state[FILLED], state[KEY_BYTES], state[VALUE_BYTES], state[NULL_KEYS], state[NULL_VALUES])
    is_full = False
    while True:
        size = _plain_size(buffer, at, held, unusual)
        if size == 0:
            break
        first = load_i64(buffer, at)
        last = wrap_i64(first + load_i32(buffer, at + 23))
        is_in_order = first > before and first <= last <= base_offset + 0x7FFFFFFF
        if not is_in_order or first < span[0] or last >= span[1] - 1:
            break
        append_time = load_i16(buffer, at + 21) & LOG_APPEND_TIME_BIT
        kind = np.int64(1 if append_time else 0)
        if place[0] > 0 and cursor[STAMPS] != kind:
            break
        if state[NEXT_RECORD] == 0:  # else it was checked before
            crc = load_i32(buffer, at + 17) & 0xFFFFFFFF
            if inlined_crc32c(buffer, at + CRC_START, at + size) != crc:
                break
        count = load_i32(buffer, at + 57)
        source, start, end = _find_payload(buffer, at, size, arena, limit, functions)
        if count < 0 or count * MIN_RECORD_SIZE > end - start or end + SLACK > source.shape[0]:
            break
        cursor[STAMPS] = kind
        base = first, load_i64(buffer, at + (35 if append_time else 27)), 0 if append_time else -1
        i, stopped, following = fill_plain(
            source,
            start + state[NEXT_POSITION],
            end,
            state[NEXT_RECORD],
            count,
            base,
            span,
            scale,
            out,
            place,
            state,
            BEYOND,
        )
        if i < count:
            if read_plain(source, stopped, end)[0]:
                is_full = True
                place = following
                state[NEXT_RECORD] = i
                state[NEXT_POSITION] = stopped - start
            break
        if stopped != end:
            break
        place = following
        state[NEXT_RECORD] = 0
        state[NEXT_POSITION] = 0
        before = last
        at += size
    cursor[WALKED] = at
    cursor[LAST] = before
    state[FILLED], state[KEY_BYTES], state[VALUE_BYTES], state[NULL_KEYS], state[NULL_VALUES] = place
    if key[0].shape[0]:
        key[0][place[0]] = place[1]
    if value[0].shape[0]:
        value[0][place[0]] = place[2]
    return is_full
