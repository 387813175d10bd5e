"""Partitions side by side: what is left is what one after the other leaves."""

from __future__ import annotations

import shutil
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

import kseg
from kseg.compaction import CleanerConfig, compact
from kseg.compaction.keymap import MOST_KEPT_ENTRIES, KeyMap, new_hash_key
from kseg.compaction.lanes import Means, StoppedError, run_lanes
from kseg.compaction.ranked_pool import RankedPool
from kseg.log.checkpoints import CheckpointKind, read_checkpoint
from kseg.progress import SILENT, Progress
from kseg.storage import LocalStore
from tests.faults.disk import FaultyDisk, run_with
from tests.scale import counts

NOW = 1_700_000_100_000
MARKER = ".kafka_cleanshutdown"
CHECKPOINT = CheckpointKind.CLEANER.value
PARTITIONS = 5
CONFIG = CleanerConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, segment_bytes=20_000)


class Recorded(Progress):
    """Calls must not overlap, and must make sense one after the other."""

    def __init__(self):
        self.phases = []
        self._inside = threading.Lock()
        self._open = None

    def begin(self, phase, total, unit="B"):
        assert self._inside.acquire(blocking=False)
        assert self._open is None
        self._open = [phase, total, 0]
        self.phases.append(self._open)
        self._inside.release()

    def advance(self, amount):
        assert self._inside.acquire(blocking=False)
        self._open[2] += amount
        self._inside.release()

    def end(self):
        assert self._inside.acquire(blocking=False)
        assert self._open is not None
        self._open = None
        self._inside.release()


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start") / "data"
    for partition in range(PARTITIONS):
        with kseg.create_log(folder / f"orders-{partition}", config=kseg.LogConfig(segment_bytes=9000)) as writer:
            for number in range(0, 900 + 300 * partition, 50):
                keys = [b"k%d" % ((number + n) * 7 % (90 + partition)) for n in range(50)]
                values = [b"value %d" % (number + n) * 3 for n in range(50)]
                writer.append(pa.table({"key": keys, "value": values, "timestamp": [NOW - 10**6] * 50}), codec="lz4")
    (folder / MARKER).write_bytes(b"clean")
    return folder


