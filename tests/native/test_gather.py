"""Gathering into Arrow buffers against plain Python lists."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kseg.native import gather
from kseg.native import records as r
from kseg.native.memory import as_array
from tests.native.harness import Decoder
from tests.strategies import nullable_blobs, segments

NOTHING = np.empty(0, np.uint8)


def bitmap(rows, needed):
    return np.zeros((rows + 7) // 8, np.uint8) if needed else NOTHING


def binary(offsets, data, valid):
    buffers = [pa.py_buffer(valid) if len(valid) else None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


@given(st.lists(st.tuples(nullable_blobs(), st.booleans()), max_size=40), st.integers(0, 5))
def test_a_binary_column_from_two_places(fields, gap):
    data, arena, places = bytearray(b"\x99" * gap), bytearray(), []
    for content, in_arena in fields:
        target = arena if in_arena else data
        places.append((in_arena, len(target), -1 if content is None else len(content)))
        target += content or b""
        target += b"\x99" * gap
    starts = np.array([at + (len(data) if in_arena else 0) for in_arena, at, _ in places], np.int64)
    lengths = np.array([length for _, _, length in places], np.int64)
    size = int(np.maximum(lengths, 0).sum()) if len(fields) else 0
    offsets, out = np.zeros(len(fields) + 1, np.int32), np.full(size + 8, 0xEE, np.uint8)
    valid = bitmap(len(fields), any(content is None for content, _ in fields))
    gather.gather_binary(
        as_array(bytes(data)), as_array(bytes(arena)), starts, lengths, len(fields), offsets, out, valid
    )
    assert bytes(out[size:]) == b"\xee" * 8
    made = binary(offsets, out[:size], valid)
    made.validate(full=True)
    assert made.to_pylist() == [content for content, _ in fields]


def gathered_headers(decoder, count, totals):
    headers = int(totals[r.HEADERS])
    arrays = {
        "list_offsets": np.zeros(count + 1, np.int32),
        "list_bitmap": bitmap(count, True),
        "key_offsets": np.zeros(headers + 1, np.int32),
        "keys": np.full(int(totals[r.HEADER_KEY_BYTES]), 0xEE, np.uint8),
        "value_offsets": np.zeros(headers + 1, np.int32),
        "values": np.full(int(totals[r.HEADER_VALUE_BYTES]), 0xEE, np.uint8),
        "value_bitmap": bitmap(headers, bool(totals[r.NULL_HEADER_VALUES])),
    }
    ascii_only = gather.gather_headers(decoder.array, decoder.arena, decoder.columns, count, *arrays.values())
    return arrays, ascii_only


@given(segments())
def test_headers(case):
    decoder = Decoder(case.data)
    done = decoder.decode()
    arrays, ascii_only = gathered_headers(decoder, len(done.records), done.totals)
    keys = binary(arrays["key_offsets"], arrays["keys"], NOTHING).to_pylist()
    values = binary(arrays["value_offsets"], arrays["values"], arrays["value_bitmap"]).to_pylist()
    pairs = list(zip(keys, values, strict=True))
    bounds, valid = arrays["list_offsets"], np.unpackbits(arrays["list_bitmap"], bitorder="little")
    for index, record in enumerate(case.records):
        assert tuple(pairs[bounds[index] : bounds[index + 1]]) == record.headers
        assert bool(valid[index]) == bool(record.headers)
    assert bool(ascii_only) == all(key.isascii() for key in keys)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6), st.booleans()), max_size=10),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_offsets_from_headers_alone(rows, start, end):
    bases = np.array([base for base, _, _ in rows], np.int64)
    amounts = np.array([count for _, count, _ in rows], np.int64)
    skip = np.array([skipped for _, _, skipped in rows], np.bool_)
    out = np.zeros(int(amounts.sum()) if rows else 0, np.int64)
    written = gather.fill_offsets(bases, amounts, skip, start, end, out)
    expected = [
        offset
        for base, count, skipped in rows
        if not skipped
        for offset in range(base, base + count)
        if start <= offset < end
    ]
    assert list(out[:written]) == expected
