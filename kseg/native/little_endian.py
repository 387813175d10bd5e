"""Little-endian loads and stores, and the length of a match: what a compressor of the LZ77 family is made of.

As in `memory.py`, each takes `(array, position)`, checks no bounds, and has a plain twin for no-JIT runs.
"""

from __future__ import annotations

from typing import Any

from kseg.native._jit import JIT_ENABLED
from kseg.native.memory import make_load, make_store

load_le16 = make_load(16, "little")
load_le32 = make_load(32, "little")
load_le64 = make_load(64, "little")
store_le16 = make_store(16, "little")
store_le32 = make_store(32, "little")

if JIT_ENABLED:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    _I1, _I64 = ir.IntType(1), ir.IntType(64)

    @intrinsic
    def first_difference(typing: Any, one: Any, other: Any) -> Any:
        """Of two numbers that differ and were loaded from eight bytes each: how many bytes they share at the start."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            zeros = builder.cttz(builder.xor(args[0], args[1]), ir.Constant(_I1, 1))
            return builder.lshr(zeros, ir.Constant(_I64, 3))

        return types.int64(types.int64, types.int64), codegen

else:

    def first_difference(one: int, other: int) -> int:
        """How many bytes two numbers share at the start."""
        different = one ^ other
        return ((different & -different).bit_length() - 1) >> 3
