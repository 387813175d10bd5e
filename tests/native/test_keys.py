"""Hashes of keys, of decoded records and straight from batches, against the twins of tests/reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.native import codecs, keys, records
from kseg.native import table as t
from kseg.native.records import KEY_LENGTH, KEY_START, RECORD_COLUMNS
from tests.native.harness import Decoder
from tests.reference import batch as v2
from tests.reference import legacy
from tests.reference.hash128 import siphash128
from tests.reference.record import Record
from tests.strategies import nullable_blobs

KEY = np.array([1, 2], np.uint64)
START = 1_700_000_000_000


def columns_of(given_keys, in_arena=()):
    """Keys in `data`, or in the arena where their number is in `in_arena`."""
    data, arena = bytearray(b"\x99"), bytearray(b"\x98\x98")
    columns = np.full((RECORD_COLUMNS, len(given_keys)), -1, np.int64)
    places = []
    for number, key in enumerate(given_keys):
        target = arena if number in in_arena else data
        places.append((number in in_arena, len(target)))
        target += key or b""
    for number, (key, (there, start)) in enumerate(zip(given_keys, places, strict=True)):
        columns[KEY_START, number] = start + (len(data) if there else 0)
        columns[KEY_LENGTH, number] = -1 if key is None else len(key)
    return np.frombuffer(bytes(data), np.uint8).copy(), np.frombuffer(bytes(arena), np.uint8).copy(), columns


def hash_of(key):
    return np.frombuffer(siphash128(key, KEY.tobytes()), np.int64).tolist()


@given(st.lists(nullable_blobs(), max_size=20), st.sets(st.integers(0, 20)))
def test_hashes_are_siphash_of_the_keys(given_keys, in_arena):
    data, arena, columns = columns_of(given_keys, in_arena)
    hashes = np.full((len(given_keys), 2), 7, np.int64)
    keys.fill_key_hashes(data, arena, columns, len(given_keys), KEY, hashes)
    for key, found in zip(given_keys, hashes, strict=True):
        assert found.tolist() == ([7, 7] if key is None else hash_of(key))


@st.composite
def logs(draw):
    """Entries of all formats, one behind the other, and the records of each."""
    offset, made = draw(st.integers(0, 5)), []
    for _ in range(draw(st.integers(0, 6))):
        magic, codec = draw(st.integers(0, 2)), draw(st.sampled_from([0, 0, 1, 2, 3]))
        deltas = sorted(draw(st.sets(st.integers(0, 9), min_size=1, max_size=5)))[: 5 if codec or magic == 2 else 1]
        rows = [Record(offset + delta, START, draw(nullable_blobs()), draw(nullable_blobs())) for delta in deltas]
        if magic == 2:
            made.append((v2.encode_batch(rows, v2.Fields(offset, codec=codec)), rows))
        else:
            made.append((legacy.encode_set(rows, magic, codec), rows))
        offset += deltas[-1] + 1 + draw(st.integers(0, 3))
    return made


def entries_of(decoder, first_offset, at=0):
    """Run the kernel over all rows, with room for just what there is."""
    _, status = decoder.payloads()
    assert status == codecs.DONE
    rows = range(decoder.walk.rows)
    room = at + sum(max(int(count), 0) for count in decoder.walk.table[t.COUNT, : rows.stop])
    entries = np.full((room, 3), -7, np.int64)
    found = keys.fill_entries(
        decoder.array, decoder.arena, decoder.walk.table, rows, decoder.skip, decoder.starts, decoder.ends,
        first_offset, KEY, entries, at,
    )  # fmt: skip
    return entries, *found


@given(logs(), st.integers(0, 40), st.sets(st.integers(0, 5)), st.integers(0, 3))
def test_entries_are_the_keys_of_what_is_read(log, first, skipped, at):
    decoder = Decoder(b"".join(entry for entry, _ in log))
    for row in skipped & set(range(len(log))):
        decoder.skip[row] = True
    entries, count, stopped, status, in_order = entries_of(decoder, first, at)
    read = [record for number, (_, rows) in enumerate(log) if number not in skipped for record in rows]
    expected = [[*hash_of(one.key), one.offset] for one in read if one.key is not None and one.offset >= first]
    assert (stopped, status, in_order) == (len(log), records.DONE, True)
    assert entries[at:count].tolist() == expected
    assert (entries[:at] == -7).all()


def test_offsets_that_do_not_rise_are_told():
    for offsets in ([5, 5], [6, 5], [5, 9]):
        rows = [Record(offset, START, b"k", b"v") for offset in offsets]
        decoder = Decoder(v2.encode_batch(rows, v2.Fields(5, last_offset_delta=1)))
        assert entries_of(decoder, 0)[-2:] == (records.DONE, False)


@pytest.mark.parametrize(
    ("payload", "count", "status"),
    [
        (b"", 1, records.BAD_COUNT),
        (b"", -1, records.BAD_COUNT),
        (b"\x7e\x00\x00\x00\x01\x01\x00", 1, records.SHORT_PAYLOAD),
        (b"\x0c\x00\x00\x00\x08\x01\x00", 1, records.BAD_LENGTH),
        (b"\x0c\x00\x00\x00\x01\x01\x02", 1, records.BAD_HEADERS),
        (b"\x0c\x00\x00\x00\x01\x01\x00\x00", 1, records.LEFT_OVER),
    ],
)
def test_broken_records_are_refused(payload, count, status):
    sound = v2.encode_batch([Record(0, START, b"k", b"v")])
    decoder = Decoder(sound + v2.encode_payload(payload, count, v2.Fields(1)))
    _, filled, stopped, found, _ = entries_of(decoder, 0)
    assert (filled, stopped, found) == (1, 1, status)
