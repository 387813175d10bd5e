"""CRC-32C by carry-less products of 512-bit vectors, where the CPU has them: several times its CRC instruction's rate.

A block of 64 bytes is four polynomials of 128 bits. "Folding" multiplies each by a power of x modulo the CRC's
polynomial, so that it may be added to the block behind it; what is left of a range is one block, then 128 bits, of
which the CRC instruction makes the result. Zeros in front of a range change nothing, so that the bytes beyond whole
blocks come first, as the end of a block of zeros.
"""

from __future__ import annotations

from typing import Any, Final

from kseg.native._jit import target_features

FOLDS: Final = {"crc32", "avx512f", "avx512bw", "vpclmulqdq"} <= target_features()
BLOCK: Final = 64
LANES: Final = 4  # blocks that are folded side by side: a product takes several cycles
CASTAGNOLI: Final = 0x82F63B78


def _power_of_x(exponent: int) -> int:
    """x^exponent modulo the polynomial, as the 64-bit factor of a product; the lowest power is the highest bit."""
    value = 0x80000000
    for _ in range(exponent):
        value = (value >> 1) ^ (CASTAGNOLI if value & 1 else 0)
    return value << 32


def _factors(distance: int) -> list[int]:
    """What moves 128 bits by `distance` bits: for their first half, and for their second.

    A product of two words counts one power of x more than the words do.
    """
    return [_power_of_x(distance + 63), _power_of_x(distance - 1)]


