"""Raw snappy blocks, the other way round: the algorithm of Google's library, for one chunk of a stream.

A table remembers where each hash of four bytes was last seen. Where the bytes there are the same, a copy is written,
else the bytes go into a literal; the longer nothing is found, the larger the steps. It is here because the package has
no C entry that a kernel could call (see docs/adr on codecs).
"""

from __future__ import annotations

from typing import Any, Final

from kseg.native._jit import inlined
from kseg.native.little_endian import (
    first_difference,
    load_le16,
    load_le32,
    load_le64,
    store_le16,
    store_le32,
)
from kseg.native.memory import copy_bytes, load_u8, move16, store_u8

BLOCK_LIMIT: Final = 64 * 1024  # positions in the table have 16 bits
TABLE_BITS: Final = 14
TABLE_BYTES: Final = 2 << TABLE_BITS
_MARGIN: Final = 15  # bytes at the end that no match starts in, so that whole steps can be loaded before it
_MULTIPLIER: Final = 0x1E35A7BD


@inlined
def _slot(word: int, shift: int) -> int:
    """Where in the table the position of these four bytes lies, in two bytes of its own."""
    return (((word * _MULTIPLIER) & 0xFFFFFFFF) >> shift) << 1


@inlined
def _match_end(data: Any, one: int, other: int, end: int) -> int:
    """Where the bytes from `other` on, the later place, stop to be those from `one` on."""
    while other <= end - 8:
        here, there = load_le64(data, other), load_le64(data, one)
        if here != there:
            other += first_difference(here, there)
            return other
        other += 8
        one += 8
    while other < end and load_u8(data, other) == load_u8(data, one):
        other += 1
        one += 1
    return other


@inlined
def _write_literal(data: Any, start: int, end: int, out: Any, at: int) -> int:
    size = end - start
    if size <= 60:
        store_u8(out, at, (size - 1) << 2)
        at += 1
    elif size <= 256:
        store_u8(out, at, 60 << 2)
        store_u8(out, at + 1, size - 1)
        at += 2
    else:
        store_u8(out, at, 61 << 2)
        store_le16(out, at + 1, size - 1)
        at += 3
    copy_bytes(out, at, data, start, size)
    return at + size


@inlined
def _write_copy(out: Any, at: int, back: int, size: int) -> int:
    """Copies of at most 64 bytes each; none is shorter than 4, which the short form cannot say."""
    if size > 64:
        while size >= 68:
            store_le32(out, at, 2 | 63 << 2 | back << 8)
            at += 3
            size -= 64
        if size > 64:
            store_le32(out, at, 2 | 59 << 2 | back << 8)
            at += 3
            size -= 60
    short = size < 12 and back < 2048  # chosen without a branch: nobody could predict it
    narrow = 1 | (size - 4) << 2 | (back >> 8) << 5 | (back & 255) << 8
    store_le32(out, at, narrow if short else 2 | (size - 1) << 2 | back << 8)
    return at + (2 if short else 3)


@inlined
def _write_length(out: Any, at: int, size: int) -> int:
    while size > 127:
        store_u8(out, at, size & 127 | 128)
        at += 1
        size >>= 7
    store_u8(out, at, size)
    return at + 1


@inlined
def _clear_table(table: Any, size: int) -> int:
    """Make room for about one slot per byte of a block; return the shift that leaves as many bits of a hash."""
    bits = 8
    while bits < TABLE_BITS and (1 << bits) < size:
        bits += 1
    for i in range(2 << bits):
        table[i] = 0
    return 32 - bits


@inlined
def _find_match(data: Any, here: int, last: int, table: Any, shift: int) -> tuple[int, int]:
    """The next place from `here` on whose four bytes were seen before, and where; (-1, -1) where there is none."""
    tried = 32
    while here < last:
        word = load_le32(data, here)
        slot = _slot(word, shift)
        seen = load_le16(table, slot)
        store_le16(table, slot, here)
        if word == load_le32(data, seen):
            return here, seen
        here += tried >> 5  # after 32 bytes without a match every second one is tried, and so on
        tried += 1
    return -1, -1


@inlined
def compress_block(source: Any, start: int, stop: int, out: Any, at: int, table: Any) -> int:
    """Compress `source[start:stop]`, at most BLOCK_LIMIT bytes, to `out[at:]`; return where the block ends there.

    `out` has room for `size + size // 6 + 32` bytes, and `table` is scratch of TABLE_BYTES.
    """
    data = source[start:stop]  # so that positions are those in the table
    end = stop - start
    at = _write_length(out, at, end)
    done = 0  # what lies before it is written
    last = end - _MARGIN
    here = 1
    shift = _clear_table(table, end) if here < last else 0
    while here < last:
        here, seen = _find_match(data, here, last, table, shift)
        if here < 0:
            break
        if here - done <= 16:  # the margin, and what a match saves, leave room for a whole step
            store_u8(out, at, (here - done - 1) << 2)
            move16(out, at + 1, data, done)
            at += 1 + here - done
        else:
            at = _write_literal(data, done, here, out, at)
        while True:
            done = _match_end(data, seen + 4, here + 4, end)
            at = _write_copy(out, at, here - seen, done - here)
            here = done
            if here >= last:
                break
            around = load_le64(data, here - 1)
            store_le16(table, _slot(around & 0xFFFFFFFF, shift), here - 1)
            word = (around >> 8) & 0xFFFFFFFF
            slot = _slot(word, shift)
            seen = load_le16(table, slot)
            store_le16(table, slot, here)
            if word != load_le32(data, seen):
                break
        here += 1
    return _write_literal(data, done, end, out, at) if done < end else at
