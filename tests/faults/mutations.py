"""Mutations of log files: deterministic, from a `random.Random`, with checksums repaired on demand.

A mutated file keeps its other batches, so that what a reader does before and behind the damage is seen too. `mutate`
gives the new file and says whether the damaged entry's checksum fits, which is what lets a reader get past it.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.reference import batch as v2
from tests.reference import codecs, legacy
from tests.reference.errors import RejectedError
from tests.reference.record import Record
from tests.reference.varint import decode_varint, decode_varlong, encode_varint, encode_varlong

EDGES = (
    0,
    1,
    -1,
    2,
    13,
    14,
    48,
    49,
    60,
    61,
    127,
    128,
    -128,
    255,
    0x7FFF,
    0xFFFF,
    1 << 20,
    1 << 24,
    (1 << 31) - 1,
    -(1 << 31),
)
RAW_VARINTS = (
    b"\x80",
    b"\xff\xff\xff\xff\x0f",
    b"\xfe\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x7f",
    b"\x80\x80\x80\x80\x00",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 10,
    b"\x80" * 9 + b"\x7f",
)
HEADER_FIELDS = (  # position, struct code: what a magic 2 header has behind its checksum
    (21, ">h"),
    (23, ">i"),
    (27, ">q"),
    (35, ">q"),
    (43, ">q"),
    (51, ">h"),
    (53, ">i"),
    (57, ">i"),
)


@dataclass(frozen=True)
class Mutation:
    """A file after a mutation, and what was done."""

    data: bytes
    entry: int
    what: str
    repaired: bool


ByteMutator = Callable[[random.Random, bytes, bytes], bytes]


def _flip_bits(rng: random.Random, data: bytes, _: bytes) -> bytes:
    out = bytearray(data)
    for _i in range(rng.choice((1, 1, 1, 2, 4))):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _set_byte(rng: random.Random, data: bytes, _: bytes) -> bytes:
    out = bytearray(data)
    out[rng.randrange(len(out))] = rng.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF, rng.randrange(256)))
    return bytes(out)


def _splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    size = rng.randrange(1, min(len(other), 40) + 1)
    start = rng.randrange(len(other) - size + 1)
    at = rng.randrange(len(data) + 1)
    over = rng.choice((0, size))
    return data[:at] + other[start : start + size] + data[at + over :]


def _cut(rng: random.Random, data: bytes, _: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] if rng.random() < 0.5 else data[:at] + data[at + rng.randrange(1, 9) :]


def _insert(rng: random.Random, data: bytes, _: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    filler = rng.choice((b"\x00", b"\xff", b"\x80", rng.randbytes(1)))
    return data[:at] + filler * rng.choice((1, 1, 2, 5, 11, 300)) + data[at:]


def _edit_word(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Write an edge value over four bytes: what lengths and counts look like in any layout."""
    if len(data) < 4:
        return data
    at = rng.randrange(len(data) - 3)
    return data[:at] + struct.pack(rng.choice((">i", "<i")), rng.choice(EDGES)) + data[at + 4 :]


BYTE_MUTATORS: tuple[ByteMutator, ...] = (_flip_bits, _set_byte, _splice, _cut, _insert, _edit_word)


def varint_spans(payload: bytes, count: int) -> list[tuple[int, int, bool]]:
    """Start, end and whether it is a varlong, of every varint of a sound payload."""
    spans: list[tuple[int, int, bool]] = []
    position = 0

    def varint(*, long: bool = False) -> int:
        nonlocal position
        value, end = (decode_varlong if long else decode_varint)(payload, position)
        spans.append((position, end, long))
        position = end
        return value

    def field() -> None:
        nonlocal position
        size = varint()
        position += max(size, 0)

    for _ in range(count):
        varint()
        position += 1
        varint(long=True)
        varint()
        field()
        field()
        for _header in range(varint()):
            field()
            field()
    return spans


def edit_varint(rng: random.Random, payload: bytes, count: int) -> bytes:
    """Replace one varint of a sound payload by an edge value, a neighbour, or bytes at the limit of the rules."""
    spans = varint_spans(payload, count)
    if not spans:
        return payload + b"\x00"
    start, end, long = rng.choice(spans)
    old = (decode_varlong if long else decode_varint)(payload, start)[0]
    encode = encode_varlong if long else encode_varint
    near = encode(old + rng.choice((-2, -1, 1, 2)))
    edge = encode(rng.choice(EDGES))
    wide = payload[start : end - 1] + bytes([payload[end - 1] | 0x80]) + b"\x00"
    return payload[:start] + rng.choice((near, edge, wide, rng.choice(RAW_VARINTS))) + payload[end:]


