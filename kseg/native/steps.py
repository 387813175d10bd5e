"""Go through a file's batches in steps that stay in the processor's own cache, within one call of a kernel.

Reading, checksums, decompression and whatever a kernel does with records find so few bytes near each time; done for
megabytes, each would fetch them from memory again. Whatever is odd is left to the walk (`kseg.log.walk`), which takes
any batch, and can say what is wrong with one.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.native._jit import inlined
from kseg.native.codecs import fill_payloads
from kseg.native.header_reads import STEP_BYTES, call_pread, move_to_front
from kseg.native.headers import fill_checked, find_disorder
from kseg.native.memory import load_i32
from kseg.native.table import ATTRIBUTES, CODEC_MASK, LAST_OFFSET, LOG_OVERHEAD, POSITION, SIZE

# entries of the int64 array `cursor`; a first call gets FROM and LAST, and zeros else
FROM: Final = 0  # position in the file of the buffer's first byte
HELD: Final = 1  # bytes in the buffer
WALKED: Final = 2  # bytes of them that the rows cover
ROW: Final = 3  # the next row to work on
READY: Final = 4  # rows before it have their payloads
ROWS: Final = 5
BEFORE: Final = 6  # last offset before the rows
LAST: Final = 7  # last offset so far
OVER: Final = 8  # whether a batch behind the last wanted one was seen, and follows it
STEP_CURSOR: Final = 9

ODD: Final = 0  # the next batch, if there is one, is not for kernels that go by steps
FULL: Final = 1  # the outputs are full, or what follows does not go with them
ENDED: Final = 2  # the last wanted offset, or the end of the range, was reached
GOT: Final = 3  # there are rows

# what is wrong with a batch
FINE: Final = 0
DAMAGED: Final = 1
DISORDERED: Final = 2  # its offsets do not follow those before it

TOGETHER_BYTES: Final = 64 << 10  # of compressed batches that are decompressed before they are worked on


@inlined
def read_step(pread: int, descriptor: int, end: int, buffer: Any, cursor: Any) -> bool:
    """Move what is left to the buffer's start and read on behind it, up to byte `end`; say whether any bytes came.

    A batch that fills much of a step is read to its end and no further, so that nothing of the next one is moved.
    """
    walked, left = cursor[WALKED], cursor[HELD] - cursor[WALKED]
    move_to_front(buffer, walked, left)
    cursor[FROM] += walked
    cursor[HELD], cursor[WALKED] = left, 0
    size: Any = np.int64(STEP_BYTES)
    if left >= LOG_OVERHEAD:
        batch = load_i32(buffer, 8) + LOG_OVERHEAD
        size = batch - left if batch > STEP_BYTES // 2 else size
    size = min(size, np.int64(buffer.shape[0]) - left, end - cursor[FROM] - left)
    if size <= 0:
        return False
    got = call_pread(pread, descriptor, buffer, left, size, cursor[FROM] + left)
    cursor[HELD] += max(got, 0)
    return bool(got > 0)


@inlined
def check_step(buffer: Any, table: Any, base_offset: int, cursor: Any) -> tuple[int, int]:
    """Walk the whole batches in the buffer, checksums and order; return (their number, what is wrong with the next).

    What is wrong, FINE else, is told only where there are no batches before it.
    """
    cursor[BEFORE] = cursor[LAST]
    found, walked, status = fill_checked(buffer, cursor[WALKED], cursor[HELD], cursor[FROM], table, 0)
    disorder, last = find_disorder(table, found, base_offset, cursor[LAST])
    if disorder >= 0:
        found, walked = disorder, table[POSITION, disorder] - cursor[FROM]
    cursor[LAST], cursor[WALKED] = last, walked
    if found > 0:
        return found, FINE
    return found, DISORDERED if disorder >= 0 else DAMAGED if status < 0 else FINE


@inlined
def is_at_end(end: int, cursor: Any) -> bool:
    """Where no more bytes came: whether that is the end of the range, and no batch is cut off there."""
    return bool(cursor[HELD] == 0 and cursor[FROM] >= end)


@inlined
def next_rows(
    pread: int, descriptor: int, end: int, buffer: Any, table: Any, base_offset: int, range_start: int, range_end: int,
    cursor: Any,
) -> int:  # fmt: skip
    """Bring the next rows whose last offset is in `[range_start, range_end)`: GOT, or why there are none.

    Offsets are under no checksum. So a batch behind the range ends it only if the one behind that follows it in order:
    else a bit that was flipped would end it before its time.
    """
    while not cursor[OVER]:
        found, wrong = check_step(buffer, table, base_offset, cursor)
        is_behind = cursor[BEFORE] >= range_end
        if wrong:
            return ENDED if is_behind and wrong == DAMAGED else ODD
        if found == 0:
            if not read_step(pread, descriptor, end, buffer, cursor):
                return ENDED if is_behind or is_at_end(end, cursor) else ODD
            continue
        row: Any = np.int64(0)
        while row < found and table[LAST_OFFSET, row] < range_start:
            row += 1
        rows = found
        while rows > row and table[LAST_OFFSET, rows - 1] >= range_end:
            rows -= 1
        cursor[OVER] = is_behind or found - rows > 1
        cursor[ROW], cursor[READY], cursor[ROWS] = row, row, rows
        if row < rows:
            return GOT
    return ENDED


@inlined
def end_of_group(table: Any, row: int, rows: int) -> int:
    """Up to where rows are decompressed together: what came out of them should be in the cache when it is used."""
    compressed = 0
    while row < rows and compressed < TOGETHER_BYTES:
        if table[ATTRIBUTES, row] & CODEC_MASK:
            compressed += table[SIZE, row]
        row += 1
    return row


@inlined
def unpack_rows(
    buffer: Any, table: Any, stop: int, skip: Any, arena: Any, limit: int, functions: Any, starts: Any, ends: Any,
    cursor: Any,
) -> bool:  # fmt: skip
    """Decompress the rows from ROW to `stop`, or as many as fit the arena; say whether any are ready."""
    cursor[READY], _ = fill_payloads(
        buffer, cursor[FROM], table, cursor[ROW], stop, skip, arena, limit, functions, starts, ends
    )
    return bool(cursor[READY] > cursor[ROW])
