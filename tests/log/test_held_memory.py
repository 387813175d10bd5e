"""What a read took is given back when it is over, and not when Python collects its garbage some time."""

from __future__ import annotations

import gc
import itertools
import struct

import pyarrow as pa
import pytest

import kseg
from tests.builders import LogBuilder


def flip_checksum(builder):
    builder.corrupt(byte=30)


def flip_offset(builder):
    entry = builder.batches[-1]
    entry.data = struct.pack(">q", 1) + entry.data[8:]


def break_payload(builder):
    builder.corrupt(byte=70, repair=True)


DAMAGES = {"none": lambda _: None, "checksum": flip_checksum, "order": flip_offset, "payload": break_payload}
READS = {
    "rows": lambda log: log.read(),
    "committed": lambda log: log.read(isolation="read_committed"),
    "offsets": lambda log: log.read(columns=["offset"]),
    "with batches": lambda log: log.read(columns=["offset", "value", "producerId"]),
    "headers": lambda log: log.batches(),
    "the first": lambda log: itertools.islice(log.read(batch_bytes=1 << 12), 1),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("read", READS)
def test_nothing_is_held_behind_a_read(tmp_path, damage, read):
    builder = LogBuilder(tmp_path)
    for _ in range(40):
        builder.batch(30, "lz4")
    DAMAGES[damage](builder)
    path = builder.batch(3).write()

    def run():
        try:
            for _ in READS[read](kseg.open_log(path)):
                pass
        except kseg.KsegError as error:
            return type(error).__name__
        return None

    first = run()  # with what stays for the whole process
    if damage == "none" or read == "rows":
        assert (first is None) == (damage == "none")
    gc.collect()
    gc.disable()
    try:
        before = pa.total_allocated_bytes()
        for _ in range(3):
            assert run() == first
        assert pa.total_allocated_bytes() == before
    finally:
        gc.enable()


@pytest.mark.parametrize("columns", [None, ["offset", "key"], ["value"]])
def test_a_record_batch_that_needs_little_holds_little(tmp_path, columns):
    builder = LogBuilder(tmp_path)
    for _ in range(200):
        builder.batch(30, "none")
    path = builder.write()

    def read(end):
        return list(kseg.open_log(path).read(0, end, columns=columns))

    everything = read(None)
    gc.collect()
    before = pa.total_allocated_bytes()
    first = read(40)
    assert pa.total_allocated_bytes() - before < 128 << 10
    assert pa.Table.from_batches(first).equals(pa.Table.from_batches(everything).slice(0, 40))
