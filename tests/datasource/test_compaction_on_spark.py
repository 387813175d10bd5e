"""Compaction on Spark gives the files that it gives in process, byte for byte, with either strategy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pytest

from kseg.compaction import RemoteOptions, compact, erase, repack
from kseg.jobs.compact import main as run_job
from kseg.log.metadata import PartitionMetadata, write_partition_metadata
from kseg.log.partition import open_log
from kseg.tiering import offload
from tests.builders import LogBuilder
from tests.compaction.rounds import GrowingLog, Setup
from tests.datasource import compact_elsewhere
from tests.datasource.spark_session import SMALL_JVM, environment
from tests.reference.record import Record
from tests.scale import counts
from tests.tiering.tiers import TOPIC_ID


def files_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


@pytest.mark.parametrize("seed", range(counts(10)))
def test_spark_and_threads_write_the_same_files(spark, oracle, tmp_path, seed):
    setup = Setup(seed)
    log = GrowingLog(oracle, tmp_path, setup)
    for step in log.steps():
        copies = {}
        for strategy in ("memory", "spill"):
            copies[strategy] = tmp_path / f"{strategy}-{step.number}" / "t-0"
            shutil.copytree(log.ours, copies[strategy])
            config = setup.config(step.number, strategy=strategy)
            report = compact(
                copies[strategy], config=config, now_ms=step.now_ms, first_dirty=step.first_dirty, spark=spark
            )
            assert not report.failed
        report = compact(log.ours, config=setup.config(step.number), now_ms=step.now_ms, first_dirty=step.first_dirty)
        expected = files_of(log.ours)
        assert files_of(copies["memory"]) == expected
        assert files_of(copies["spill"]) == expected
        log.first_dirty = max(log.first_dirty, report.partitions[0].checkpoint)


def test_the_job_for_spark_submit_takes_the_arguments_of_the_command(spark, tmp_path, capsys):
    builder = LogBuilder(tmp_path / "data").segment().record(b"a", b"1").record(b"a", b"2")
    directory = builder.segment().record(b"z", b"z").write()
    flags = ["--cleanup-policy", "compact", "--min-cleanable-dirty-ratio", "0"]
    assert run_job([str(directory), *flags, "--output", str(tmp_path / "copies"), "--json"]) == 0
    done = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (done["error"], done["records_before"], done["records_after"]) == (None, 2, 1)
    assert [path.name for path in (tmp_path / "copies").iterdir() if path.is_dir()] == [directory.name]
    copy = open_log(tmp_path / "copies" / directory.name)
    assert [row["value"] for batch in copy.read() for row in batch.to_pylist()] == [b"2", b"z"]
    assert run_job([str(directory), "target", *flags]) == 2
    assert "unrecognized arguments: target" in capsys.readouterr().err


def test_the_job_ran_workers_of_another_python_than_its_own(tmp_path):
    """Spark took the first `python3` of the PATH, which had no numpy."""
    builder = LogBuilder(tmp_path / "data").segment().record(b"a", b"1").record(b"a", b"2")
    directory = builder.segment().record(b"z", b"z").write()
    flags = ["--cleanup-policy", "compact", "--min-cleanable-dirty-ratio", "0", "--json"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "VIRTUAL_ENV"))}
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "python3").write_text("#!/bin/sh\nexit 3\n")
    (bare / "python3").chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "kseg.jobs.compact", str(directory), *flags],
        env={**clean, "PATH": f"{bare}:{clean['PATH']}"}, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0])["records_after"] == 1


def test_records_that_share_an_offset_are_refused_by_the_shuffle(spark, tmp_path):
    """It tells of superseded records by offset alone, and would take the twin of one too."""
    twins = [Record(0, 1000, b"a", b"1", ()), Record(0, 1000, b"b", b"2", ())]
    builder = LogBuilder(tmp_path / "data").segment().batch(twins, last_offset_delta=1).record(b"a", b"3")
    directory = builder.segment().record(b"z", b"z").write()
    before = files_of(directory)
    config = compact_elsewhere.config()
    (refused,) = compact(directory, config=config, now_ms=2000, strategy="spill", spark=spark).partitions
    assert "share an offset" in refused.error
    assert files_of(directory) == before
    (done,) = compact(directory, config=config, now_ms=2000, strategy="memory", spark=spark).partitions
    assert (done.error, done.superseded, done.records_after) == (None, 1, 2)


def test_erasing_and_repacking_on_spark_write_the_same_files(spark, oracle, tmp_path):
    source = tmp_path / "source" / "t-0"
    oracle.gen(source, 3, 120, codec="lz4", roll=0.08)
    keys = sorted({row["key"] for batch in open_log(source).read() for row in batch.to_pylist() if row["key"]})[:3]
    frame = spark.createDataFrame([(bytearray(key),) for key in keys], "key binary")
    for job in (
        lambda path, session: erase(path, keys=frame if session else keys, spark=session),
        lambda path, session: erase(path, predicate=has_long_value, spark=session),
        lambda path, session: repack(path, codec="zstd", spark=session),
        lambda path, session: repack(path, codec="none", segment_bytes=4096, spark=session),
    ):
        results = []
        for session in (None, spark):
            copy = shutil.copytree(source, tmp_path / f"copy-{len(list(tmp_path.iterdir()))}" / "t-0")
            report = job(copy, session)
            assert not [place for place in report.to_dict().get("places", ()) if place["error"]]
            results.append(files_of(copy))
        assert results[0] == results[1]
        assert results[0] != files_of(source)


def test_rewriting_a_tier_on_spark_writes_the_same_objects(spark, oracle, tmp_path):
    source = tmp_path / "source" / "t-0"
    oracle.gen(source, 3, 160, codec="lz4", roll=0.04, keys=20)
    write_partition_metadata(str(source), PartitionMetadata(TOPIC_ID))
    offload(source, str(tmp_path / "tier"), layout="plain", archive=True)
    for job in (
        lambda tier, session: erase(tier, archive=True, predicate=has_long_value, spark=session, remote_options=NOW),
        lambda tier, session: compact(
            tier, archive=True, topics=["t"], config=compact_elsewhere.config(), now_ms=10**13, spark=session,
            remote_options=NOW,
        ),
    ):  # fmt: skip
        results = []
        for session in (None, spark):
            tier = shutil.copytree(tmp_path / "tier", tmp_path / f"copy-{len(list(tmp_path.iterdir()))}")
            assert not job(tier, session).failed
            results.append(objects_by_offset(tier))
        assert results[0] == results[1]
        assert results[0] != objects_by_offset(tmp_path / "tier")


NOW = RemoteOptions(grace_ms=0)


def objects_by_offset(tier):
    """Bytes of all objects, without the ids of their segments."""
    paths = [path for path in tier.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {(path.name[:20], path.suffix): path.read_bytes() for path in paths}


def has_long_value(batch):
    return pc.fill_null(pc.greater(pc.binary_length(batch.column("value")), 60), False)


def test_executors_of_their_own_write_the_same_files(tmp_path, oracle):
    """Two executors in JVMs of their own, which share nothing with the driver but the disk."""
    source = tmp_path / "source" / "t-0"
    oracle.gen(source, 5, 400, codec="zstd", keys=40, txn=0.5, roll=0.05)
    pairs, expected = [], []
    for job in ("memory", "spill", "erase", "repack"):
        pairs += [str(shutil.copytree(source, tmp_path / job / "t-0")), job]
        here = shutil.copytree(source, tmp_path / f"{job}-here" / "t-0")
        assert not compact_elsewhere.run(job, str(here))
        expected.append(files_of(here))
    (tmp_path / "spark").mkdir()
    command = [sys.executable, "-m", compact_elsewhere.__name__, str(tmp_path / "spark"), *pairs]
    done = subprocess.run(
        command, env=os.environ | environment(), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads((tmp_path / "spark" / "results.json").read_text())
    assert results == [False] * 4
    assert files_of(source) not in expected
    assert expected[0] == expected[1]
    assert [files_of(Path(path)) for path in pairs[::2]] == expected


@pytest.mark.parametrize(("python", "status"), [(None, 0), ("false", 1)])
def test_workers_of_a_local_master_run_with_the_python_of_the_call(tmp_path, python, status):
    """Where kseg was called by its path, workers ran with whatever python3 was, and had no numpy."""
    builder = LogBuilder(tmp_path / "data").segment().record(b"k", b"1").record(b"k", b"2")
    directory = builder.segment().record(b"k", b"3").write()
    others = {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}
    variables = {name: value for name, value in (os.environ | environment()).items() if name not in others}
    variables["JAVA_TOOL_OPTIONS"] = SMALL_JVM
    if python is not None:
        variables["PYSPARK_PYTHON"] = python
    command = [sys.executable, "-m", "kseg", "compact", str(directory), "--cleanup-policy", "compact", "--json"]
    done = subprocess.run(
        [*command, "--min-cleanable-dirty-ratio", "0", "--strategy", "spill", "--spark", "local[1]"],
        env=variables, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stderr[-3000:]
    if status:
        assert done.stderr.splitlines()[-1].startswith("kseg: Spark failed: ")
    else:
        assert json.loads(done.stdout.splitlines()[0])["records_after"] == 1
    assert not (directory / ".kseg").exists()
