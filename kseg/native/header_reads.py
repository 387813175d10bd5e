"""Fill the batch table straight from a file, by the address of the C library's `pread`, so that no Python runs.

`read_headers` reads headers alone, one `pread` per batch: what lies between them is passed over. It pays where batches
are large and the file is in the page cache; who calls decides (`log/header_walk.py`). `read_checked` reads everything
and compares checksums, in steps that stay in the processor's cache.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kseg.native._jit import JIT_ENABLED, inlined, kernel
from kseg.native.headers import (
    BAD_LENGTH,
    BAD_MAGIC,
    INCOMPLETE,
    SHORT_BATCH,
    TABLE_FULL,
    WALKED,
    fill_checked,
    fill_legacy_row,
    fill_v2_row,
)
from kseg.native.memory import load_i32, load_i64, load_u8, move_bytes
from kseg.native.table import (
    BASE_OFFSET,
    HEADER_SIZE,
    LEGACY_MIN_LENGTH,
    LOG_OVERHEAD,
    MAGIC,
    POSITION,
    PREFIX_SIZE,
    SIZE,
)

PROBE_BYTES: Final = 160  # a header, and all of a transaction marker
STEP_BYTES: Final = 256 << 10  # so little is still in the processor's own cache when it is checked
READ_FAILED: Final = -4

if JIT_ENABLED:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    _I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)

    @intrinsic
    def call_pread(typing: Any, function: Any, descriptor: Any, target: Any, at: Any, size: Any, position: Any) -> Any:
        """pread(descriptor, target + at, size, position): bytes read, or negative."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.FunctionType(_I64, [_I32, _I8.as_pointer(), _I64, _I64])
            pointer = builder.inttoptr(args[0], kind.as_pointer())
            data = context.make_array(signature.args[2])(context, builder, args[2]).data
            place = builder.gep(data, [args[3]])
            return builder.call(pointer, [builder.trunc(args[1], _I32), place, args[4], args[5]])

        return types.int64(types.int64, types.int64, target, types.int64, types.int64, types.int64), codegen

else:

    def call_pread(function: int, descriptor: int, target: NDArray[np.uint8], at: int, size: int, position: int) -> int:
        """Read with Python's own pread."""
        try:
            return os.preadv(int(descriptor), [target[int(at) : int(at) + int(size)].data], int(position))
        except OSError:
            return -1


@functools.cache
def pread_address() -> int:
    """Where the C library's pread with 64-bit offsets is; 0 where it is not to be had."""
    try:
        found = ctypes.cast(ctypes.CDLL(None).pread64, ctypes.c_void_p).value
    except (OSError, AttributeError):
        return 0
    return found or 0


@inlined
def move_to_front(buffer: Any, start: int, size: int) -> None:
    """Move `buffer[start:start + size]` to the buffer's start."""
    if start > 0:
        move_bytes(buffer, 0, buffer, start, size)


@kernel
def read_headers(pread: int, descriptor: int, start: int, end: int, probe: Any, table: Any) -> tuple[int, int, int]:
    """Walk the batches of bytes `[start, end)` of a file; return (rows, next, status) as `headers.fill_headers` does.

    `probe` has PROBE_BYTES. READ_FAILED says that the system refused to read at `next`.
    """
    row = 0
    at: Any = np.int64(start)
    while at < end:
        if end - at <= PREFIX_SIZE:
            return row, at, INCOMPLETE
        got = call_pread(pread, descriptor, probe, 0, min(PROBE_BYTES, end - at), at)
        if got < 0:
            return row, at, READ_FAILED
        if got <= PREFIX_SIZE:
            return row, at, INCOMPLETE
        length = load_i32(probe, 8)
        if length < LEGACY_MIN_LENGTH:
            return row, at, BAD_LENGTH
        size = length + LOG_OVERHEAD
        magic = load_u8(probe, 16)
        if size > end - at or got < min(size, HEADER_SIZE):
            return row, at, INCOMPLETE
        if magic > 2:
            return row, at, BAD_MAGIC
        if magic == 2 and size < HEADER_SIZE:
            return row, at, SHORT_BATCH
        if row >= table.shape[1]:
            return row, at, TABLE_FULL
        table[POSITION, row] = at
        table[SIZE, row] = size
        table[BASE_OFFSET, row] = load_i64(probe, 0)
        table[MAGIC, row] = magic
        if magic == 2:
            fill_v2_row(probe, 0, min(size, got), table, row)
        else:
            fill_legacy_row(probe, 0, size, magic, table, row)
        row += 1
        at += size
    return row, at, WALKED


@kernel
def read_checked(
    pread: int, descriptor: int, start: int, end: int, buffer: Any, table: Any, first_row: int
) -> tuple[int, int, int]:
    """Walk the batches of bytes `[start, end)` of a file from row `first_row` on, with checksums.

    Returns (rows in all, where the sound batches end, status): WALKED, TABLE_FULL, INCOMPLETE where a batch is larger
    than `buffer` or the file or range ends in it, READ_FAILED, BAD_CHECKSUM, or a status of `headers.fill_headers`.
    """
    rows: Any = np.int64(first_row)
    position: Any = np.int64(start)
    held: Any = np.int64(0)
    while position + held < end:
        size = min(STEP_BYTES, np.int64(buffer.shape[0]) - held, end - position - held)
        if size == 0:
            return rows, position, INCOMPLETE
        got = call_pread(pread, descriptor, buffer, held, size, position + held)
        if got <= 0:
            return rows, position, READ_FAILED if got < 0 else INCOMPLETE
        held += got
        filled, at, status = fill_checked(buffer, 0, held, position, table, rows)
        rows += filled
        position += at
        if status < 0 or status == TABLE_FULL:
            return rows, position, status
        held -= at
        move_to_front(buffer, at, held)
    return rows, position, WALKED if held == 0 else INCOMPLETE
