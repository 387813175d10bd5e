"""Checksums over byte ranges: CRC-32C of magic 2, CRC-32 of the legacy formats.

CRC-32C runs on carry-less products of vectors where the CPU has wide ones (`crc32c_fold.py`); on narrower products
and its CRC instruction together (`crc32c_mixed.py`); or on the instruction alone. That has a latency of three cycles
and a throughput of one, so long ranges run as three independent streams whose results are combined by tables ("append n
zero bytes"). Everything else is table driven, eight bytes a step.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kseg.native._jit import JIT_ENABLED, inlined, kernel, target_features
from kseg.native.crc32c_fold import BLOCK, FOLDS
from kseg.native.crc32c_mixed import MIXES, NARROW_BLOCK, STREAM_BYTES, STRETCH_BYTES, VECTOR_BYTES
from kseg.native.crc32c_products import CASTAGNOLI
from kseg.native.memory import load_u8, load_u64_native

IEEE: Final = 0xEDB88320
LONG_STREAM: Final = 2048  # bytes of each of the three streams
SHORT_STREAM: Final = 128
LEAST_MIXED: Final = 256  # bytes; of fewer the instruction's words are done before products are
BLOCK_BYTES: Final = 64  # steps between two branches of what is left behind the streams


def _byte_tables(polynomial: int) -> NDArray[np.uint32]:
    """Tables of the slicing-by-8 method: row k advances a byte that lies k bytes before the end of the step."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> np.uint32(1)) ^ np.uint32(polynomial), table >> np.uint32(1))
    rows = [table]
    for _ in range(7):
        rows.append((rows[-1] >> np.uint32(8)) ^ table[rows[-1] & 255])
    return np.ascontiguousarray(np.stack(rows), dtype=np.uint32)