if FOLDS:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    _I1, _I8, _I32, _I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)
    _WORDS = ir.VectorType(_I64, 8)
    _BYTES = ir.VectorType(_I8, BLOCK)
    _BITS = ir.VectorType(_I1, BLOCK)
    _BLOCK_BITS = 8 * BLOCK
    _START = bytes(BLOCK) + b"\xff" * 4 + bytes(2 * BLOCK - 4)  # the first CRC, which is added to a range's first bytes

    def _declared(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
        known = builder.module.globals.get(name)
        return known or ir.Function(builder.module, ir.FunctionType(result, arguments), name)

    def _times(builder: Any, words: Any, factors: list[int]) -> Any:
        """Each 128 bits, times their factors."""
        product = _declared(builder, "llvm.x86.pclmulqdq.512", _WORDS, [_WORDS, _WORDS, _I8])
        by = ir.Constant(_WORDS, factors)
        halves = [builder.call(product, [words, by, ir.Constant(_I8, half)]) for half in (0x00, 0x11)]
        return builder.xor(*halves)

    def _folded(builder: Any, words: Any, blocks: int) -> Any:
        return _times(builder, words, 4 * _factors(blocks * _BLOCK_BITS))

    def _load(builder: Any, pointer: Any) -> Any:
        return builder.load(builder.bitcast(pointer, _WORDS.as_pointer()), align=1)

    def _load_block(builder: Any, pointer: Any, number: Any) -> Any:
        return _load(builder, builder.gep(pointer, [builder.mul(number, ir.Constant(_I64, BLOCK))]))

    def _load_last(builder: Any, pointer: Any, count: Any) -> Any:
        """The last `count` bytes of a block, fewer than 64, behind zeros; bytes before them are not touched."""
        load = _declared(builder, "llvm.masked.load.v64i8.p0", _BYTES, [_I8.as_pointer(), _I32, _BITS, _BYTES])
        absent = builder.sub(ir.Constant(_I64, BLOCK - 1), count)
        mask = builder.shl(builder.shl(ir.Constant(_I64, -1), absent), ir.Constant(_I64, 1))
        masked = [pointer, ir.Constant(_I32, 1), builder.bitcast(mask, _BITS), ir.Constant(_BYTES, None)]
        return builder.bitcast(builder.call(load, masked), _WORDS)

    def _start_words(builder: Any, odd: Any, block: int) -> Any:
        """What the first CRC adds to the first or second block, where `odd` bytes lie in the first."""
        name = "kseg.crc32c.start"
        known = builder.module.globals.get(name)
        if known is None:
            known = cgutils.global_constant(
                builder.module, name, ir.Constant(ir.ArrayType(_I8, len(_START)), bytearray(_START))
            )
        first = builder.bitcast(known, _I8.as_pointer())
        return _load(builder, builder.gep(first, [builder.add(odd, ir.Constant(_I64, block * BLOCK))]))

    def _loop(builder: Any, count: Any, values: list[Any], step: Any) -> list[Any]:
        """`values` after `step(values, number)` was done so many times, which may be none."""
        before = builder.block
        head, body, behind = (builder.append_basic_block(f"crc.{name}") for name in ("head", "body", "behind"))
        builder.branch(head)
        builder.position_at_end(head)
        number = builder.phi(_I64)
        number.add_incoming(ir.Constant(_I64, 0), before)
        held = [builder.phi(value.type) for value in values]
        for phi, value in zip(held, values, strict=True):
            phi.add_incoming(value, before)
        builder.cbranch(builder.icmp_signed("<", number, count), body, behind)
        builder.position_at_end(body)
        following = step(held, number)
        number.add_incoming(builder.add(number, ir.Constant(_I64, 1)), builder.block)
        for phi, value in zip(held, following, strict=True):
            phi.add_incoming(value, builder.block)
        builder.branch(head)
        builder.position_at_end(behind)
        return held

    def _reduced(builder: Any, words: Any) -> Any:
        """The CRC of one block, which nothing was added to before."""
        factors = [factor for lane in (3, 2, 1) for factor in _factors(128 * lane)] + [0, 0]
        moved = _times(builder, words, factors)
        lanes = [ir.Constant(ir.VectorType(_I32, 2), [2 * lane, 2 * lane + 1]) for lane in range(4)]
        total = builder.shuffle_vector(words, words, lanes[3])
        for lane in lanes[:3]:
            total = builder.xor(total, builder.shuffle_vector(moved, moved, lane))
        step = _declared(builder, "llvm.x86.sse42.crc32.64.64", _I64, [_I64, _I64])
        crc = ir.Constant(_I64, 0)
        for half in (0, 1):
            crc = builder.call(step, [crc, builder.extract_element(total, ir.Constant(_I32, half))])
        return crc

    @intrinsic
    def fold_crc32c(typing: Any, data: Any, start: Any, end: Any) -> Any:
        """The CRC-32C of `data[start:end]`, which has 64 bytes or more, before its bits are turned."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            size = builder.sub(args[2], args[1])
            odd = builder.and_(size, ir.Constant(_I64, BLOCK - 1))
            source = context.make_array(signature.args[0])(context, builder, args[0]).data
            whole = builder.gep(source, [builder.add(args[1], odd)])
            first = _load_last(builder, builder.gep(whole, [ir.Constant(_I64, -BLOCK)]), odd)
            first = builder.xor(first, _start_words(builder, odd, 0))
            second = builder.xor(_load(builder, whole), _start_words(builder, odd, 1))
            folded = builder.xor(_folded(builder, first, 1), second)
            left = builder.sub(builder.lshr(size, ir.Constant(_I64, 6)), ir.Constant(_I64, 1))
            single = builder.and_(left, ir.Constant(_I64, LANES - 1))

            def fold_one(held: list[Any], number: Any) -> list[Any]:
                block = _load_block(builder, whole, builder.add(number, ir.Constant(_I64, 1)))
                return [builder.xor(_folded(builder, held[0], 1), block)]

            (folded,) = _loop(builder, single, [folded], fold_one)
            behind = builder.add(single, ir.Constant(_I64, 1))

            def fold_lanes(held: list[Any], number: Any) -> list[Any]:
                at = builder.add(behind, builder.mul(number, ir.Constant(_I64, LANES)))
                blocks = [
                    _load_block(builder, whole, builder.add(at, ir.Constant(_I64, lane))) for lane in range(LANES)
                ]
                return [
                    builder.xor(_folded(builder, words, LANES), block)
                    for words, block in zip(held, blocks, strict=True)
                ]

            nothing = ir.Constant(_WORDS, None)
            lanes = _loop(
                builder, builder.lshr(left, ir.Constant(_I64, 2)), [nothing, nothing, nothing, folded], fold_lanes
            )
            total = lanes[-1]
            for lane, words in enumerate(lanes[:-1]):
                total = builder.xor(total, _folded(builder, words, LANES - 1 - lane))
            return _reduced(builder, total)

        return types.uint64(data, types.int64, types.int64), codegen
