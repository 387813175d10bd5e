"""CRC-32C by products of 512-bit vectors, where the CPU has them: several times its CRC instruction's rate.

Zeros in front of a range change nothing, so that the bytes beyond whole blocks come first, as the end of a block of
zeros.
"""

from __future__ import annotations

from typing import Any, Final

from kseg.native._jit import target_features

FOLDS: Final = {"crc32", "avx512f", "avx512bw", "vpclmulqdq"} <= target_features()
BLOCK: Final = 64

if FOLDS:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    from kseg.native.crc32c_products import I1, I8, I32, I64, declared, fold_blocks, folded, load, reduced

    _WORDS = ir.VectorType(I64, 8)
    _BYTES = ir.VectorType(I8, BLOCK)
    _BITS = ir.VectorType(I1, BLOCK)
    _START = bytes(BLOCK) + b"\xff" * 4 + bytes(2 * BLOCK - 4)  # the first CRC, which is added to a range's first bytes

    def _load_last(builder: Any, pointer: Any, count: Any) -> Any:
        """The last `count` bytes of a block, fewer than 64, behind zeros; bytes before them are not touched."""
        masked_load = declared(builder, "llvm.masked.load.v64i8.p0", _BYTES, [I8.as_pointer(), I32, _BITS, _BYTES])
        absent = builder.sub(ir.Constant(I64, BLOCK - 1), count)
        mask = builder.shl(builder.shl(ir.Constant(I64, -1), absent), ir.Constant(I64, 1))
        arguments = [pointer, ir.Constant(I32, 1), builder.bitcast(mask, _BITS), ir.Constant(_BYTES, None)]
        return builder.bitcast(builder.call(masked_load, arguments), _WORDS)

    def _start_words(builder: Any, odd: Any, block: int) -> Any:
        """What the first CRC adds to the first or second block, where `odd` bytes lie in the first."""
        name = "kseg.crc32c.start"
        known = builder.module.globals.get(name)
        if known is None:
            known = cgutils.global_constant(
                builder.module, name, ir.Constant(ir.ArrayType(I8, len(_START)), bytearray(_START))
            )
        first = builder.bitcast(known, I8.as_pointer())
        return load(builder, builder.gep(first, [builder.add(odd, ir.Constant(I64, block * BLOCK))]), _WORDS)

    @intrinsic
    def fold_crc32c(typing: Any, data: Any, start: Any, end: Any) -> Any:
        """The CRC-32C of `data[start:end]`, which has 64 bytes or more, before its bits are turned."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            size = builder.sub(args[2], args[1])
            odd = builder.and_(size, ir.Constant(I64, BLOCK - 1))
            source = context.make_array(signature.args[0])(context, builder, args[0]).data
            whole = builder.gep(source, [builder.add(args[1], odd)])
            first = _load_last(builder, builder.gep(whole, [ir.Constant(I64, -BLOCK)]), odd)
            first = builder.xor(first, _start_words(builder, odd, 0))
            second = builder.xor(load(builder, whole, _WORDS), _start_words(builder, odd, 1))
            words = builder.xor(folded(builder, first, 1), second)
            left = builder.sub(builder.lshr(size, ir.Constant(I64, 6)), ir.Constant(I64, 1))
            behind = builder.gep(whole, [ir.Constant(I64, BLOCK)])
            return reduced(builder, fold_blocks(builder, words, behind, left, unrolled=True))

        return types.uint64(data, types.int64, types.int64), codegen
