"""Threads write into one segment, in the order of their pieces."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing

import numpy as np
import pytest

from kseg.compaction.rewrite import Rewritten
from kseg.compaction.turns import Turns
from kseg.native import table as t
from tests.scale import counts

PIECES = 12
PARTS = 5


def part(number, place):
    return np.array([number, place], np.uint8), t.new_table(0)


def do_piece(turns, number, shared=None):
    """Put the parts of a piece, in memory that is used again at once."""
    memory = np.empty(2, np.uint8) if shared is None else shared
    for place in range(PARTS):
        data, table = part(number, place)
        memory[:] = data
        turns.put(number, memory, table)
        memory[:] = 255
    turns.end(number)
    return Rewritten()


def do_piece_by_exchange(turns, number, filled):
    """The same, where memory is exchanged."""
    room = np.empty(filled + 3, np.uint8)
    for place in range(PARTS):
        room[:2], room[2:] = part(number, place)[0], 77
        room = turns.exchange(number, room, 2 if place % 2 else filled, t.new_table(0))
        assert room.size >= filled + 3
        room[:] = 255
    turns.end(number)
    return Rewritten()


@pytest.mark.parametrize("filled", [2, 3, 50])
@pytest.mark.parametrize("seed", range(counts(10)))
def test_what_waits_keeps_its_memory_until_it_is_written(seed, filled):
    turns, written, order = Turns(), [], list(range(PIECES))
    random.Random(seed).shuffle(order)
    with ThreadPoolExecutor(4) as pool:
        made = [pool.submit(do_piece_by_exchange, turns, number, filled) for number in order]
        results = (future.result() for future in made)
        with closing(turns.gather(results, lambda data, _: written.append(data.tolist()))) as gathered:
            assert len(list(gathered)) == PIECES
    assert written == [
        [number, place] + [77] * (0 if place % 2 else filled - 2) for number in range(PIECES) for place in range(PARTS)
    ]


def test_what_fills_its_memory_is_not_copied_while_it_waits():
    turns, room, seen = Turns(), np.empty(8, np.uint8), []
    assert turns.exchange(1, room, 8, t.new_table(0)) is not room
    for number in range(2):
        turns.end(number)
    with closing(turns.gather([], lambda data, _: seen.append(np.shares_memory(data, room)))) as gathered:
        list(gathered)
    assert seen == [True]


def test_memory_goes_round():
    """Rooms neither grow nor get more than those that wait at a time."""
    turns, room, places = Turns(), np.empty(100, np.uint8), set()
    with closing(turns.gather(iter([Rewritten()]), lambda data, table: None)) as gathered:
        next(gathered)
        for number in range(1, 40, 2):
            for _ in range(3):
                room = turns.exchange(number, room, 60, t.new_table(0))
                places.add(room.ctypes.data)
                assert room.size == 100
            turns.end(number - 1)
            turns.end(number)
    assert len(places) == 4


def test_who_has_to_wait_for_its_turn_gets_its_memory_back():
    turns, written, room = Turns(most_waiting=10), [], np.full(8, 7, np.uint8)
    assert turns.exchange(1, room, 8, t.new_table(0)) is not room
    with (
        ThreadPoolExecutor(1) as pool,
        closing(turns.gather(iter([Rewritten()]), lambda data, _: written.append(data.tolist()))) as gathered,
    ):
        next(gathered)
        second = np.full(8, 8, np.uint8)
        waits = pool.submit(turns.exchange, 1, second, 8, t.new_table(0))
        assert not wait([waits], timeout=0.2).done
        turns.end(0)
        assert waits.result(timeout=10) is second
    assert written == [[7] * 8, [8] * 8]


def test_memory_is_given_back_where_all_is_stopped():
    turns, room = Turns(most_waiting=0), np.empty(8, np.uint8)
    turns.stop()
    assert turns.exchange(3, room, 8, t.new_table(0)) is room


@pytest.mark.parametrize("seed", range(counts(20)))
def test_what_threads_make_is_written_in_order(seed):
    turns, written, order = Turns(), [], list(range(PIECES))
    random.Random(seed).shuffle(order)
    with ThreadPoolExecutor(4) as pool:
        made = [pool.submit(do_piece, turns, number) for number in order]
        if seed % 2:
            made[0].result()  # before there is something to write to
        results = (future.result() for future in made)
        with closing(turns.gather(results, lambda data, _: written.append(tuple(data.tolist())))) as gathered:
            assert len(list(gathered)) == PIECES
    assert written == [(number, place) for number in range(PIECES) for place in range(PARTS)]


def test_what_has_its_turn_is_not_copied():
    turns, memory, seen = Turns(), np.empty(2, np.uint8), []

    def append(data, _):
        seen.append(np.shares_memory(data, memory))

    results = (do_piece(turns, number, memory) for number in range(2))
    with closing(turns.gather(results, append)) as gathered:
        list(gathered)
    assert seen == [True] * (2 * PARTS)


def test_nothing_is_written_behind_a_failure():
    turns, written = Turns(), []

    def append(data, _):
        if data[0] == 1:
            raise OSError("full")
        written.append(int(data[0]))

    def results():
        yield do_piece(turns, 0)
        yield do_piece(turns, 2)
        yield do_piece(turns, 1)

    with closing(turns.gather(results(), append)) as gathered, pytest.raises(OSError, match="full"):
        list(gathered)
    turns.end(1)
    assert written == [0] * PARTS


def test_nobody_writes_once_it_is_closed():
    """A thread that is in the middle of it is waited for: the descriptor is closed next, and its number used again."""
    turns, inside, may_go, written = Turns(), threading.Event(), threading.Event(), []

    def append(data, _):
        inside.set()
        may_go.wait(10)
        written.append(is_open)

    is_open = True
    gathered = turns.gather((Rewritten() for _ in range(2)), append)
    next(gathered)
    worker = threading.Thread(target=do_piece, args=(turns, 0))
    worker.start()
    assert inside.wait(10)
    threading.Timer(0.05, may_go.set).start()
    gathered.close()
    is_open = False
    worker.join()
    assert written and all(written)


def test_who_has_more_than_may_wait_waits_for_its_turn():
    turns, written = Turns(most_waiting=1), []
    memories = [np.empty(2, np.uint8) for _ in range(PIECES)]

    def append(data, _):
        written.append((tuple(data.tolist()), any(np.shares_memory(data, memory) for memory in memories)))

    with ThreadPoolExecutor(4) as pool:
        made = [pool.submit(do_piece, turns, number, memories[number]) for number in range(PIECES)]
        with closing(turns.gather((future.result(60) for future in made), append)) as gathered:
            assert len(list(gathered)) == PIECES
    assert written == [((number, place), True) for number in range(PIECES) for place in range(PARTS)]


def test_nobody_waits_for_a_piece_that_failed():
    turns, written = Turns(most_waiting=1), []
    with closing(turns.gather((Rewritten() for _ in range(2)), lambda data, _: written.append(data))) as gathered:
        next(gathered)
        worker = threading.Thread(target=do_piece, args=(turns, 1))
        worker.start()
        worker.join(0.05)
        assert worker.is_alive()
        turns.stop()
        worker.join(10)
        assert not worker.is_alive()
    assert written == []
