"""Gzip members in and out of whole buffers, by libdeflate.

A decompressor or compressor of it is set up once per thread; nothing of one payload stays in it for the next.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kseg.native._jit import JIT_ENABLED, inlined
from kseg.native.memory import call_block, call_zstd, load_u8, store_u8
from kseg.native.snappy import NO_ROOM

# words of the state that a decompression needs, in an array of the caller's
INFLATE: Final = 0  # libdeflate_gzip_decompress_ex; 0 where it was not found
DECOMPRESSOR: Final = 1
USED: Final = 2  # bytes of a member, and bytes that came out: written by libdeflate
MADE: Final = 3
INFLATE_WORDS: Final = 4

SHORT_ROOM: Final = 3  # LIBDEFLATE_INSUFFICIENT_SPACE
FLAGS_AT: Final = 3
HEADER_CHECKSUM: Final = 0x02  # FHCRC, which libdeflate skips and Java checks

if JIT_ENABLED:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    _I32, _I64, _POINTER = ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()

    @intrinsic
    def address_of(typing: Any, array: Any, position: Any) -> Any:
        """Where an element lies in memory."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            return builder.ptrtoint(builder.gep(data, [args[1]]), _I64)

        return types.int64(array, types.int64), codegen

    @intrinsic
    def call_inflate(
        typing: Any,
        function: Any,
        state: Any,
        source: Any,
        size: Any,
        target: Any,
        room: Any,
        used: Any,
        made: Any,
    ) -> Any:
        """function(state, source, size, target, room, used, made), all by address: 0, or an error."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.FunctionType(_I32, [_POINTER, _POINTER, _I64, _POINTER, _I64, _POINTER, _POINTER])
            function = builder.inttoptr(args[0], kind.as_pointer())
            values = [args[i] if i in (3, 5) else builder.inttoptr(args[i], _POINTER) for i in range(1, 8)]
            return builder.sext(builder.call(function, values), _I64)

        return types.int64(*[types.int64] * 8), codegen

else:

    def address_of(array: NDArray[Any], position: int) -> int:
        """Where an element lies in memory."""
        return int(array.ctypes.data) + int(position) * array.itemsize

    def call_inflate(
        function: int, state: int, source: int, size: int, target: int, room: int, used: int, made: int
    ) -> int:
        """Call function(state, source, size, target, room, used, made)."""
        pointer, count = ctypes.c_void_p, ctypes.c_size_t
        call = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer, count, pointer, count, pointer, pointer)(int(function))
        return int(call(int(state), source, int(size), target, int(room), used, made))


@inlined
def _member_begins(data: Any, at: int, end: int) -> bool:
    return (
        end - at >= 3 and load_u8(data, at) == 0x1F and load_u8(data, at + 1) == 0x8B and load_u8(data, at + 2) == 0x08
    )


@inlined
def _is_for_libdeflate(data: Any, at: int, end: int) -> bool:
    return end - at > FLAGS_AT and not load_u8(data, at + FLAGS_AT) & HEADER_CHECKSUM


@inlined
def inflate_members(
    data: Any, start: int, end: int, out: Any, at: int, limit: int, state: Any, first: int, other: int
) -> Any:
    """Decompress all gzip members of `data[start:end]` to `out[at:limit]`; return where it ends there, or a code.

    What follows the last member is ignored, as Java's GZIPInputStream ignores it. `state[first:]` has INFLATE_WORDS.
    The function at the address `other` has the last word on what libdeflate does not take or does not check.
    """
    position = start
    written: Any = np.int64(at)
    while state[first + INFLATE] and _is_for_libdeflate(data, position, end):
        status = call_inflate(
            state[first + INFLATE],
            state[first + DECOMPRESSOR],
            address_of(data, position),
            end - position,
            address_of(out, written),
            limit - written,
            address_of(state, np.int64(first + USED)),
            address_of(state, np.int64(first + MADE)),
        )
        if status == SHORT_ROOM:
            return NO_ROOM
        if status != 0:
            break
        position += state[first + USED]
        written += state[first + MADE]
        if not _member_begins(data, position, end):
            return written
    got = call_block(other, data, start, end - start, out, at, limit - at)
    return at + got if got >= 0 else got


@inlined
def deflate_member(data: Any, start: int, end: int, out: Any, at: int, room: int, compressor: int, deflate: int) -> Any:
    """Compress `data[start:end]` to one gzip member in `out[at : at + room]`; return its size, 0 where it has no room.

    `deflate` is the address of libdeflate_gzip_compress.
    """
    # zstd's functions name the target first, libdeflate's the source: so the two change places here
    size = call_zstd(deflate, compressor, out, at, room, data, start, end - start)
    if size > 0:
        store_u8(out, at + 8, 0)  # as the JDK writes the head: no word on the effort, operating system unknown
        store_u8(out, at + 9, 255)
    return size
