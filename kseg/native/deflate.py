"""Gzip members by zlib's own stream, which is set up once and reset for each payload.

A stream takes a quarter of a megabyte; to allocate it costs more than to compress a small batch. Its public part, the
C struct `z_stream`, lies in an array of ours, so that a kernel can fill it.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kseg.native._jit import JIT_ENABLED, inlined
from kseg.native.memory import store_u8

# words of z_stream where pointers and longs have 64 bits; a counter of 32 bits is the lower half of its word
NEXT_IN: Final = 0
AVAILABLE_IN: Final = 1
NEXT_OUT: Final = 3
AVAILABLE_OUT: Final = 4
TOTAL_OUT: Final = 5
STREAM_WORDS: Final = 14

FINISH: Final = 4  # Z_FINISH
STREAM_END: Final = 1  # Z_STREAM_END
LARGEST: Final = 0x7FFFFFFF
DEFLATE_FAILED: Final = -1

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
    def call_reset(typing: Any, function: Any, stream: Any) -> Any:
        """function(stream), as deflateReset."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.FunctionType(_I32, [_POINTER])
            function = builder.inttoptr(args[0], kind.as_pointer())
            return builder.sext(builder.call(function, [builder.inttoptr(args[1], _POINTER)]), _I64)

        return types.int64(types.int64, types.int64), codegen

    @intrinsic
    def call_deflate(typing: Any, function: Any, stream: Any, flush: Any) -> Any:
        """function(stream, flush), as deflate."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.FunctionType(_I32, [_POINTER, _I32])
            function = builder.inttoptr(args[0], kind.as_pointer())
            values = [builder.inttoptr(args[1], _POINTER), builder.trunc(args[2], _I32)]
            return builder.sext(builder.call(function, values), _I64)

        return types.int64(types.int64, types.int64, types.int64), codegen

else:

    def address_of(array: NDArray[Any], position: int) -> int:
        """Where an element lies in memory."""
        return int(array.ctypes.data) + int(position) * array.itemsize

    def call_reset(function: int, stream: int) -> int:
        """Call function(stream)."""
        return int(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(int(function))(stream))

    def call_deflate(function: int, stream: int, flush: int) -> int:
        """Call function(stream, flush)."""
        return int(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(int(function))(stream, flush))


@inlined
def deflate_member(
    data: Any, start: int, end: int, out: Any, at: int, room: int, state: Any, first: int, reset: int, deflate: int
) -> int:
    """Compress `data[start:end]` to one gzip member in `out[at : at + room]`; return its size, or DEFLATE_FAILED.

    `state[first:]` is a z_stream that was set up for gzip; `reset` and `deflate` are the addresses of zlib's functions.
    """
    stream = address_of(state, np.int64(first))
    if end - start > LARGEST or call_reset(reset, stream) != 0:
        return DEFLATE_FAILED
    state[first + NEXT_IN] = address_of(data, start)
    state[first + AVAILABLE_IN] = end - start
    state[first + NEXT_OUT] = address_of(out, at)
    state[first + AVAILABLE_OUT] = min(room, LARGEST)
    if call_deflate(deflate, stream, FINISH) != STREAM_END:
        return DEFLATE_FAILED
    store_u8(out, at + 8, 0)  # as the JDK writes the head: no word on the effort, operating system unknown
    store_u8(out, at + 9, 255)
    return int(state[first + TOTAL_OUT])
