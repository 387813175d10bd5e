"""One workload on executors in processes of their own, and through Spark Connect; other tests have local sessions."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kseg
from kseg.datasource import daemon
from kseg.datasource.worker import begin_task
from kseg.native.warmup import warm_up
from kseg.views.registry import read_view
from tests.datasource.spark_session import environment
from tests.datasource.test_golden_reads import LATE
from tests.datasource.workload import STEPS, TOPICS, VIEWS, digest, one_frame
from tests.golden.manifest import FOLDER
from tests.kafka.jars import Missing, java

pytestmark = pytest.mark.timeout(900)  # a JVM or three for each place: seconds here, minutes on a crowded machine

DATA = str(FOLDER / "before")
PLACES = ("cluster", "connect")
_COUNTS = [[0, 1482], [1, 1518]]
_NAMES = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


def expected(step):
    """What a consumer read, or what kseg gives without Spark."""
    if step in ("batch", "scan", "stream", "export"):
        rows = pq.read_table(FOLDER / "before.parquet").to_pylist()
        names = ("topic", "partition", "offset", "timestamp_ms", "key", "value")
        wanted = [r for r in rows if r["topic"] in TOPICS.split(",")]
        wanted = [r for r in wanted if r["committed"] or (r["topic"], r["partition"], r["offset"]) == LATE]
        return digest(tuple(r[name] for name in names) for r in wanted)
    if step == "views":
        return {view: sum(batch.num_rows for batch in read_view(view, _logs(view))) for view in VIEWS}
    return {
        "sql": {"plain_view": _COUNTS, "plain_table": _COUNTS, "joined": 3000, "columns": _NAMES},
        "one_frame": [3000, 1518, 3000, 3000, 3000, 3000, 1482, 6000, 3000],
        "framing": [7, "payload"],
        "wrong": True,
    }[step]


def _logs(view):
    logs = list(kseg.open_dir(DATA))
    return [log for log in logs if not log.topic.startswith("__")] if view in ("batches", "segments") else logs


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of the workload in a place; each place runs it once, on a cache that holds all kernels."""
    warm_up()
    found = {}

    def run(place):
        if place not in found:
            folder = tmp_path_factory.mktemp(place)
            found[place] = _run_elsewhere(place, folder)
        return found[place]

    return run


def _run_elsewhere(place, folder):
    try:
        java()
    except Missing as missing:
        pytest.skip(str(missing))
    variables = {**os.environ, **environment()}
    command = [sys.executable, "-m", "tests.datasource.elsewhere", place, DATA, str(folder)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("place", PLACES)
def test_results_are_the_same_everywhere(results, place, step):
    assert results(place)[step] == expected(step)


def test_one_frame_is_right_however_often_it_is_used(spark, tmp_path):
    assert one_frame(spark, DATA, tmp_path) == expected("one_frame")


def test_the_places_are_what_they_are_called(results):
    assert results("cluster")["executors"] == 2
    assert results("connect")["client"].startswith("pyspark.sql.connect")


def test_the_first_task_of_a_worker_compiles_no_kernel_that_the_cache_holds(results):
    tasks = results("cluster")["kernels"]
    assert len({task["pid"] for task in tasks}) == 2
    for task in tasks:
        assert task["records"] > 50_000
        assert task["loaded"] > 0
        assert task["compiled"] == 0
        assert not task["warm"]


def test_workers_of_the_daemon_start_with_the_kernels_loaded(results):
    tasks = results("connect")["kernels"]
    assert [task["warm"] for task in tasks] == [True, True]
    assert all(task["frozen"] > 50_000 for task in tasks)
    assert [task["compiled"] for task in tasks] == [0, 0]
    assert tasks[0]["records"] == results("cluster")["kernels"][0]["records"]


def test_what_is_loaded_is_not_collected_over_and_over(spark):
    def count_frozen(batches):
        from kseg.datasource.worker import begin_task

        for _ in range(3):  # as many tasks
            begin_task()
        yield from (pa.RecordBatch.from_pylist([{"frozen": gc.get_freeze_count()}]) for _ in batches)

    assert spark.range(0, 1, 1, 1).mapInArrow(count_frozen, "frozen long").first().frozen > 10_000
    before = gc.get_freeze_count()
    for _ in range(3):
        begin_task()
    assert gc.get_freeze_count() == before  # this is no worker


def test_a_daemon_that_cannot_load_the_kernels_starts_cold_and_says_so(monkeypatch, capsys):
    def fail():
        raise OSError("the cache is on a disk that is gone")

    monkeypatch.setattr("kseg.native.warmup.warm_up", fail)
    daemon.load()
    assert "workers start cold" in capsys.readouterr().err


def test_the_daemon_starts_no_threads_of_python_or_numpy(tmp_path):
    code = """
import os
from kseg.datasource.daemon import load
load()
print([open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = json.loads(done.stdout.replace("'", '"'))
    # Arrow's allocator has a thread for its own upkeep, and starts it again in a fork
    assert len([name for name in names if not name.startswith("jemalloc")]) == 1
