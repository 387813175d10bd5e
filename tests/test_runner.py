"""Tasks give the same results in this process and on Spark; a task's own error does not stop the others."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future

import pytest

from kseg.errors import FormatError, KsegError
from kseg.progress import Progress
from kseg.runner import run_tasks, stream_tasks


def square(number: int) -> int:
    if number == 3:
        raise FormatError("three is bad", path="x", position=3)
    return number * number


class Counter(Progress):
    def __init__(self):
        self.total = 0

    def advance(self, amount):
        self.total += amount


def check(results: list[object]) -> None:
    assert [r for r in results if not isinstance(r, KsegError)] == [0, 1, 4, 16]
    assert isinstance(results[3], FormatError)
    assert results[3].position == 3


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_results_stand_in_the_order_of_tasks(workers):
    counter = Counter()
    check(run_tasks(square, range(5), workers=workers, progress=counter, weights=[1, 2, 3, 4, 5]))
    assert counter.total == 15


def test_no_tasks_no_results():
    assert run_tasks(square, []) == []


def test_tasks_run_in_threads_of_this_process():
    seen = run_tasks(lambda _: (os.getpid(), threading.current_thread().name), range(4), workers=2)
    assert {pid for pid, _ in seen} == {os.getpid()}
    assert all(name.startswith("kseg") for _, name in seen)


def test_another_error_ends_the_run():
    with pytest.raises(ZeroDivisionError):
        run_tasks(lambda task: 1 // task, [1, 0, 2], workers=2)


@pytest.mark.timeout(60)
def test_who_waits_for_a_task_that_never_begins_is_let_go():
    """A sweep hung: one task had failed, the next was cancelled before it began, and the one behind waited for it."""
    released, ended, cancelled = threading.Event(), threading.Event(), threading.Event()

    def work(number):
        if number == 0:
            raise FormatError("zero is bad", path="x", position=0)
        released.wait()
        ended.set()

    def submit(task):
        future = Future()
        threading.Thread(target=run, args=(future, task), daemon=True).start()
        return future

    def run(future, task):
        if task.args == (1,):  # its thread is held up before it begins
            cancelled.wait()
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(task())
        except FormatError as error:
            future.set_exception(error)

    def stop():
        released.set()
        threading.Timer(0.1, cancelled.set).start()

    with pytest.raises(FormatError, match="zero"):
        list(stream_tasks(work, range(3), workers=2, submit=submit, stop=stop))
    assert ended.wait(10)
