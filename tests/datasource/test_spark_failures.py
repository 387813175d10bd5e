"""What Spark itself raises under a job is a KsegError, and no fault of one partition."""

from __future__ import annotations

import pytest
from pyspark.errors import PythonException

import kseg
from kseg.compaction import CleanerConfig, compact, erase, repack
from kseg.log.names import CLEAN_SHUTDOWN_FILE, LOCK_FILE
from kseg.runner import spark_failures
from tests.builders import LogBuilder


class BrokenSession:
    """A session whose workers do not start."""

    def range(self, *_):
        raise PythonException("Traceback:\n  in worker.py\nModuleNotFoundError: No module named 'numpy'\n")

    def __getattr__(self, name):
        return self.range


JOBS = {
    "compact": lambda path, _, spark: compact(
        path, spark=spark, config=CleanerConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0)
    ),
    "erase": lambda path, _, spark: erase(path, keys=[b"k"], spark=spark),
    "repack": lambda path, _, spark: repack(path, codec="zstd", spark=spark),
    "verify": lambda path, _, spark: kseg.verify(path, spark=spark),
    "export": lambda path, home, spark: kseg.export(spark, path.parent, home / "lake"),
}


@pytest.mark.parametrize("job", JOBS)
def test_an_error_of_sparks_own_came_out_of_a_job(tmp_path, job):
    builder = LogBuilder(tmp_path / "data").segment().record(b"k", b"1").record(b"k", b"2")
    directory = builder.segment().record(b"k", b"3").write()
    (directory.parent / CLEAN_SHUTDOWN_FILE).write_text('{"version":0,"brokerEpoch":7}')
    (directory.parent / LOCK_FILE).touch()
    before = {path: path.is_file() and path.read_bytes() for path in directory.parent.rglob("*")}
    with pytest.raises(kseg.KsegError, match="Spark failed: ModuleNotFoundError: No module named 'numpy'"):
        JOBS[job](directory, tmp_path, BrokenSession())
    assert before == {path: path.is_file() and path.read_bytes() for path in directory.parent.rglob("*")}


def test_other_errors_stay_what_they_are():
    with pytest.raises(KeyError), spark_failures():
        raise KeyError("x")
