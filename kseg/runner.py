"""Runs the tasks of a plan: in threads of this process, or on Spark. The results are the same.

Kernels release the GIL, so threads use every core. On Spark a plan is `range(n).mapInArrow`: only the pickled results,
which are small reports, pass through the JVM. This module does not import Spark; it calls the session that it is given.

Progress on Spark: through Connect results arrive as tasks end. A classic session gives them all at the end, because its
`toLocalIterator` would run one task after the other; so its status tracker is asked meanwhile how many have ended.
"""

from __future__ import annotations

import collections
import contextlib
import os
import pickle
import threading
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

from kseg.errors import JobError, KsegError
from kseg.progress import SILENT, Progress

Task = TypeVar("Task")
Result = TypeVar("Result")

Submit: TypeAlias = Callable[[Callable[[], Any]], Future[Any]]
"""Has a thread do some work."""

_RESULT_SCHEMA = pa.schema([("task", pa.int64()), ("result", pa.binary())])
_SPARK_SCHEMA = "task long, result binary"
_JOB_GROUP = "spark.jobGroup.id"
SECONDS_BETWEEN_LOOKS = 0.5


@contextlib.contextmanager
def spark_failures() -> Iterator[None]:
    """Make a JobError of what Spark itself raises; for whole jobs, since it is no fault of one partition.

    Raises:
        JobError: Spark failed for a reason that is not kseg's.
    """
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        hint = "its own messages say where; its workers need a Python that has kseg (PYSPARK_PYTHON)"
        raise JobError(f"Spark failed: {spark_reason(error)}", hint=hint) from error


def spark_reason(error: Exception) -> str:
    """The last line of what an error of Spark says, which tells it; traces of Java and Python come before."""
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.toString())
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


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
    meter = _Meter(progress, [1] * len(tasks) if weights is None else weights)
    found = _run_on_spark(spark, work, tasks, meter) if spark is not None else _run_here(work, tasks, workers)
    for number, result in found:
        results[number] = result
        meter.is_done(number)
    return [results[number] for number in range(len(tasks))]


class _Meter:
    """Tells the progress of tasks, each by its weight when its result is here, or together by how many have ended."""

    def __init__(self, progress: Progress, weights: Sequence[int]) -> None:
        self._progress = progress
        self._weights = weights
        self._told = 0
        self._done = 0

    def is_done(self, number: int) -> None:
        """The result of a task is here."""
        self._done += self._weights[number]
        self._tell(self._done)

    def have_ended(self, count: int) -> None:
        """So many tasks have ended, and which is not known; taken for tasks of average weight."""
        self._tell(sum(self._weights) * count // max(len(self._weights), 1))

    def _tell(self, done: int) -> None:
        if done > self._told:
            self._progress.advance(done - self._told)
            self._told = done


def stream_tasks(
    work: Callable[[Task], Result],
    tasks: Iterable[Task],
    *,
    workers: int | None = None,
    ahead: int = 2,
    submit: Submit | None = None,
    stop: Callable[[], None] | None = None,
) -> Generator[Result]:
    """Do `work` in threads of this process and give the results in the order of the tasks, as they are wanted.

    No more than `ahead` results a thread wait to be taken, so that memory is bounded whatever the number of tasks. Who
    may leave before the last result closes the generator (`contextlib.closing`): left to the garbage collector, it can
    come to wait for its threads in the middle of a thread's start, for ever.

    Args:
        submit: Has threads do it that others use too, as many as `workers` says, instead of some of its own.
        stop: Is called before those that have begun are waited for, where tasks wait for others: some of these may
            never begin.
    """
    count = workers or os.cpu_count() or 1
    waiting: collections.deque[Future[Result]] = collections.deque()
    with ExitStack() as stack:
        if submit is None:
            submit = stack.enter_context(ThreadPoolExecutor(count, thread_name_prefix="kseg")).submit
        try:
            for task in tasks:
                waiting.append(submit(partial(work, task)))
                if len(waiting) > count * ahead:
                    yield _first(waiting)
            while waiting:
                yield _first(waiting)
        finally:
            if stop is not None:
                stop()
            _cancel(waiting)


def _cancel(waiting: collections.deque[Future[Result]]) -> None:
    """Wait for those that have begun, and forget all: one's error leads to who waits here, which would be a cycle."""
    for future in waiting:
        future.cancel()
    wait(waiting)
    waiting.clear()


def _first(waiting: collections.deque[Future[Result]]) -> Result:
    """The first result; its task counts as waiting until it is over, so that who is interrupted here waits for it."""
    result = waiting[0].result()
    waiting.popleft()
    return result


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
    spark: Any, work: Callable[[Task], Result], tasks: Sequence[Task], meter: _Meter
) -> Iterator[tuple[int, Result | KsegError]]:
    if not tasks:
        return
    pickled = [pickle.dumps(task) for task in tasks]

    def run_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                outcome = _outcome(work, pickle.loads(pickled[number]))
                yield pa.record_batch([[number], [pickle.dumps(outcome)]], schema=_RESULT_SCHEMA)

    frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run_partition, _SPARK_SCHEMA)
    context = getattr(spark, "sparkContext", None)  # a session of Connect has none
    for row in frame.toLocalIterator() if context is None else _collect(frame, context, meter):
        yield row["task"], pickle.loads(row["result"])


def _collect(frame: Any, context: Any, meter: _Meter) -> list[Any]:
    """The rows of a frame; while its job runs, a thread tells how many tasks have ended."""
    given = context.getLocalProperty(_JOB_GROUP)
    group = given or f"kseg-{uuid.uuid4().hex}"
    tracker = context.statusTracker()
    earlier = set(tracker.getJobIdsForGroup(group))
    over = threading.Event()

    def watch() -> None:
        while not over.wait(SECONDS_BETWEEN_LOOKS):
            try:
                meter.have_ended(_count_ended(tracker, set(tracker.getJobIdsForGroup(group)) - earlier))
            except Exception:  # a bar that stands still is no reason to end a job
                return

    watcher = threading.Thread(target=watch, name="kseg-progress", daemon=True)
    if given is None:
        context.setLocalProperty(_JOB_GROUP, group)
    watcher.start()
    try:
        rows: list[Any] = frame.collect()
        return rows
    finally:
        over.set()
        watcher.join()
        if given is None:
            context.setLocalProperty(_JOB_GROUP, None)


def _count_ended(tracker: Any, jobs: Iterable[int]) -> int:
    infos = [tracker.getJobInfo(job) for job in jobs]
    stages = [tracker.getStageInfo(stage) for info in infos if info is not None for stage in info.stageIds]
    return sum(stage.numCompletedTasks for stage in stages if stage is not None)
