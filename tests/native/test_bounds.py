"""No kernel touches a byte behind the arrays it was given, whatever the bytes in them say."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest

from kseg.native import codecs, encode, gather, headers, records, rows, snappy
from kseg.native import crc32c as checksums
from kseg.native import hash as hashes
from kseg.native import table as t
from tests.faults.mutations import mutate
from tests.faults.seeds import seeds
from tests.native.guarded import PAGE, Guarded
from tests.native.harness import EVERYTHING, FUNCTIONS
from tests.reference import codecs as twin
from tests.scale import JIT_DISABLED, counts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="guard pages are made with Linux's mprotect")
LARGEST = 128 * 1024


class Rooms:
    """One guarded room for each array of the decoder."""

    def __init__(self):
        self.data, self.arena, self.columns = Guarded(LARGEST), Guarded(LARGEST), Guarded(16 * LARGEST)
        self.outputs = [Guarded(LARGEST) for _ in range(8)]


def decode(rooms, data):
    """Walk, check, decompress, decode and gather `data`, every array just as large as it must be."""
    array = rooms.data.holding(data)
    table = t.new_table(max(len(data) // 26 + 1, 1))
    amount, _, _ = headers.fill_headers(array, 0, len(data), 0, table, 0)
    headers.scan_checksums(array, 0, table, 0, amount)
    skip, starts, ends = np.zeros(amount, np.bool_), np.zeros(amount, np.int64), np.zeros(amount, np.int64)
    done = 0
    while done < amount:
        arena = rooms.arena.array(LARGEST)
        stop, status = codecs.fill_payloads(
            array, 0, table, done, amount, skip, arena, LARGEST, FUNCTIONS.addresses, starts, ends
        )
        used = max((int(ends[row]) - len(data) for row in range(done, stop)), default=0)
        if used > 0:  # the payloads again, in an arena that ends where they end
            content = bytes(arena[:used])
            arena = rooms.arena.holding(content)
        gather_rows(rooms, array, arena, table, done, stop, skip, starts, ends)
        done = stop + 1 if status != codecs.DONE else stop


def gather_rows(rooms, array, arena, table, first, end, skip, starts, ends):
    room = int(np.minimum(np.maximum(table[t.COUNT, first:end], 0), LARGEST // 7).sum())
    columns = np.zeros((records.RECORD_COLUMNS, min(room, LARGEST)), np.int64)
    totals = np.zeros(records.TOTALS, np.int64)
    count, _, _ = records.fill_records(
        array,
        arena,
        table,
        first,
        end,
        skip,
        starts,
        ends,
        *EVERYTHING,
        columns,
        totals,
        np.zeros(records.CURSOR, np.int64),
    )
    kept = columns[:, :count]
    keys, values = (int(np.maximum(kept[length], 0).sum()) for length in (records.KEY_LENGTH, records.VALUE_LENGTH))
    state = np.zeros(rows.STATE, np.int64)
    places = rooms.columns.array((2, count), np.int64)
    for limit in {count, count // 2}:  # with room for all of them, and for fewer
        shapes = [
            (limit, np.int64), (limit, np.int64), (limit + 1, np.int32), (keys, np.uint8), ((limit + 7) // 8, np.uint8),
            (limit + 1, np.int32), (values, np.uint8), ((limit + 7) // 8, np.uint8),
        ]  # fmt: skip
        outputs = [output.array(*shape) for output, shape in zip(rooms.outputs, shapes, strict=True)]
        state[:] = 0
        rows.fill_rows(
            array, arena, table, first, end, skip, starts, ends, *EVERYTHING, limit, *outputs[:2], 1, 0, *outputs[2:],
            places, np.zeros(end, np.int64), state,
        )  # fmt: skip
        assert state[rows.FILLED] <= limit
    amount = int(kept[records.HEADERS_COUNT].sum())
    if amount == int(totals[records.HEADERS]):
        shapes = [
            (count + 1, np.int32), ((count + 7) // 8, np.uint8), (amount + 1, np.int32),
            (int(totals[records.HEADER_KEY_BYTES]), np.uint8), (amount + 1, np.int32),
            (int(totals[records.HEADER_VALUE_BYTES]), np.uint8), ((amount + 7) // 8, np.uint8),
        ]  # fmt: skip
        arrays = [output.array(*shape) for output, shape in zip(rooms.outputs[:7], shapes, strict=True)]
        places[:] = kept[[records.HEADERS_START, records.HEADERS_COUNT]]
        gather.gather_headers(array, arena, places, count, *arrays)


def test_sound_files():
    rooms = Rooms()
    for seed in seeds():
        decode(rooms, seed.data)


@pytest.mark.parametrize("shard", range(4))
def test_mutated_files(shard):
    rooms, found = Rooms(), seeds()
    for case in range(counts(600)):
        rng = random.Random(f"bounds {shard} {case}")
        decode(rooms, mutate(rng, rng.choice(found).data, rng.choice(found).data).data)


CHECKSUMS = (
    checksums.crc32c,
    checksums.crc32c_by_both,
    checksums.crc32c_by_instruction,
    checksums.crc32c_by_table,
    checksums.crc32,
)


@pytest.mark.parametrize("length", range(1, 200, 1 if not JIT_DISABLED else 13))
def test_checksums_do_not_touch_what_lies_in_front(length):
    data = random.Random(length).randbytes(length)
    room = Guarded(PAGE)
    for checksum in CHECKSUMS:
        assert checksum(room.beginning(data), 0, length) == checksum(room.holding(data), 0, length)


@pytest.mark.parametrize("length", [*range(40), 100, 127, 128, 129, 383, 384, 385, 6143, 6144, 6145])
def test_checksums_and_hashes(length):
    array = Guarded(2 * PAGE).holding(random.Random(length).randbytes(length))
    for start in range(min(length, 9)):
        for checksum in CHECKSUMS:
            checksum(array, start, length)
        codecs.xxhash32(array, start, length)
    starts, lengths = np.zeros(1, np.int64), np.full(1, length, np.int64)
    hashes.fill_murmur2(array, starts, lengths, 1, np.zeros(1, np.int64))
    hashes.fill_hash128(array, starts, lengths, 1, np.ones(2, np.uint64), np.zeros((1, 2), np.uint64))


@pytest.mark.parametrize("codec", [twin.SNAPPY, twin.LZ4])
def test_blocks_of_any_length_into_room_of_any_length(codec):
    source, target = Guarded(LARGEST), Guarded(LARGEST)
    for size in [*range(1, 70, 1 if not JIT_DISABLED else 9), 300, 65536, 65537]:
        rng = random.Random(size)
        plain = rng.randbytes(size // 2) + b"ab" * (size // 4) + bytes(size % 4)
        packed = twin.compress(codec, plain)
        array = source.holding(packed)
        for room in {len(plain), max(len(plain) - 1, 0), len(plain) // 2}:
            out = target.array(room)
            if codec == twin.SNAPPY:
                raw = source.holding(twin.snappy_raw(plain))
                snappy.uncompress(raw, 0, len(raw), out, 0, room)
                array = source.holding(packed)
                codecs.unframe_snappy(array, 0, len(packed), out, 0, room, 0)
                codecs.unframe_snappy(array, 0, len(packed), out, 0, room, FUNCTIONS.addresses[codecs.SNAPPY])
            else:
                codecs.unframe_lz4(array, 0, len(packed), True, out, 0, room, FUNCTIONS.addresses[codecs.LZ4])


def test_the_encoder_keeps_to_the_room_that_it_asks_for():
    room = Guarded(LARGEST)
    for size in [*range(40), 62, 63, 64, 65, 1000]:
        key = room.holding(bytes(size))
        columns = np.zeros((records.RECORD_COLUMNS, 1), np.int64)
        columns[records.OFFSET], columns[records.TIMESTAMP] = 1 << 40, 1 << 62
        columns[records.KEY_LENGTH], columns[records.VALUE_LENGTH] = size, -1
        needed = t.HEADER_SIZE + encode.RECORD_OVERHEAD + size
        out = Guarded(2 * PAGE).array(needed)
        limits = np.array([1 << 30, 1 << 30, 0, 0, -1, 1 << 62], np.int64)
        table = t.new_table(1)
        empty = np.zeros((encode.HEADER_COLUMNS, 0), np.int64)
        assert encode.fill_batches(columns, 1, key, key, empty, key, key, limits, out, 0, table, 0, 0) == (1, 1)
        table[t.ATTRIBUTES] = 0
        encode.write_headers(out, table, 1)


def past_the_end(size):
    """Exit status of a process that reads the eleventh byte of an array of `size` bytes."""
    code = (
        "import numba\n"
        "from tests.native.guarded import Guarded\n"
        f"array = Guarded({size}).array({size})\n"
        "read = numba.njit(lambda a, i: a[i])\n"
        "assert read(array, 9) == 0\n"
        "read(array, 10)\n"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode


def test_the_guard_bites():
    """A read one byte behind a guarded array kills the process, or is an IndexError where there is no JIT."""
    assert past_the_end(10) == 1 if JIT_DISABLED else past_the_end(10) < 0
    assert past_the_end(11) == 0
