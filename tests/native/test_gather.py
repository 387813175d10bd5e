"""Headers and offsets in Arrow buffers against plain Python lists."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kseg.native import gather
from kseg.native import records as r
from tests.native.harness import Decoder
from tests.strategies import segments

NOTHING = np.empty(0, np.uint8)


def bitmap(rows, needed):
    return np.zeros((rows + 7) // 8, np.uint8) if needed else NOTHING


def binary(offsets, data, valid):
    buffers = [pa.py_buffer(valid) if len(valid) else None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


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
    places = decoder.columns[[r.HEADERS_START, r.HEADERS_COUNT]]
    ascii_only = gather.gather_headers(decoder.array, decoder.arena, places, count, *arrays.values())
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
