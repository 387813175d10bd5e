"""Runs the tasks of a plan: in threads of this process, or on Spark. The results are the same.

Kernels release the GIL, so threads use every core. On Spark a plan is `range(n).mapInArrow`: only the pickled results,
which are small reports, pass through the JVM. This module does not import Spark; it calls the session that it is given.
"""

from __future__ import annotations

import collections
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any, TypeVar

import pyarrow as pa

from kseg.errors import KsegError
from kseg.progress import SILENT, Progress

Task = TypeVar("Task")
Result = TypeVar("Result")

_RESULT_SCHEMA = pa.schema([("task", pa.int64()), ("result", pa.binary())])
_SPARK_SCHEMA = "task long, result binary"


def run_tasks(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    spark: Any = None,
    workers: int | None = None,
    progress: Progress = SILENT,
    weights: Sequence[int] | None = None,
) -> list[Result | KsegError]:
    """Do `work` for every task; results stand in the order of the tasks.

    A task that fails with a KsegError has that error as its result, so that the others are done all the same; any other
    error ends the run.

    Args:
        work: A function of a module, with picklable tasks and results where a session is given.
        spark: A Spark session; None runs the tasks in this process.
        workers: Threads in this process; by default one per core.
        weights: What each task adds to `progress` when it is done; by default 1.
    """
    results: dict[int, Result | KsegError] = {}
    found = _run_on_spark(spark, work, tasks) if spark is not None else _run_here(work, tasks, workers)
    for number, result in found:
        results[number] = result
        progress.advance(1 if weights is None else weights[number])
    return [results[number] for number in range(len(tasks))]


def stream_tasks(
    work: Callable[[Task], Result], tasks: Iterable[Task], *, workers: int | None = None, ahead: int = 2
) -> Iterator[Result]:
    """Do `work` in threads of this process and give the results in the order of the tasks, as they are wanted.

    No more than `ahead` results a thread wait to be taken, so that memory is bounded whatever the number of tasks.
    """
    count = workers or os.cpu_count() or 1
    waiting: collections.deque[Future[Result]] = collections.deque()
    with ThreadPoolExecutor(count, thread_name_prefix="kseg") as pool:
        try:
            for task in tasks:
                waiting.append(pool.submit(work, task))
                if len(waiting) > count * ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _run_here(
    work: Callable[[Task], Result], tasks: Sequence[Task], workers: int | None
) -> Iterator[tuple[int, Result | KsegError]]:
    count = min(workers or os.cpu_count() or 1, len(tasks))
    if count <= 1:
        yield from ((number, _outcome(work, task)) for number, task in enumerate(tasks))
        return
    with ThreadPoolExecutor(count, thread_name_prefix="kseg") as pool:
        futures = {pool.submit(_outcome, work, task): number for number, task in enumerate(tasks)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _outcome(work: Callable[[Task], Result], task: Task) -> Result | KsegError:
    try:
        return work(task)
    except KsegError as error:
        return error


def _run_on_spark(
    spark: Any, work: Callable[[Task], Result], tasks: Sequence[Task]
) -> Iterator[tuple[int, Result | KsegError]]:
    if not tasks:
        return
    pickled = [pickle.dumps(task) for task in tasks]

    def run_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                outcome = _outcome(work, pickle.loads(pickled[number]))
                yield pa.record_batch([[number], [pickle.dumps(outcome)]], schema=_RESULT_SCHEMA)

    rows = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run_partition, _SPARK_SCHEMA).collect()
    for row in rows:
        yield row["task"], pickle.loads(row["result"])