def _grow_record(rng: random.Random, payload: bytes, count: int) -> bytes:
    """Edit a varint and the length of the record around it, so that only the inner field is wrong."""
    if not count:
        return payload
    position = 0
    for _ in range(rng.randrange(count)):
        size, start = decode_varint(payload, position)
        position = start + size
    size, start = decode_varint(payload, position)
    body = rng.choice(BYTE_MUTATORS)(rng, payload[start : start + size], payload)
    return payload[:position] + encode_varint(len(body)) + body + payload[start + size :]


def _mutate_payload(rng: random.Random, entry: bytes, other: bytes) -> tuple[bytes, str]:
    """Mutate the records of a magic 2 batch before their compression; the result has a fitting length and checksum."""
    header = v2.read_header(entry)
    payload = codecs.decompress(header.codec, entry[v2.HEADER.size :]) if header.count else b""
    choice = rng.randrange(4)
    if choice == 0:
        payload, what = edit_varint(rng, payload, header.count), "varint"
    elif choice == 1:
        payload, what = _grow_record(rng, payload, header.count), "record"
    else:
        mutator = rng.choice(BYTE_MUTATORS)
        payload, what = mutator(rng, payload or b"\x00", other), f"payload{mutator.__name__}"
    count = header.count + (rng.choice((-1, 1)) if rng.random() < 0.1 else 0)
    codec = rng.choice((header.codec, header.codec, rng.randrange(5)))
    fields = v2.Fields(
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset - header.base_offset,
        leader_epoch=header.leader_epoch,
        codec=codec,
        flags=header.attributes & ~v2.CODEC_MASK,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    return v2.encode_payload(payload, count, fields), f"{what} as {codecs.NAMES[codec]}"


def _mutate_wrapper(rng: random.Random, entry: bytes, other: bytes) -> tuple[bytes, str]:
    """Mutate what a legacy wrapper wraps, or the message itself where it wraps nothing."""
    message = legacy.read_message(entry)
    mutator = rng.choice(BYTE_MUTATORS)
    if not message.codec or message.value is None:
        return repair(_fit_length(entry[:18] + mutator(rng, entry[18:], other))), f"message{mutator.__name__}"
    inner = mutator(rng, codecs.decompress(message.codec, message.value, message.magic), other)
    packed = codecs.compress(message.codec, inner, message.magic)
    record = Record(message.offset, message.timestamp, message.key, packed)
    return legacy.encode_message(record, message.magic, message.attributes), f"inner{mutator.__name__}"


def _edit_header(rng: random.Random, entry: bytes) -> tuple[bytes, str]:
    position, code = rng.choice(HEADER_FIELDS)
    size = struct.calcsize(code)
    limit = 1 << (8 * size - 1)
    value = rng.choice([edge for edge in EDGES if -limit <= edge < limit] + [rng.randrange(-limit, limit)])
    return entry[:position] + struct.pack(code, value) + entry[position + size :], f"field at {position} = {value}"


def _fit_length(entry: bytes) -> bytes:
    return entry[:8] + struct.pack(">i", len(entry) - 12) + entry[12:] if len(entry) >= 12 else entry


def repair(entry: bytes) -> bytes:
    """Give an entry of any magic the checksum that fits its bytes."""
    if len(entry) <= v2.CRC_START:
        return entry
    return v2.repair(entry) if entry[16] == 2 else legacy.repair(entry)


def _mutate_entry(rng: random.Random, entry: bytes, other: bytes) -> tuple[bytes, str, bool]:
    """New bytes of an entry, what was done, and whether its checksum fits."""
    is_v2 = entry[16] == 2
    try:
        if rng.random() < 0.4:
            changed, what = (_mutate_payload if is_v2 else _mutate_wrapper)(rng, entry, other)
            return changed, what, True
    except RejectedError:
        pass  # a seed that is broken on purpose: its bytes are mutated as they are
    if is_v2 and rng.random() < 0.3:
        changed, what = _edit_header(rng, entry)
    else:
        mutator = rng.choice(BYTE_MUTATORS)
        changed, what = mutator(rng, entry, other), mutator.__name__
    if rng.random() < 0.2:
        return changed, f"{what}, bare", False
    changed = _fit_length(changed)
    if rng.random() < 0.25:
        return changed, f"{what}, length fits", False
    return repair(changed), f"{what}, checksum fits", True


def mutate(rng: random.Random, data: bytes, other: bytes) -> Mutation:
    """Mutate one entry of a file; `other` is where splices come from."""
    entries = v2.walk(data)[0]
    index = rng.randrange(len(entries))
    position, size = entries[index]
    entry = data[position : position + size]
    changed, what, repaired = _mutate_entry(rng, entry, other)
    mutation = Mutation(data[:position] + changed + data[position + size :], index, what, repaired)
    if rng.random() < 0.03:
        tail = rng.choice(
            (bytes(rng.randrange(1, 200)), rng.randbytes(rng.randrange(1, 80)), data[: rng.randrange(1, size)])
        )
        mutation = replace(mutation, data=mutation.data + tail, what=mutation.what + ", tail")
    return mutation
