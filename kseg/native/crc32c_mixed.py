"""CRC-32C by products of 256-bit vectors, and by the CRC instruction at the same time.

Where the CPU has no wider ones, products are about as fast as the instruction. They are other parts of the processor,
so a stretch is divided: vectors take its first half, three streams of the instruction the second, and tables append
one result to the other.
"""

from __future__ import annotations

from typing import Any, Final

from kseg.native._jit import target_features
from kseg.native.crc32c_products import LANES

MIXES: Final = {"crc32", "avx2", "vpclmulqdq"} <= target_features()
NARROW_BLOCK: Final = 32
TURNS: Final = 16
STREAMS: Final = 3  # a step of the instruction takes three cycles, and one may begin in each
STEPS: Final = 5  # of each stream, while vectors take LANES blocks
STREAM_BYTES: Final = 8 * STEPS * TURNS
VECTOR_BYTES: Final = NARROW_BLOCK * LANES * TURNS
STRETCH_BYTES: Final = VECTOR_BYTES + STREAMS * STREAM_BYTES

if MIXES:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    from kseg.native.crc32c_products import I64, fold_blocks, folded, join_lanes, load, loop, reduced, step_crc

    _WORDS = ir.VectorType(I64, NARROW_BLOCK // 8)

    @intrinsic
    def fold_narrow(typing: Any, crc: Any, data: Any, start: Any, end: Any) -> Any:
        """Advance a CRC by `data[start:end]`, which is one block or more, and nothing beside them."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            source = context.make_array(signature.args[1])(context, builder, args[1]).data
            first = builder.gep(source, [args[2]])
            added = builder.insert_element(ir.Constant(_WORDS, None), args[0], ir.Constant(ir.IntType(32), 0))
            words = builder.xor(load(builder, first, _WORDS), added)
            blocks = builder.lshr(builder.sub(args[3], args[2]), ir.Constant(I64, 5))
            behind = builder.gep(first, [ir.Constant(I64, NARROW_BLOCK)])
            left = builder.sub(blocks, ir.Constant(I64, 1))
            return reduced(builder, fold_blocks(builder, words, behind, left, unrolled=False))

        return types.uint64(types.uint64, data, types.int64, types.int64), codegen

    @intrinsic
    def mix_stretch(typing: Any, data: Any, start: Any) -> Any:
        """The CRCs, from 0, of the VECTOR_BYTES at `start` and of the three times STREAM_BYTES behind them."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            source = context.make_array(signature.args[0])(context, builder, args[0]).data
            first = builder.gep(source, [args[1]])

            def place(number: Any, size: int, offset: int) -> Any:
                at = builder.add(builder.mul(number, ir.Constant(I64, size)), ir.Constant(I64, offset))
                return builder.gep(first, [at])

            def turn(held: list[Any], number: Any) -> list[Any]:
                lanes, crcs = held[:LANES], held[LANES:]
                for step in range(STEPS):
                    for stream in range(STREAMS):
                        at = place(number, 8 * STEPS, VECTOR_BYTES + stream * STREAM_BYTES + 8 * step)
                        crcs[stream] = step_crc(builder, crcs[stream], load(builder, at, I64))
                    if step < LANES:
                        product = folded(builder, lanes[step], LANES)  # before the load: LLVM keeps that order
                        block = load(builder, place(number, NARROW_BLOCK * LANES, NARROW_BLOCK * step), _WORDS)
                        lanes[step] = builder.xor(product, block)
                return [*lanes, *crcs]

            zeros = [ir.Constant(_WORDS, None)] * LANES + [ir.Constant(I64, 0)] * STREAMS
            held = loop(builder, ir.Constant(I64, TURNS), zeros, turn, unrolled=False)
            whole = reduced(builder, join_lanes(builder, held[:LANES]))
            return context.make_tuple(builder, signature.return_type, [whole, *held[LANES:]])

        return types.UniTuple(types.uint64, 1 + STREAMS)(data, types.int64), codegen
