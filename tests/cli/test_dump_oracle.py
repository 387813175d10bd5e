"""`kseg dump --records --json` against Kafka's own classes, batch by batch."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.builders import LogBuilder
from tests.cli.calls import call
from tests.scale import counts

KEYS = [
    "segment", "base", "last", "magic", "codec", "pid", "epoch", "seq", "leaderEpoch", "txn", "control", "tsType",
    "maxTs", "horizon", "records",
]  # fmt: skip
SETTINGS = [
    {},
    {"codec": "none", "rec": 1},
    {"codec": "lz4", "rec": 60},
    {"codec": "gzip", "legacy": 0.3},
    {"codec": "snappy", "legacy": 0.3, "lat": 1},
    {"codec": "zstd", "txn": 0.9, "life": 4},
    {"lat": 1, "gap": 0.5},
    {"legacy": 0.9, "roll": 0.2},
]
GOLDEN = Path(__file__).parent.parent / "golden"
PARTITIONS = sorted({path.parent.relative_to(GOLDEN).as_posix() for path in GOLDEN.glob("*/*/*.log")})


def assert_equal_dumps(oracle, directory):
    answer = call("dump", directory, "--records", "--json")
    assert (answer.status, answer.messages) == (0, "")
    expected = oracle.dump(directory)
    for line, batch in zip(answer.lines, expected, strict=True):
        assert list(json.loads(line)) == KEYS
        assert json.loads(line) == batch
    assert expected


@pytest.mark.parametrize("seed", range(1000, 1000 + counts(40)))
def test_random_logs_are_dumped_as_by_kafka(oracle, tmp_path, seed):
    oracle.gen(tmp_path / "random-0", seed, 120, **SETTINGS[seed % len(SETTINGS)])
    assert_equal_dumps(oracle, tmp_path / "random-0")


def test_surrogates_in_header_keys_were_replaced_byte_by_byte(oracle, tmp_path):
    """Of bytes that are not UTF-8 Java's decoder makes fewer replacements than Python's."""
    rng = random.Random(7)
    bytes_of_keys = [0x41, 0x80, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC3, 0xE0, 0xE2, 0xED, 0xEF, 0xF0, 0xF4, 0xF8, 0xFF]
    keys = [bytes(rng.choices(bytes_of_keys, k=rng.randrange(1, 7))) for _ in range(counts(1500))]
    keys += [b"\xed\xa0\x80", b"\xed\xbf", b"\xed\xa0A", b"\xed\xa0\x80\xed\xb0\x80", b"x\xed"]
    log = LogBuilder(tmp_path).segment()
    for at in range(0, len(keys), 100):
        log.record(b"k", b"v", headers=[(key, b"") for key in keys[at : at + 100]])
    assert_equal_dumps(oracle, log.write())


@pytest.mark.parametrize("partition", [name for name in PARTITIONS if name != "before/__consumer_offsets-1"])
def test_golden_partitions_are_dumped_as_by_kafka(oracle, golden, partition):
    assert_equal_dumps(oracle, golden / partition)


def test_an_empty_segment_has_no_batches(golden):
    answer = call("dump", golden / "before" / "__consumer_offsets-1", "--records", "--json")
    assert (answer.status, answer.data, answer.messages) == (0, b"", "")


def test_batches_of_every_kind_in_one_segment(oracle, tmp_path):
    log = (
        LogBuilder(tmp_path)
        .segment()
        .batch(4)
        .empty(3)
        .legacy(3, magic=0)
        .legacy(3, codec="gzip")
        .batch(2, codec="lz4")
    )
    log.transaction(2, producer_id=9).control("abort", producer_id=9).append_time(2, "zstd").empty(2).empty(1)
    log.legacy(2, codec="snappy", append_time=1_700_000_000_000)
    assert_equal_dumps(oracle, log.write())


def test_many_batches_that_need_several_decodes(oracle, tmp_path):
    """A chunk is decoded in as many goes as the arena needs; its batches must still get their own records."""
    log = LogBuilder(tmp_path).segment()
    for number in range(60):
        log.record(b"%d" % number, bytes(300_000), codec=("lz4", "zstd", "gzip", "none")[number % 4])
        log.empty(1)
        log.legacy(2, codec="lz4")
    assert_equal_dumps(oracle, log.write())


def test_the_oracle_stops_at_a_torn_batch_and_so_does_the_dump(oracle, tmp_path):
    path = LogBuilder(tmp_path).segment().batch(4).batch(3).batch(5).truncate(70).write()
    answer = call("dump", path, "--records", "--json")
    assert answer.objects == oracle.dump(path)
    assert answer.status == 1
    assert answer.messages.count("\n") == 1
    assert "00000000000000000000.log, byte" in answer.messages
    assert "the last 70 bytes are no whole batch" in answer.messages
