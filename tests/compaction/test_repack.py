"""Repacking: the same records in the same batches, compressed otherwise, in fewer segments."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import kseg
from kseg.compaction import repack
from kseg.errors import OptionError
from tests.builders import LogBuilder
from tests.cli.calls import call
from tests.compaction.rounds import CODECS, Setup
from tests.faults.memory import CLEAR, MIB
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


def rows_of(directory: Path, **options: object) -> list[dict]:
    return [row for batch in kseg.open_log(directory).read(**options) for row in batch.to_pylist()]


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


def test_the_metadata_log_is_refused_with_status_2(orders):
    kept = shutil.copytree(orders, orders.parent / "__cluster_metadata-0")
    answer = call("repack", kept, "--codec", "zstd")
    assert answer.status == 2
    assert "raft" in answer.text


# -- what grows ------------------------------------------------------------------------------------------------------


def cut_and_grown(directory: Path, **options: object) -> dict[str, object]:
    """Repack to what takes most room, after a dry run has told what that comes to."""
    (planned,) = repack(directory, codec="none", dry_run=True, **options).partitions
    (done,) = repack(directory, codec="none", **options).partitions
    assert done.error is None
    for name in ("segments_before", "segments_after", "bytes_before", "bytes_after"):
        assert getattr(done, name) == getattr(planned, name), name
    segments = kseg.open_log(directory).segments[:-1]
    assert done.segments_after == len(segments)
    assert done.bytes_after == sum(segment.size for segment in segments)
    return {segment.base_offset: segment for segment in segments}


@pytest.mark.parametrize("seed", range(counts(12)))
def test_what_grows_beyond_a_segment_is_cut_into_several(oracle, tmp_path, seed):
    """One new segment took the place of a group, however large it became."""
    directory, limit = tmp_path / "data" / "t-0", 2000 + 500 * (seed % 4)
    options = Setup(seed).options | {"codec": ("zstd", "gzip")[seed % 2], "rec": 20, "roll": 0.03}
    oracle.gen(directory, seed, 100, **options)
    before, old = oracle.dump(directory), kseg.open_log(directory)
    state = oracle.load(shutil.copytree(directory, tmp_path / "before" / "t-0"))
    shutil.copytree(directory, tmp_path / "source" / "t-0")
    committed = rows_of(directory, isolation="read_committed")
    aborted = old.aborted_transactions(0, old.end_offset)
    sealed = old.segments[-1].base_offset
    mtimes, bases = {s.mtime_ms for s in old.segments}, [s.base_offset for s in old.segments]

    made = cut_and_grown(directory, segment_bytes=limit, index_interval_bytes=256)

    after = oracle.dump(directory)
    assert without_codec(after, sealed) == without_codec(before, sealed)
    batches: dict[int, list[dict]] = {}
    for batch in after:
        batches.setdefault(int(str(batch["segment"]).partition(".")[0]), []).append(batch)
    assert len(made) > 3
    for base, segment in made.items():
        assert segment.size <= limit or len(batches[base]) == 1, base
        assert segment.mtime_ms in mtimes
        first = batches[base][0]
        assert base in (first["base"], first["records"][:1] and first["records"][0][0], *bases)
        end = min((other for other in made if other > base), default=sealed)
        assert all(base <= txn.last_offset < end for txn in segment.txn_index)
    assert [txn for base in made for txn in made[base].txn_index] == [t for t in aborted if t.last_offset < sealed]
    assert rows_of(directory, isolation="read_committed") == committed
    assert not [finding for finding in kseg.verify(directory).findings if finding.severity != "info"]
    for base in list(made)[1:]:
        assert base in bases or (directory / f"{base:020d}.snapshot").exists()
    place = random.Random(seed).choice(list(made)[1:])  # where a snapshot is all that Kafka has to go by
    cut = [
        oracle.truncate(shutil.copytree(source, tmp_path / f"cut-{number}" / "t-0"), place)
        for number, source in enumerate((tmp_path / "source" / "t-0", directory))
    ]
    assert cut[0]["producers"] == cut[1]["producers"]
    for clean in (True, False):
        loaded = oracle.load(shutil.copytree(directory, tmp_path / f"after-{clean}" / "t-0"), clean=clean)
        for name in ("logStart", "logEnd", "lastStable", "producers", "epochs"):
            assert loaded[name] == state[name], name


def test_a_batch_that_is_larger_than_a_segment_has_one_of_its_own(tmp_path):
    builder = LogBuilder(tmp_path / "data").segment().batch(records=2, codec="zstd").batch(records=90, codec="zstd")
    directory = builder.batch(records=2, codec="zstd").batch(records=2).segment().record(b"k", b"v").write()
    rows = rows_of(directory)
    made = cut_and_grown(directory, segment_bytes=400)
    assert list(made) == [0, 2, 92]
    assert made[2].size > 400 > max(made[0].size, made[92].size)
    assert rows_of(directory) == rows


def test_a_legacy_wrapper_begins_a_segment(oracle, tmp_path):
    builder = LogBuilder(tmp_path / "data").segment().batch(records=20, codec="zstd")
    for _ in range(3):
        builder.legacy(records=8, codec="gzip", magic=1)
    directory = builder.segment().record(b"k", b"v").write()
    before = oracle.dump(directory)
    made = cut_and_grown(directory, segment_bytes=300)
    assert list(made) == [0, 20, 28, 36]
    assert without_codec(oracle.dump(directory), 44) == without_codec(before, 44)


def test_damage_behind_what_waits_ends_a_repack(tmp_path, monkeypatch):
    """Threads that wait for their turn would wait for ever for a piece that failed."""
    monkeypatch.setattr("kseg.compaction.repack_job.PIECE_BYTES", 4096)
    monkeypatch.setattr("kseg.compaction.repack_job.WAITING_BYTES", 1)
    builder = LogBuilder(tmp_path / "data").segment()
    for number in range(40):
        builder.batch(records=30)
        if number == 11:
            builder.corrupt(byte=100)
    directory = builder.segment().record(b"k", b"v").write()
    before = {p.name: p.read_bytes() for p in directory.iterdir()}
    (failed,) = repack(directory, codec="lz4", workers=4).partitions
    assert "checksum" in failed.error
    assert {p.name: p.read_bytes() for p in directory.iterdir()} == before


@pytest.fixture(scope="module")
def squeezed(tmp_path_factory) -> tuple[Path, Path]:
    """A small log, and one that grows to twelve times its size."""
    made = []
    for name, batches in (("small", 2), ("large", 320)):
        path = tmp_path_factory.mktemp(name) / "t-0"
        with kseg.create_log(path) as writer:
            for number in range(batches):
                writer.append(pa.table({"value": [random.Random(number).randbytes(16 << 10)] * 64}), codec="zstd")
            writer.roll()
            writer.append(pa.table({"value": [b"v"]}))
        made.append(path)
    return made[0], made[1]


@pytest.mark.skipif(not CLEAR.exists(), reason="the peak of memory is Linux's to tell")
@pytest.mark.parametrize("way", ["threads", "task"])
def test_what_grows_to_many_times_its_size_is_not_held_in_memory(squeezed, way):
    """A piece was held whole as it came to be, and all pieces of a task on Spark."""
    small, large = squeezed
    command = [sys.executable, "-m", "tests.compaction.measured_repack", way, str(small), str(large)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout)
    assert answer["taken"] > 300 * MIB > 10 * (large / f"{0:020d}.log").stat().st_size
    assert answer["grown"] < 80 * MIB