def files_of(folder):
    """All bytes; of a checkpoint the lines, whose order is that in which partitions were done."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: sorted(data.splitlines()) if name == CHECKPOINT else data for name, data in files.items()}


def run(folder, **options):
    return compact(folder, topics=["orders"], config=CONFIG, now_ms=NOW, **options)


@pytest.fixture(scope="module")
def expected(start, tmp_path_factory):
    folder = shutil.copytree(start, tmp_path_factory.mktemp("expected") / "data")
    assert not run(folder, workers=1).failed
    return files_of(folder)


def records_of(folder):
    """A round that died leaves other segments to the next one, but the same records."""
    logs = [kseg.open_log(folder / f"orders-{number}") for number in range(PARTITIONS)]
    return [pa.Table.from_batches(log.read(columns=["offset", "key", "value"])).to_pylist() for log in logs]


@pytest.fixture(scope="module")
def records(start, tmp_path_factory):
    folder = shutil.copytree(start, tmp_path_factory.mktemp("records") / "data")
    run(folder, workers=1)
    return records_of(folder)


@pytest.mark.parametrize("strategy", ["memory", "spill"])
def test_side_by_side_and_one_after_the_other_leave_the_same(start, expected, tmp_path, strategy):
    for budget in (1 << 20, 512 << 20):  # of the smaller one each map needs all
        folder = shutil.copytree(start, tmp_path / f"data-{budget}")
        progress = Recorded()
        report = run(folder, workers=3, strategy=strategy, memory_budget=budget, progress=progress)
        assert [(p.partition, p.error, p.strategy) for p in report.partitions] == [
            (number, None, strategy) for number in range(PARTITIONS)
        ]
        assert files_of(folder) == expected
        assert progress.phases and all(0 <= done <= total for _, total, done in progress.phases)
    assert files_of(folder) != files_of(start)
    assert len(read_checkpoint(LocalStore(), str(folder), CheckpointKind.CLEANER)) == PARTITIONS


def test_a_damaged_partition_stops_no_other(start, expected, tmp_path):
    folder = shutil.copytree(start, tmp_path / "data")
    path = min((folder / "orders-1").glob("*.log"))
    path.write_bytes(path.read_bytes()[:-3] + b"???")
    report = run(folder, workers=2)
    assert [p.error is None for p in report.partitions] == [True, False, True, True, True]
    left = files_of(folder)
    others = {name: data for name, data in expected.items() if "orders-1/" not in name}
    del others[MARKER], others[CHECKPOINT]
    assert {name: left[name] for name in others} == others


@pytest.mark.parametrize("number", range(5, 255, 250 // counts(8)))
def test_the_power_goes_while_two_are_at_work(start, expected, records, tmp_path, number):
    folder = shutil.copytree(start, tmp_path / "data")
    end = run_with(FaultyDisk(number, "cut"), lambda path, _: run(path, workers=2), folder)
    assert end.power_was_cut
    assert not run(folder, workers=2).failed
    assert files_of(folder)[CHECKPOINT] == expected[CHECKPOINT]
    assert not [path for path in folder.rglob("*") if path.suffix in (".cleaned", ".swap", ".deleted", ".tmp")]
    assert records_of(folder) == records


def test_an_error_of_one_ends_all():
    began = threading.Event()

    def work(task, progress, room):
        progress.begin("x", 10)
        if task == 0:
            began.wait(10)
            raise RuntimeError("broken")
        began.set()
        for _ in range(1000):
            progress.advance(0)
            time.sleep(0.01)
        raise AssertionError("nobody stopped it")

    stopped = []

    def noted(task, progress, room):
        try:
            return work(task, progress, room)
        except StoppedError:
            stopped.append(task)
            raise

    with pytest.raises(RuntimeError, match="broken"):
        run_lanes(noted, [0, 1, 2, 3], SILENT, 2, 2)
    assert 1 in stopped  # and perhaps one that began meanwhile


@pytest.mark.parametrize("how", ["begins", "ends", "fails"])
def test_the_second_is_planned_when_the_first_has_work_for_threads(how):
    """Or when it turns out that it has none."""
    told, second_began = [], threading.Event()

    def work(task, progress, means):
        told.append(f"{task} is planned")
        if task == 0:
            assert not second_began.wait(0.2)
            if how == "fails":
                raise ValueError("no")
            if how == "begins":
                told.append("0 begins")
                progress.begin("keys", 1)
                assert second_began.wait(10)
                progress.end()
        second_began.set()

    if how == "fails":
        with pytest.raises(ValueError, match="no"):
            run_lanes(work, range(3), SILENT, 2, 2)
    else:
        run_lanes(work, range(3), SILENT, 2, 2)
        assert sorted(told)[-3:] == ["0 is planned", "1 is planned", "2 is planned"]
        assert told[: len(told) - 2] == ["0 is planned", "0 begins"][: len(told) - 2]


def test_results_stand_in_the_order_of_the_tasks():
    for lanes in (1, 2):
        assert run_lanes(lambda task, _, __: task * 2, range(20), SILENT, lanes, 2) == [2 * n for n in range(20)]


def test_no_more_room_is_given_than_there_is():
    room, taken, most = Means(2), [0], [0]
    lock = threading.Lock()

    def work(shares):
        for _ in range(30):
            with room.take(shares):
                with lock:
                    taken[0] += shares
                    most[0] = max(most[0], taken[0])
                time.sleep(0.0005)
                with lock:
                    taken[0] -= shares

    threads = [threading.Thread(target=work, args=(1 + n % 2,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (taken, most) == ([0], [2])


def test_each_has_a_thread_before_anybody_has_two():
    running, begin, go_on = [], threading.Event(), threading.Event()

    def work(rank):
        running.append(rank)
        go_on.wait()

    with ThreadPoolExecutor(3) as threads:
        pool = RankedPool(threads)
        for _ in range(3):
            threads.submit(begin.wait)
        made = [pool.submit(rank, partial(work, rank)) for rank in (7, 7, 7, 4, 4, 9, 9)]
        begin.set()
        while len(running) < 3:
            time.sleep(0.001)
        assert sorted(running) == [4, 7, 9]
        go_on.set()
        wait(made)
    assert sorted(running) == [4, 4, 7, 7, 7, 9, 9]


def test_tables_of_keys_are_given_on_empty_and_only_to_those_of_the_same_size():
    means = Means()
    first = means.slots(64)
    first[5] = 1, 2, 3
    means.give_back(first)
    again = means.slots(64)
    assert np.shares_memory(again, first)
    assert not again.any()
    means.give_back(again)
    other = means.slots(128)
    assert other.shape == (128, 3)
    assert not np.shares_memory(means.slots(64), first)  # it was let go


def test_who_takes_all_of_the_memory_found_tables_kept_beside_it():
    means, kept = Means(3), []
    for count in (64, 64, 128):
        table = means.slots(count)
        kept.append(weakref.ref(table))
        means.give_back(table)
    del table
    assert [table() is None for table in kept] == [True, True, False]
    with means.take(1):
        assert kept[2]() is not None
    with means.take(3, is_all=True):
        assert kept[2]() is None


def test_what_lay_aside_is_kept_only_beside_a_map_of_the_same_size():
    means = Means(3)
    means.give_back(means.slots(64))
    means.slabs.take(1)[:] = 1
    means.slots(64)
    assert means.slabs.take(1).all()
    means.slots(128)
    assert not means.slabs.take(1).any()
    means.slabs.take(1)[:] = 1
    with means.take(3, is_all=True):
        assert not means.slabs.take(1).any()


def test_a_thread_kept_what_it_sorted_the_keys_of_a_whole_file_in():
    keys, size = KeyMap(1 << 15, new_hash_key(), budget=1 << 30), 3 * 8 * (MOST_KEPT_ENTRIES + 1)
    before = pa.total_allocated_bytes()
    keys.put(np.zeros((MOST_KEPT_ENTRIES + 1, 3), np.int64))
    assert pa.total_allocated_bytes() - before < size // 8


def test_who_has_a_lower_rank_goes_first():
    done, held = [], threading.Event()
    with ThreadPoolExecutor(1) as threads:
        pool = RankedPool(threads)
        first = pool.submit(5, held.wait)
        tasks = [(rank, number) for number in range(3) for rank in (2, 1, 3)]
        made = {task: pool.submit(task[0], partial(done.append, task)) for task in tasks}
        assert made[1, 1].cancel()
        held.set()
        wait([first, *made.values()])
    assert done == [(1, 0), (1, 2), *((rank, number) for rank in (2, 3) for number in range(3))]


def test_what_a_task_raises_comes_to_who_waits_for_it():
    with ThreadPoolExecutor(1) as threads:
        failed = RankedPool(threads).submit(0, lambda: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            failed.result()


def test_partitions_side_by_side_counted_on_the_same_free_space():
    means, order, together = Means(3), [], threading.Barrier(2)

    def write(name, needed, hold):
        with means.take_disk(needed, lambda: 100) as fits:
            order.append((name, fits))
            hold.wait(timeout=60)

    held = threading.Event()
    with ThreadPoolExecutor(3) as pool:
        pair = [pool.submit(write, "small", 50, together) for _ in range(2)]  # both have room at a time
        wait(pair, timeout=60)
        assert order == [("small", True)] * 2
        first = pool.submit(write, "first", 60, held)
        while len(order) < 3:
            time.sleep(0.001)
        second = pool.submit(write, "second", 60, held)
        large = pool.submit(write, "large", 101, held)
        time.sleep(0.05)
        assert order[2:] == [("first", True)]
        held.set()
        wait([first, second, large], timeout=60)
    assert sorted(order[3:]) == [("large", False), ("second", True)]


def test_nobody_begins_to_write_beside_one_without_room():
    means, order = Means(2), []

    def write_small():
        with means.take_disk(1, lambda: 100) as fits:
            order.append(fits)

    with means.take_disk(101, lambda: 100) as fits:
        assert not fits
        small = threading.Thread(target=write_small)
        small.start()
        time.sleep(0.05)
        assert order == []
    small.join(timeout=60)
    assert order == [True]
