"""Little-endian loads and stores, and the length of a match: what a compressor of the LZ77 family is made of.

As in `memory.py`, each takes `(array, position)`, checks no bounds, and has a plain twin for no-JIT runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kseg.native._jit import JIT_ENABLED

if JIT_ENABLED:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    _I1, _I64 = ir.IntType(1), ir.IntType(64)

    def _pointer(context: Any, builder: Any, array_type: Any, array: Any, position: Any, kind: Any) -> Any:
        data = context.make_array(array_type)(context, builder, array).data
        return builder.bitcast(builder.gep(data, [position]), kind.as_pointer())

    def _make_load(bits: int) -> Callable[..., Any]:
        @intrinsic
        def load(typing: Any, data: Any, position: Any) -> Any:
            def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                pointer = _pointer(context, builder, signature.args[0], args[0], args[1], ir.IntType(bits))
                value = builder.load(pointer, align=1)
                if sys.byteorder == "big":
                    value = builder.bswap(value)
                return value if bits == 64 else builder.zext(value, _I64)

            return types.int64(data, types.int64), codegen

        return load  # type: ignore[no-any-return]

    def _make_store(bits: int) -> Callable[..., Any]:
        @intrinsic
        def store(typing: Any, data: Any, position: Any, value: Any) -> Any:
            def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                pointer = _pointer(context, builder, signature.args[0], args[0], args[1], ir.IntType(bits))
                number = builder.trunc(args[2], ir.IntType(bits))
                builder.store(builder.bswap(number) if sys.byteorder == "big" else number, pointer, align=1)
                return context.get_dummy_value()

            return types.void(data, types.int64, types.int64), codegen

        return store  # type: ignore[no-any-return]

    load_le16 = _make_load(16)
    load_le32 = _make_load(32)
    load_le64 = _make_load(64)
    store_le16 = _make_store(16)
    store_le32 = _make_store(32)

    @intrinsic
    def first_difference(typing: Any, one: Any, other: Any) -> Any:
        """Of two numbers that differ and were loaded from eight bytes each: how many bytes they share at the start."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            zeros = builder.cttz(builder.xor(args[0], args[1]), ir.Constant(_I1, 1))
            return builder.lshr(zeros, ir.Constant(_I64, 3))

        return types.int64(types.int64, types.int64), codegen

else:

    def _plain_load(size: int, *, signed: bool = False) -> Callable[[NDArray[np.uint8], int], int]:
        def load(data: NDArray[np.uint8], position: int) -> int:
            return int.from_bytes(data[position : position + size].tobytes(), "little", signed=signed)

        return load

    def _plain_store(size: int) -> Callable[[NDArray[np.uint8], int, int], None]:
        def store(data: NDArray[np.uint8], position: int, value: int) -> None:
            wrapped = (int(value) % (1 << (8 * size))).to_bytes(size, "little")
            data[position : position + size] = np.frombuffer(wrapped, np.uint8)

        return store

    load_le16 = _plain_load(2)
    load_le32 = _plain_load(4)
    load_le64 = _plain_load(8, signed=True)
    store_le16 = _plain_store(2)
    store_le32 = _plain_store(4)

    def first_difference(one: int, other: int) -> int:
        """How many bytes two numbers share at the start."""
        different = one ^ other
        return ((different & -different).bit_length() - 1) >> 3
