"""Headers read one by one are those that a walk over all bytes gives."""

from __future__ import annotations

import numpy as np
import pytest

from kseg.errors import CorruptRecordError, TruncatedError
from kseg.log import header_walk
from kseg.log.header_walk import HeaderWalker
from kseg.log.walk import BatchWalker, ReadOptions
from kseg.native import table as t
from kseg.storage import LocalStore, RateLimiter
from tests.builders import LogBuilder


def big(index):
    return b"k%d" % index, bytes([index % 251]) * 9000, ()


@pytest.fixture
def log(tmp_path):
    """Batches of 27 KB and more, markers, legacy messages, an empty batch."""
    builder = LogBuilder(tmp_path).segment()
    for number in range(40):
        builder.batch(builder.make(3, content=big), codec=("none", "zstd")[number % 2])
        if number % 8 == 3:
            builder.transaction(2, producer_id=number).control("abort", producer_id=number)
        if number % 11 == 5:
            builder.empty(2).legacy(builder.make(2, content=big), magic=1)
    return builder


def walked(path, *, end=None):
    with LocalStore().open(str(path)) as file:
        end = file.size if end is None else end
        walker = HeaderWalker(file, ReadOptions(), end=end, limiter=RateLimiter(None))
        found = [table.copy() for table in walker]
        walker.raise_if_torn()
    return np.concatenate(found, axis=1)


def expected(path):
    with LocalStore().open(str(path)) as file:
        chunks = BatchWalker(file, ReadOptions(), check=False)
        return np.concatenate([chunk.table[:, : chunk.rows].copy() for chunk in chunks], axis=1)


@pytest.mark.parametrize("sparse", [1, 1 << 40], ids=["headers alone", "all bytes"])
def test_headers_are_those_of_a_walk(log, monkeypatch, sparse):
    monkeypatch.setattr(header_walk, "SPARSE_BYTES", sparse)
    path = next(log.write().glob("*.log"))
    assert path.stat().st_size > 2 * header_walk.SAMPLE_BYTES
    assert np.array_equal(walked(path), expected(path))


@pytest.mark.parametrize("sparse", [1, 1 << 40], ids=["headers alone", "all bytes"])
def test_torn_and_broken_files_are_told_alike(log, monkeypatch, sparse):
    monkeypatch.setattr(header_walk, "SPARSE_BYTES", sparse)
    path = next(log.write().glob("*.log"))
    last = int(expected(path)[t.POSITION, -1])
    for end in (last + 5, last + 30, path.stat().st_size - 1):
        with pytest.raises(TruncatedError) as torn:
            walked(path, end=end)
        assert torn.value.position == last
    data = bytearray(path.read_bytes())
    data[last + 16] = 9
    path.write_bytes(data)
    with pytest.raises(CorruptRecordError, match="magic") as broken:
        walked(path)
    assert broken.value.position == last
