"""Repacking: the same records in the same batches, compressed otherwise, in fewer segments."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kseg
from kseg.compaction import repack
from kseg.errors import OptionError
from tests.builders import LogBuilder
from tests.cli.calls import call
from tests.compaction.rounds import CODECS, Setup
from tests.scale import counts


def without_codec(batches: list[dict], sealed: int) -> list[dict]:
    """What must not change: all of a batch but its codec and, where segments were merged, its segment."""
    return [
        {name: value for name, value in batch.items() if name not in ("codec", "segment")}
        for batch in batches
        if batch["base"] < sealed
    ]


@pytest.mark.parametrize("seed", range(counts(10)))
def test_kafka_reads_the_same_records_from_what_was_repacked(oracle, tmp_path, seed):
    directory = tmp_path / "data" / "t-0"
    oracle.gen(directory, seed, 100, **Setup(seed).options)
    before = oracle.dump(directory)
    state = oracle.load(shutil.copytree(directory, tmp_path / "before" / "t-0"))
    codec = CODECS[(seed + 2) % 5]
    report = repack(tmp_path / "data", codec=codec)
    (done,) = report.partitions
    assert (done.error, done.skipped) == (None, None)
    after = oracle.dump(directory)
    sealed = kseg.open_log(directory).segments[-1].base_offset
    assert without_codec(after, sealed) == without_codec(before, sealed)
    changed = {
        b["codec"] for b in after if b["base"] < sealed and b["magic"] == 2 and b["records"] and not b["control"]
    }
    assert changed <= {codec}
    assert done.segments_after < done.segments_before
    loaded = oracle.load(shutil.copytree(directory, tmp_path / "after" / "t-0"))
    for name in ("logStart", "logEnd", "lastStable", "producers", "epochs"):
        assert loaded[name] == state[name], name
    for path in directory.glob("*.txnindex"):
        assert path.stat().st_size % 34 == 0


def rows_of(directory: Path) -> list[dict]:
    return [row for batch in kseg.open_log(directory).read() for row in batch.to_pylist()]


@pytest.fixture
def orders(tmp_path) -> Path:
    builder = LogBuilder(tmp_path / "data").segment().batch(records=50)
    return builder.segment().batch(records=50, codec="gzip").segment().record(b"k", b"v").write()


def test_a_dry_run_says_what_it_would_come_to(orders):
    before = {p.name: p.read_bytes() for p in orders.iterdir()}
    planned = repack(orders, codec="zstd", dry_run=True)
    assert {p.name: p.read_bytes() for p in orders.iterdir()} == before
    rows = rows_of(orders)
    done = repack(orders, codec="zstd", level=3)
    assert planned.partitions[0].bytes_after == done.partitions[0].bytes_after < done.partitions[0].bytes_before
    assert rows_of(orders) == rows


def test_segments_stay_apart_where_they_do_not_fit(orders):
    size = max(path.stat().st_size for path in orders.glob("*.log"))
    report = repack(orders, codec="lz4", segment_bytes=size)
    assert report.partitions[0].segments_after == 2


@pytest.mark.parametrize(
    "wrong", [{"codec": "brotli"}, {"codec": "zstd", "level": 99}, {"codec": "snappy", "level": 1}]
)
def test_wrong_codecs_are_refused(orders, wrong):
    with pytest.raises(OptionError):
        repack(orders, **wrong)


def test_the_command_line_repacks(orders):
    answer = call("repack", orders, "--codec", "zstd", "--json")
    assert answer.status == 0, answer.messages
    assert answer.objects[0]["segments_after"] == 1
    assert answer.objects[1]["summary"]["codec"] == "zstd"
    assert call("repack", orders, "--codec", "rar").status == 2
