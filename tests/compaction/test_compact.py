"""The job around a round: what is refused, what is left as it was, what a second run does."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import kseg
from kseg.compaction import CleanerConfig, compact, repack
from kseg.compaction.estimate import estimate
from kseg.errors import OptionError
from kseg.log.lock import DirLock
from kseg.log.names import CLEAN_SHUTDOWN_FILE
from tests.builders import LogBuilder
from tests.cli.calls import call, run
from tests.reference.record import Record

CONFIG = CleanerConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
NOW = 1_800_000_000_000


def keyed(builder: LogBuilder, keys: int, rounds: int, codec: str = "none") -> LogBuilder:
    for number in range(rounds):
        for key in range(keys):
            builder.record(b"k%d" % key, b"v%d-%d" % (key, number), codec=codec)
    return builder


@pytest.fixture
def orders(tmp_path) -> Path:
    """Two sealed segments with the same ten keys, and an active one."""
    builder = LogBuilder(tmp_path / "data")
    keyed(builder.segment(), 10, 3)
    keyed(builder.segment(), 10, 2, "zstd")
    return builder.segment().record(b"k0", b"last").write()


def content(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def values_of(directory: Path) -> dict[bytes, bytes]:
    return {row["key"]: row["value"] for batch in kseg.open_log(directory).read() for row in batch.to_pylist()}


def test_one_record_a_key_is_left_and_a_second_run_changes_nothing(orders):
    before = values_of(orders)
    (done,) = compact(orders, config=CONFIG, now_ms=NOW).partitions
    assert (done.error, done.skipped) == (None, None)
    assert (done.records_before, done.records_after, done.superseded, done.keys) == (50, 10, 40, 10)
    assert done.bytes_after < done.bytes_before
    assert values_of(orders) == before
    left = content(orders.parent)
    (again,) = compact(orders, config=CONFIG, now_ms=NOW + 1).partitions
    assert again.skipped is not None and "nothing to clean" in again.skipped
    assert content(orders.parent) == left


def test_a_dry_run_and_an_estimate_change_nothing_and_take_no_lock(orders):
    before = content(orders.parent)
    copy = shutil.copytree(orders.parent, orders.parent.parent / "copy")
    real = compact(copy / orders.name, config=CONFIG, now_ms=NOW)
    with DirLock(orders.parent):  # held by this process: another would be refused
        answer = run("compact", orders, "--cleanup-policy", "compact", "--dry-run", "--now", NOW, "--json")
        guess = run("compact", orders, "--cleanup-policy", "compact", "--estimate", "--json")
    assert (answer.status, guess.status) == (0, 0), answer.messages + guess.messages
    dry = answer.objects[0]
    for name in ("bytes_after", "records_after", "superseded", "checkpoint", "segments_after"):
        assert dry[name] == getattr(real.partitions[0], name)
    assert guess.objects[0]["records"] == 50
    assert guess.objects[0]["keys"] == 10
    assert {name: data for name, data in content(orders.parent).items() if name != ".lock"} == before


def test_a_held_directory_is_refused_with_status_3(orders):
    with DirLock(orders.parent):
        answer = run("compact", orders, "--cleanup-policy", "compact")
    assert answer.status == 3
    assert "lock" in answer.messages


@pytest.mark.parametrize("policy", [None, "delete", ""])
def test_a_policy_that_is_unknown_or_empty_or_not_compact_is_refused(orders, policy):
    before = content(orders.parent)
    flags = () if policy is None else ("--cleanup-policy", policy)
    answer = call("compact", orders, *flags)
    assert answer.status == 2
    assert "cleanup.policy" in answer.text
    assert {name: data for name, data in content(orders.parent).items() if name != ".lock"} == before


def test_damage_stops_its_partition_alone(tmp_path):
    for topic in ("bad", "good"):
        builder = keyed(LogBuilder(tmp_path / "data", topic).segment(), 5, 2)
        (builder.corrupt(byte=70) if topic == "bad" else builder).segment().record(b"z", b"z").write()
    before = content(tmp_path / "data" / "bad-0")
    report = compact(tmp_path / "data", topics=["bad", "good"], config=CONFIG, now_ms=NOW)
    bad, good = sorted(report.partitions, key=lambda p: p.topic)
    assert "checksum" in bad.error and ".log" in bad.error
    assert good.records_after == 5
    assert content(tmp_path / "data" / "bad-0") == before


@pytest.mark.parametrize(
    "written", [b"\x00" * 20, b"0\n1\norders zero 3\n", b"7\n0\n"], ids=["zeros", "no number", "version"]
)
def test_a_corrupt_cleaner_checkpoint_failed_a_partition_that_was_compacted(orders, written):
    checkpoint = orders.parent / "cleaner-offset-checkpoint"
    checkpoint.write_bytes(written)
    (orders.parent / CLEAN_SHUTDOWN_FILE).write_bytes(b"clean")
    (done,) = compact(orders, config=CONFIG, now_ms=NOW).partitions
    assert (done.error, done.records_after) == (None, 10)
    assert checkpoint.read_bytes() == b"0\n1\norders 0 50\n"
    assert (orders.parent / CLEAN_SHUTDOWN_FILE).read_bytes() == b"clean"


def test_a_cleaner_checkpoint_that_cannot_be_read_is_told_before_anything_changes(orders):
    (orders.parent / "cleaner-offset-checkpoint").mkdir()
    before = content(orders)
    (done,) = compact(orders, config=CONFIG, now_ms=NOW).partitions
    assert "cleaner-offset-checkpoint" in done.error
    assert content(orders) == before


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_damage_that_a_sample_found_was_told_without_the_file(tmp_path, codec):
    builder = LogBuilder(tmp_path / "data").segment().batch(records=5)
    builder.segment().batch(records=5, codec=codec).corrupt(61, repair=True)
    directory = builder.segment().record(b"k", b"v").write()
    segment = sorted(directory.glob("*.log"))[1]
    (done,) = compact(directory, config=CONFIG, now_ms=NOW).partitions
    assert done.error.startswith(f"{segment}, byte 0, offset 5: ")
    (guessed,) = estimate(directory, config=CONFIG, now_ms=NOW).partitions
    assert guessed.error == done.error


@pytest.mark.parametrize("strategy", ["memory", "spill"])
def test_damage_in_what_was_cleaned_before_is_told_before_the_first_group_is_replaced(tmp_path, strategy):
    builder = LogBuilder(tmp_path / "data")
    for _ in range(3):
        keyed(builder.segment(), 5, 2)
    directory = builder.corrupt(byte=64).segment().record(b"k0", b"x").segment().record(b"k0", b"y").write()
    before = content(directory)
    config = dataclasses.replace(CONFIG, segment_bytes=100, strategy=strategy)
    (done,) = compact(directory, config=config, now_ms=NOW, first_dirty=30).partitions
    assert "checksum" in done.error
    assert content(directory) == before
    (repacked,) = repack(directory, codec="zstd", segment_bytes=100).partitions
    assert "checksum" in repacked.error
    assert content(directory) == before


def test_a_copy_is_compacted_and_the_log_is_left_alone(orders, tmp_path):
    before = content(orders)
    report = compact(orders, config=CONFIG, now_ms=NOW, output=tmp_path / "out")
    assert not report.failed
    assert content(orders) == before
    copy = tmp_path / "out" / orders.name
    assert values_of(copy) == values_of(orders)
    assert sum(p.stat().st_size for p in copy.glob("*.log")) < sum(p.stat().st_size for p in orders.glob("*.log"))
    assert not list(copy.glob(".kseg*"))
    with pytest.raises(OptionError, match="there already"):
        compact(orders, config=CONFIG, now_ms=NOW, output=tmp_path / "out")


def test_the_speed_of_a_round_was_missing_in_what_programs_read(orders):
    answer = call("compact", orders, "--cleanup-policy", "compact", "--min-cleanable-dirty-ratio", "0", "--json")
    done = answer.objects[0]
    assert done["bytes_per_second"] == pytest.approx(done["bytes_before"] / sum(done["seconds"].values()), abs=1)


def test_a_copy_that_is_there_already_ended_with_status_1_behind_the_copies_of_others(orders, tmp_path):
    shutil.copytree(orders, orders.parent / "bills-0")
    (tmp_path / "out" / orders.name).mkdir(parents=True)
    flags = ("--topics", "bills,orders", "--cleanup-policy", "compact", "--output", tmp_path / "out")
    answer = call("compact", orders.parent, *flags)
    assert (answer.status, "there already" in answer.messages) == (2, True)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [orders.name]


def test_two_brokers_copies_of_one_partition_went_to_one_place_and_the_second_one_failed(orders, tmp_path):
    shutil.copytree(orders, tmp_path / "both" / "b1" / orders.name)
    shutil.copytree(orders, tmp_path / "both" / "b2" / orders.name)
    flags = ("--topics", "orders", "--cleanup-policy", "compact", "--output", tmp_path / "out")
    answer = call("compact", tmp_path / "both", *flags)
    assert (answer.status, "two partitions" in answer.messages) == (2, True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("below", ["", "copies/of/it"])
def test_a_copy_inside_of_its_own_log_is_refused(orders, below):
    before = content(orders)
    with pytest.raises(OptionError, match="inside of the partition"):
        compact(orders, config=CONFIG, now_ms=NOW, output=orders / below)
    answer = call("compact", orders, "--cleanup-policy", "compact", "--output", orders / below)
    assert answer.status == 2
    assert content(orders) == before
    assert not [path for path in orders.iterdir() if path.is_dir()]


@pytest.mark.parametrize("below", ["copies", "copies/deeper", "others-0", "others-0/copies"])
def test_a_copy_in_the_way_of_a_broker_is_refused(orders, below):
    """A broker does not start on a log directory with a folder in it that is no partition's."""
    shutil.copytree(orders, orders.parent / "others-0")
    (orders.parent / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    before = content(orders.parent)
    with pytest.raises(OptionError, match="inside of"):
        compact(orders, config=CONFIG, now_ms=NOW, output=orders.parent / below)
    assert content(orders.parent) == before
    assert not (orders.parent / "copies").exists()


def test_a_copy_into_a_directory_that_is_in_use_is_refused_with_status_3(orders, tmp_path):
    (tmp_path / "other").mkdir()
    with DirLock(tmp_path / "other"):
        answer = run("compact", orders, "--cleanup-policy", "compact", "--output", tmp_path / "other")
    assert answer.status == 3
    assert [path.name for path in (tmp_path / "other").iterdir()] == [".lock"]


def test_what_a_dead_run_left_of_a_copy_goes_and_what_another_job_is_making_stays(orders, tmp_path):
    output = tmp_path / "out"
    dead, alive = (output / f"orders-0.{b'kseg'.hex()}{digit * 24}-delete" for digit in "ab")
    others = [output / f"{name}-delete" for name in (f"orders-0.{'c' * 32}", f"orders-1.{b'kseg'.hex()}{'d' * 24}")]
    for folder in (dead, alive, *others):
        (folder / ".kseg" / "work-1").mkdir(parents=True)
        (folder / ".kseg" / "work-1" / "dropped").write_bytes(b"some")
        (folder / "00000000000000000000.log").write_bytes(b"some")
    held = os.open(alive, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not compact(orders, config=CONFIG, now_ms=NOW, output=output).failed
    finally:
        os.close(held)
    found = sorted(path for path in output.iterdir() if path.is_dir())
    assert found == sorted([output / "orders-0", alive, *others])


@pytest.mark.parametrize("strategy", ["memory", "spill"])
def test_null_keys_are_counted_and_no_stray_files_are_left(tmp_path, strategy):
    builder = LogBuilder(tmp_path / "data").segment()
    builder.record(None, b"lost").record(b"k", b"1").record(b"k", None).record(b"", b"empty key")
    directory = builder.segment().record(b"z", b"z").write()
    config = CleanerConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, strategy=strategy)
    (done,) = compact(directory, config=config, now_ms=NOW).partitions
    assert (done.null_keys, done.tombstones_kept, done.records_after) == (1, 1, 2)
    assert not [p for p in directory.rglob("*") if p.suffix in (".cleaned", ".swap", ".deleted") or p.is_dir()]


def test_offsets_that_are_far_apart_take_no_memory(tmp_path):
    """There is a bit for each offset only where that fits the budget; else keys are looked up."""
    builder = LogBuilder(tmp_path / "data").segment().record(b"a", b"1").record(b"b", b"2")
    directory = builder.segment(10**13).record(b"a", b"3").segment(10**13 + 5).record(b"z", b"z").write()
    (done,) = compact(directory, config=CONFIG, now_ms=NOW).partitions
    assert (done.error, done.superseded, done.records_after) == (None, 1, 2)
    assert values_of(directory) == {b"a": b"3", b"b": b"2", b"z": b"z"}


def test_records_that_share_an_offset_are_told_apart_by_their_keys(tmp_path):
    """No broker writes such a batch, but whoever does loses only what is superseded."""
    twins = [Record(0, NOW, b"a", b"1", ()), Record(0, NOW, b"b", b"2", ())]
    builder = LogBuilder(tmp_path / "data").segment().batch(twins, last_offset_delta=1).record(b"a", b"3")
    directory = builder.segment().record(b"z", b"z").write()
    before = content(directory)
    (refused,) = compact(directory, config=CONFIG, now_ms=NOW, strategy="spill").partitions
    assert "share an offset" in refused.error  # files tell of superseded records by offset alone
    assert content(directory) == before
    (done,) = compact(directory, config=CONFIG, now_ms=NOW, strategy="memory").partitions
    assert (done.error, done.superseded, done.records_after) == (None, 1, 2)


def test_ten_times_more_keys_than_the_budget_give_the_same_files(tmp_path):
    directory, rows = tmp_path / "data" / "orders-0", 400_000
    with kseg.create_log(directory, config=kseg.LogConfig(segment_bytes=8 << 20)) as writer:
        keys = pa.array([b"key-%07d" % (number * 7919 % rows) for number in range(rows)], pa.binary())
        writer.append(pa.table({"key": keys, "value": keys}))
        writer.append(pa.table({"key": keys[: rows // 2], "value": keys[: rows // 2]}))
    copy = shutil.copytree(directory, tmp_path / "copy" / directory.name)
    spilled = compact(directory, config=CONFIG, now_ms=NOW, memory_budget=1 << 20, first_dirty=0)
    in_memory = compact(copy, config=CONFIG, now_ms=NOW, memory_budget=1 << 30, first_dirty=0)
    assert [p.strategy for p in (*spilled.partitions, *in_memory.partitions)] == ["spill", "memory"]
    assert spilled.partitions[0].keys == in_memory.partitions[0].keys
    assert spilled.partitions[0].keys * 24 > 9 * (1 << 20)
    assert content(directory) == content(copy)


def test_ten_times_more_keys_than_the_budget_stay_within_it(tmp_path):
    """Beside the keys there is what both passes work on: buffers of two threads, and pieces that wait to be written."""
    budget, fixed, rows = 8 << 20, 96 << 20, 3_600_000
    small = LogBuilder(tmp_path / "small").segment().record(b"k", b"1").segment().record(b"k", b"2").write()
    directory = tmp_path / "data" / "orders-0"
    with kseg.create_log(directory, config=kseg.LogConfig(segment_bytes=64 << 20)) as writer:
        for first in range(0, rows, 200_000):
            keys = pa.array([b"key-%08d" % number for number in range(first, first + 200_000)], pa.binary())
            writer.append(pa.table({"key": keys, "value": keys}), codec="lz4")
        writer.roll()
        writer.append(pa.table({"key": [b"end"], "value": [b"end"]}))
    told = measured(small, directory, budget)
    assert (told["error"], told["strategy"], told["keys"]) == (None, "spill", rows)
    assert told["keys"] * 24 > 10 * budget
    assert told["grown"] < budget + fixed, f"{told['grown'] / (1 << 20):.0f} MiB"


def measured(small, directory, budget):
    """What a process of its own tells of a round."""
    command = [sys.executable, "-m", "tests.compaction.measured", str(small), str(directory), str(budget)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_what_a_sweep_puts_aside_stays_within_the_budget(tmp_path):
    """Nothing is superseded: all of the log would be put aside."""
    budget, fixed, rows = 64 << 20, 96 << 20, 200_000
    small = LogBuilder(tmp_path / "small").segment().record(b"k", b"1").segment().record(b"k", b"2").write()
    directory = tmp_path / "data" / "orders-0"
    values = pa.array([os.urandom(1600) for _ in range(1000)], pa.binary())
    with kseg.create_log(directory, config=kseg.LogConfig(segment_bytes=64 << 20)) as writer:
        for first in range(0, rows, 1000):
            keys = pa.array([b"key-%08d" % number for number in range(first, first + 1000)], pa.binary())
            writer.append(pa.table({"key": keys, "value": values}), codec="lz4")
        writer.roll()
        writer.append(pa.table({"key": [b"end"], "value": [b"end"]}))
    told = measured(small, directory, budget)
    assert (told["error"], told["strategy"], told["keys"]) == (None, "memory", rows)
    assert sum(file.stat().st_size for file in directory.glob("*.log")) > budget + 2 * fixed
    assert told["grown"] < budget + fixed, f"{told['grown'] / (1 << 20):.0f} MiB"
