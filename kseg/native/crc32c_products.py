"""CRC-32C by carry-less products of vectors, as LLVM code: what the two widths of them have in common.

A block is two or four polynomials of 128 bits. "Folding" multiplies each by a power of x modulo the CRC's polynomial,
so that it may be added to a block behind it; what is left of a range is one block, then 128 bits, of which the CRC
instruction makes the result. All of it is linear: whatever was added to a range's first bytes comes out at its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kseg.native._jit import JIT_ENABLED

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


if JIT_ENABLED:
    from llvmlite import ir

    I1, I8, I32, I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)
    _PRODUCTS = {4: "llvm.x86.pclmulqdq.256", 8: "llvm.x86.pclmulqdq.512"}  # by words of a block

    def declared(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
        """A function of LLVM's, declared once a module."""
        known = builder.module.globals.get(name)
        return known or ir.Function(builder.module, ir.FunctionType(result, arguments), name)

    def step_crc(builder: Any, crc: Any, word: Any) -> Any:
        """Advance a CRC by eight bytes with the CPU's instruction."""
        return builder.call(declared(builder, "llvm.x86.sse42.crc32.64.64", I64, [I64, I64]), [crc, word])

    def _times(builder: Any, words: Any, factors: list[int]) -> Any:
        """Each 128 bits, times their factors."""
        kind = words.type
        product = declared(builder, _PRODUCTS[kind.count], kind, [kind, kind, I8])
        by = ir.Constant(kind, factors)
        halves = [builder.call(product, [words, by, ir.Constant(I8, half)]) for half in (0x00, 0x11)]
        return builder.xor(*halves)

    def folded(builder: Any, words: Any, blocks: int) -> Any:
        """A block, moved so many blocks on."""
        count = words.type.count
        return _times(builder, words, count // 2 * _factors(64 * count * blocks))

    def load(builder: Any, pointer: Any, kind: Any) -> Any:
        """A vector or a word, wherever it lies."""
        return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=1)

    def _not_unrolled(module: Any) -> Any:
        """What is said of one loop; a description of a loop begins with itself, so that no two are one."""
        hint = module.add_metadata([ir.MetaDataString(module, "llvm.loop.unroll.disable")])
        described = module.add_metadata([hint, ir.Constant(I64, len(module.metadata))])
        described.operands = (described, hint)
        return described

    def loop(
        builder: Any, count: Any, values: list[Any], step: Callable[[list[Any], Any], list[Any]], *, unrolled: bool
    ) -> list[Any]:
        """`values` after `step(values, number)` was done so many times, which may be none.

        LLVM divides a loop that it unrolls: where ranges are short, the CPU foresees neither part's end.
        """
        before = builder.block
        head, body, behind = (builder.append_basic_block(f"crc.{name}") for name in ("head", "body", "behind"))
        builder.branch(head)
        builder.position_at_end(head)
        number = builder.phi(I64)
        number.add_incoming(ir.Constant(I64, 0), before)
        held = [builder.phi(value.type) for value in values]
        for phi, value in zip(held, values, strict=True):
            phi.add_incoming(value, before)
        builder.cbranch(builder.icmp_signed("<", number, count), body, behind)
        builder.position_at_end(body)
        following = step(held, number)
        number.add_incoming(builder.add(number, ir.Constant(I64, 1)), builder.block)
        for phi, value in zip(held, following, strict=True):
            phi.add_incoming(value, builder.block)
        again = builder.branch(head)
        if not unrolled:
            again.set_metadata("llvm.loop", _not_unrolled(builder.module))
        builder.position_at_end(behind)
        return held

    def join_lanes(builder: Any, lanes: list[Any]) -> Any:
        """Blocks that lie one behind the other, as one."""
        total = lanes[-1]
        for lane, words in enumerate(lanes[:-1]):
            total = builder.xor(total, folded(builder, words, len(lanes) - 1 - lane))
        return total

    def fold_blocks(builder: Any, words: Any, source: Any, count: Any, *, unrolled: bool) -> Any:
        """A block, folded into the `count` blocks at `source` that lie behind it."""
        kind = words.type
        size = 8 * kind.count
        single = builder.and_(count, ir.Constant(I64, LANES - 1))

        def load_block(number: Any) -> Any:
            return load(builder, builder.gep(source, [builder.mul(number, ir.Constant(I64, size))]), kind)

        def fold_one(held: list[Any], number: Any) -> list[Any]:
            return [builder.xor(folded(builder, held[0], 1), load_block(number))]

        def fold_lanes(held: list[Any], number: Any) -> list[Any]:
            at = builder.add(single, builder.mul(number, ir.Constant(I64, LANES)))
            blocks = [load_block(builder.add(at, ir.Constant(I64, lane))) for lane in range(LANES)]
            return [
                builder.xor(folded(builder, words, LANES), block) for words, block in zip(held, blocks, strict=True)
            ]

        (words,) = loop(builder, single, [words], fold_one, unrolled=unrolled)
        lanes = [*([ir.Constant(kind, None)] * (LANES - 1)), words]
        lanes = loop(builder, builder.lshr(count, ir.Constant(I64, 2)), lanes, fold_lanes, unrolled=unrolled)
        return join_lanes(builder, lanes)

    def reduced(builder: Any, words: Any) -> Any:
        """The CRC of one block, which nothing was added to before."""
        pairs = words.type.count // 2
        factors = [factor for lane in range(pairs - 1, 0, -1) for factor in _factors(128 * lane)] + [0, 0]
        moved = _times(builder, words, factors)
        places = [ir.Constant(ir.VectorType(I32, 2), [2 * lane, 2 * lane + 1]) for lane in range(pairs)]
        total = builder.shuffle_vector(words, words, places[-1])
        for place in places[:-1]:
            total = builder.xor(total, builder.shuffle_vector(moved, moved, place))
        crc = ir.Constant(I64, 0)
        for half in (0, 1):
            crc = step_crc(builder, crc, builder.extract_element(total, ir.Constant(I32, half)))
        return crc