def _zeros_tables(tables: NDArray[np.uint32], count: int) -> NDArray[np.uint32]:
    """Tables that append `count` zero bytes to a CRC: one row for each of its four bytes."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    for _ in range(count):
        bits = (bits >> np.uint32(8)) ^ tables[0][bits & 255]
    rows = np.zeros((4, 256), np.uint32)
    for row in range(4):
        for bit in range(8):
            rows[row] ^= np.where(np.arange(256) >> bit & 1, bits[8 * row + bit], 0).astype(np.uint32)
    return rows


_CASTAGNOLI_TABLES = _byte_tables(CASTAGNOLI)
_IEEE_TABLES = _byte_tables(IEEE)
_LONG_ZEROS = _zeros_tables(_CASTAGNOLI_TABLES, LONG_STREAM)
_SHORT_ZEROS = _zeros_tables(_CASTAGNOLI_TABLES, SHORT_STREAM)


def _hardware_instructions() -> tuple[str, str] | None:
    """Names of the LLVM intrinsics for eight bytes and for one byte of CRC-32C on this CPU."""
    if not JIT_ENABLED:
        return None
    from llvmlite import binding

    features = target_features()
    triple = binding.get_process_triple()
    if triple.startswith("x86_64") and "crc32" in features:
        return "llvm.x86.sse42.crc32.64.64", "llvm.x86.sse42.crc32.32.8"
    if triple.startswith("aarch64") and "crc" in features:
        return "llvm.aarch64.crc32cx", "llvm.aarch64.crc32cb"
    return None


HARDWARE: Final = _hardware_instructions()


@inlined
def _table_crc(tables: Any, crc: Any, data: Any, position: int, end: int) -> Any:
    while position + 8 <= end:
        low = crc ^ (
            load_u8(data, position)
            | load_u8(data, position + 1) << 8
            | load_u8(data, position + 2) << 16
            | load_u8(data, position + 3) << 24
        )
        crc = (
            np.int64(tables[7, low & 255])
            ^ np.int64(tables[6, (low >> 8) & 255])
            ^ np.int64(tables[5, (low >> 16) & 255])
            ^ np.int64(tables[4, (low >> 24) & 255])
            ^ np.int64(tables[3, load_u8(data, position + 4)])
            ^ np.int64(tables[2, load_u8(data, position + 5)])
            ^ np.int64(tables[1, load_u8(data, position + 6)])
            ^ np.int64(tables[0, load_u8(data, position + 7)])
        )
        position += 8
    while position < end:
        crc = (crc >> 8) ^ np.int64(tables[0, (crc ^ load_u8(data, position)) & 255])
        position += 1
    return crc


if HARDWARE is not None:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    _EIGHT_BYTES, _ONE_BYTE = HARDWARE
    _IS_X86 = "x86" in _EIGHT_BYTES  # there the CRC of eight bytes is 64 bits wide, and one byte is eight

    _I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)

    def _instruction(builder: Any, name: str, kind: Any) -> Any:
        return builder.module.globals.get(name) or ir.Function(builder.module, kind, name)

    @intrinsic
    def _step(typing: Any, crc: Any, word: Any) -> Any:
        """Advance a CRC by eight bytes."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            if _IS_X86:
                function = _instruction(builder, _EIGHT_BYTES, ir.FunctionType(_I64, [_I64, _I64]))
                return builder.call(function, [args[0], args[1]])
            function = _instruction(builder, _EIGHT_BYTES, ir.FunctionType(_I32, [_I32, _I64]))
            return builder.zext(builder.call(function, [builder.trunc(args[0], _I32), args[1]]), _I64)

        return types.uint64(types.uint64, types.uint64), codegen

    @intrinsic
    def _step_byte(typing: Any, crc: Any, byte: Any) -> Any:
        """Advance a CRC by one byte."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            width = _I8 if _IS_X86 else _I32
            function = _instruction(builder, _ONE_BYTE, ir.FunctionType(_I32, [_I32, width]))
            got = builder.call(function, [builder.trunc(args[0], _I32), builder.trunc(args[1], width)])
            return builder.zext(got, _I64)

        return types.uint64(types.uint64, types.int64), codegen

    @inlined
    def _append_zeros(tables: Any, crc: Any) -> Any:
        low = np.int64(crc)
        return np.uint64(
            tables[0, low & 255]
            ^ tables[1, (low >> 8) & 255]
            ^ tables[2, (low >> 16) & 255]
            ^ tables[3, (low >> 24) & 255]
        )

    @inlined
    def _three_streams(tables: Any, stream: int, crc: Any, data: Any, position: int, end: int) -> tuple[Any, int]:
        while position + 3 * stream <= end:
            second = np.uint64(0)
            third = np.uint64(0)
            for i in range(position, position + stream, 8):
                crc = _step(crc, load_u64_native(data, i))
                second = _step(second, load_u64_native(data, i + stream))
                third = _step(third, load_u64_native(data, i + 2 * stream))
            crc = _append_zeros(tables, crc) ^ second
            crc = _append_zeros(tables, crc) ^ third
            position += 3 * stream
        return crc, position

    @inlined
    def _odd_bytes(crc: Any, data: Any, position: int, end: int) -> tuple[Any, int]:
        """Advance by eight bytes and as many more as make the rest a whole number of eights, without a branch.

        A CRC may be mixed into the next four bytes instead, and go on from 0; zeros in front then change nothing, so
        the odd bytes come first, as the end of a word of zeros.
        """
        odd = np.uint64((end - position) & 7) * np.uint64(8)
        word = load_u64_native(data, position) ^ crc
        first = _step(np.uint64(0), (word << (np.uint64(56) - odd)) << np.uint64(8))
        position += (end - position) & 7
        return _step(first, load_u64_native(data, position) ^ (crc >> odd)), position + 8

    @inlined
    def _odd_words(block: int, crc: Any, data: Any, position: int, end: int) -> tuple[Any, int]:
        """Advance by as many words as make the rest a whole number of blocks, without a branch.

        Small batches differ in length: a loop over their words ends where the processor does not foresee it, and the
        next batch's checksum waits for this one's. At least one block has to be there.
        """
        odd = ((end - position) & (block - 1)) >> 3
        for i in range(block // 8 - 1):
            advanced = _step(crc, load_u64_native(data, position + 8 * i))
            crc = advanced if i < odd else crc
        return crc, position + 8 * odd

    @inlined
    def _by_instruction(data: Any, start: int, end: int) -> Any:
        position = start
        crc, position = _three_streams(_LONG_ZEROS, LONG_STREAM, np.uint64(0xFFFFFFFF), data, position, end)
        crc, position = _three_streams(_SHORT_ZEROS, SHORT_STREAM, crc, data, position, end)
        if position + BLOCK_BYTES + 8 <= end:
            crc, position = _odd_bytes(crc, data, position, end)
            crc, position = _odd_words(BLOCK_BYTES, crc, data, position, end)
            while position < end:
                for i in range(position, position + BLOCK_BYTES, 8):
                    crc = _step(crc, load_u64_native(data, i))
                position += BLOCK_BYTES
        elif position + 8 <= end:
            crc, position = _odd_bytes(crc, data, position, end)
            while position < end:
                crc = _step(crc, load_u64_native(data, position))
                position += 8
        while position < end:
            crc = _step_byte(crc, load_u8(data, position))
            position += 1
        return np.int64(crc) ^ 0xFFFFFFFF

else:

    @inlined
    def _by_instruction(data: Any, start: int, end: int) -> Any:
        return _table_crc(_CASTAGNOLI_TABLES, 0xFFFFFFFF, data, start, end) ^ 0xFFFFFFFF


if MIXES:
    from kseg.native.crc32c_mixed import fold_narrow, mix_stretch

    _VECTOR_ZEROS = _zeros_tables(_CASTAGNOLI_TABLES, VECTOR_BYTES)
    _STREAM_ZEROS = _zeros_tables(_CASTAGNOLI_TABLES, STREAM_BYTES)

    @inlined
    def _by_both(data: Any, start: int, end: int) -> Any:
        if end - start < LEAST_MIXED:
            return _by_instruction(data, start, end)
        crc = np.uint64(0xFFFFFFFF)
        position = start
        while position + STRETCH_BYTES + BLOCK_BYTES <= end:
            whole, first, second, third = mix_stretch(data, position)
            crc = _append_zeros(_VECTOR_ZEROS, crc) ^ whole
            crc = _append_zeros(_STREAM_ZEROS, crc) ^ first
            crc = _append_zeros(_STREAM_ZEROS, crc) ^ second
            crc = _append_zeros(_STREAM_ZEROS, crc) ^ third
            position += STRETCH_BYTES
        crc, position = _odd_bytes(crc, data, position, end)
        crc, position = _odd_words(NARROW_BLOCK, crc, data, position, end)
        return np.int64(fold_narrow(crc, data, position, end)) ^ 0xFFFFFFFF

else:
    _by_both = _by_instruction

if FOLDS:
    from kseg.native.crc32c_fold import fold_crc32c

    @inlined
    def inlined_crc32c(data: Any, start: int, end: int) -> Any:
        """CRC-32C of `data[start:end]`, for a loop over small ranges, where a call would cost as much."""
        if end - start < BLOCK:
            return _by_instruction(data, start, end)
        return np.int64(fold_crc32c(data, start, end)) ^ 0xFFFFFFFF

elif MIXES:
    inlined_crc32c = _by_both
else:
    inlined_crc32c = _by_instruction


@kernel
def crc32c(data: Any, start: int, end: int) -> Any:
    """CRC-32C of `data[start:end]`. Twin: tests/reference/crc32c.py."""
    return np.int64(inlined_crc32c(data, start, end))


@kernel
def crc32c_by_instruction(data: Any, start: int, end: int) -> Any:
    """CRC-32C without products of vectors: what `crc32c` is on machines that have none, by tables if need be."""
    return np.int64(_by_instruction(data, start, end))


@kernel
def crc32c_by_both(data: Any, start: int, end: int) -> Any:
    """CRC-32C by narrow products and the instruction, where there are both; else as `crc32c_by_instruction`."""
    return np.int64(_by_both(data, start, end))


@kernel
def crc32c_by_table(data: Any, start: int, end: int) -> Any:
    """CRC-32C without the CPU's instruction: what `crc32c` is on machines that have none."""
    return np.int64(_table_crc(_CASTAGNOLI_TABLES, 0xFFFFFFFF, data, start, end) ^ 0xFFFFFFFF)


@kernel
def crc32(data: Any, start: int, end: int) -> Any:
    """CRC-32 (IEEE, as in zlib) of `data[start:end]`: the checksum of magic 0 and 1."""
    return np.int64(_table_crc(_IEEE_TABLES, 0xFFFFFFFF, data, start, end) ^ 0xFFFFFFFF)
