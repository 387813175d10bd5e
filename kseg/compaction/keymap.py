"""The map from keys to their latest offset, shared by the threads that fill it."""

from __future__ import annotations

import collections
import secrets
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from kseg import durable
from kseg.compaction.decode import Run
from kseg.native import keymap as native
from kseg.native import keys
from kseg.native import table as t
from kseg.native.memory import pooled
from kseg.native.pages import plain_pages
from kseg.native.records import KEY_LENGTH

MAX_LOAD: Final = 0.75
MIN_SLOTS: Final = 1 << 15  # below, chance fills one region long before the others
MOST_KEPT_ENTRIES: Final = 1 << 18
_ENTRY_BYTES: Final = 3 * 8
_NO_BITS: Final = np.empty(0, np.uint8)
_thread = threading.local()


def do_nothing() -> None:
    """Nobody wants to know."""


class KeyMapFull(Exception):
    """There are more keys than the map has room for."""


def new_hash_key() -> NDArray[np.uint64]:
    """A random key: nobody can prepare record keys that collide under it."""
    return np.frombuffer(secrets.token_bytes(16), np.uint64).copy()


def slots_for(keys: int) -> int:
    """How many slots a map for so many keys has: a power of two."""
    return max(1 << int(np.ceil(np.log2(max(keys, 1) / (MAX_LOAD - 0.05)))), MIN_SLOTS)


def largest_map(budget: int) -> int:
    """How many slots fit a budget of bytes: a power of two."""
    return max(1 << (budget // native.SLOT_BYTES).bit_length() - 1, MIN_SLOTS)


def _lock_count(threads: int) -> int:
    """Locks for the regions of a map, each for equally many: two a thread, so that one of them is free, or just one."""
    return min(1 << (2 * threads - 1).bit_length(), native.REGIONS) if threads > 1 else 1


def clear_slots(table: NDArray[np.int64]) -> None:
    """Make a table, or a part of one, that of an empty map."""
    table.fill(native.EMPTY)


def new_slots(count: int, clear: Callable[[NDArray[np.int64]], None] = clear_slots) -> NDArray[np.int64]:
    """The table of an empty map.

    It is written to before anybody reads it: a page that is read first is one of zeros that all share, and the first
    write to it is a second fault, for which the system interrupts every other processor that this process runs on.

    Args:
        clear: Writes to all of it.
    """
    table = plain_pages(_ENTRY_BYTES * count).view(np.int64).reshape(-1, 3)
    clear(table)
    return table


def _sorting_room(entries: int) -> NDArray[np.int64]:
    """Memory of this thread: it is needed again and again, and new pages cost more than what is done in them.

    Where there are more keys than a piece has, the thread does not keep it.
    """
    if entries > MOST_KEPT_ENTRIES:
        return pooled(_ENTRY_BYTES * entries).view(np.int64).reshape(-1, 3)
    if not hasattr(_thread, "room") or len(_thread.room) < entries:
        _thread.room = pooled(_ENTRY_BYTES * (entries + entries // 4)).view(np.int64).reshape(-1, 3)
    room: NDArray[np.int64] = _thread.room
    return room


class KeyMap:
    """Latest offset per key.

    Args:
        slots: How many keys there is room for, and a third more; a power of two.
        hash_key: Two words; the same for all maps of a round.
        budget: Where there are more keys the table grows, as long as it and a larger one take no more bytes together.
        threads: About how many put keys into it at the same time.
        table: Its memory, all zeros; by default new memory.

    Attributes:
        before_growth: Is called before the table grows.
    """

    def __init__(
        self,
        slots: int,
        hash_key: NDArray[np.uint64],
        budget: int = 0,
        threads: int = 1,
        table: NDArray[np.int64] | None = None,
    ) -> None:
        self.hash_key = hash_key
        self._budget = budget
        self.slots = new_slots(slots) if table is None else table
        """The table, as `native.keymap` describes it."""
        self.before_growth: Callable[[], None] = do_nothing
        self._held = np.zeros(native.REGIONS, np.int64)
        self._locks = [threading.Lock() for _ in range(_lock_count(threads))]

    @classmethod
    def from_file(cls, path: Path, hash_key: NDArray[np.uint64]) -> Self:
        """A map that another process wrote, for looking up only."""
        found = cls(0, hash_key)
        found.slots = np.asarray(np.memmap(path, np.int64, "c")).reshape(-1, 3)  # numba takes no read-only one
        return found

    def to_file(self, path: Path) -> Path:
        """Write the table for `from_file`."""
        with durable.closing(durable.create(path), path) as fd:
            durable.write_all(fd, self.slots.reshape(-1).view(np.uint8), path)
        return path

    @property
    def keys(self) -> int:
        """How many keys it holds."""
        return int(self._held.sum())

    @property
    def size(self) -> int:
        """Bytes of the table."""
        return self.slots.nbytes

    def put(self, entries: NDArray[np.int64], kept: KeptOffsets | None = None) -> None:
        """Take keys with their offsets, rows of (low hash, high hash, offset); any thread may call it.

        Args:
            kept: Is told which entries are the latest of their keys; they are in the order of their offsets, for which
                it has bits, and the keys of all records behind them are there already.

        Raises:
            KeyMapFull: There is no room for all keys.
        """
        first_offset, bits = (0, _NO_BITS) if kept is None else (kept.first_offset, kept.bits)
        ends = np.empty(native.REGIONS, np.int64)
        by_region = _sorting_room(len(entries))
        native.sort_by_region(entries, len(entries), ends, by_region)
        together = native.REGIONS // len(self._locks)
        waiting = collections.deque(range(0, native.REGIONS, together))
        passed = 0  # others have so many, one after the other
        while waiting:
            first = waiting.popleft()
            lock = self._locks[first // together]
            if not lock.acquire(blocking=passed > len(waiting)):
                waiting.append(first)
                passed += 1
                continue
            try:
                slots, end, passed = self.slots, first + together, 0
                limit = int(len(slots) * MAX_LOAD) >> native.REGION_BITS
                full = native.put_keys(slots, first, end, by_region, ends, self._held, limit, first_offset, bits) < end
            finally:
                lock.release()
            if full:
                self._grow(len(slots))
                waiting.append(first)  # once more: the greatest offset stays

    def _grow(self, size: int) -> None:
        """Move everything to a table twice as large, unless another thread did it already."""
        with ExitStack() as stack:
            for lock in self._locks:
                stack.enter_context(lock)
            if len(self.slots) > size:
                return
            if 3 * self.size > self._budget:
                raise KeyMapFull
            self.before_growth()
            larger, held = new_slots(2 * size), np.zeros(native.REGIONS, np.int64)
            native.move_keys(self.slots, larger, held)
            self.slots, self._held = larger, held

    def latest(self, hashes: NDArray[np.int64], wanted: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The latest offset of each wanted key, -1 where it is not known."""
        latest = np.empty(len(hashes), np.int64)
        native.fill_latest(self.slots, hashes, wanted, len(hashes), latest)
        return latest

    def latest_of(self, run: Run) -> NDArray[np.int64]:
        """The latest offset of each record's key, -1 where it is not known or there is none."""
        return self.latest(key_hashes(run, self.hash_key), has_key(run))


def key_hashes(run: Run, hash_key: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The hashes of a run's keys."""
    hashes = np.empty((run.count, 2), np.int64)
    keys.fill_key_hashes(run.chunk.data, run.arena, run.columns, run.count, hash_key, hashes)
    return hashes


def has_key(run: Run) -> NDArray[np.bool_]:
    """Which records of a run have a key."""
    present: NDArray[np.bool_] = run.columns[KEY_LENGTH, : run.count] >= 0
    return present


class KeptOffsets:
    """Answers pass 2 by offset, without a look at keys: a bit for each offset from `first_offset` to `end`.

    A record that was not cleaned before is the latest of its key if the map holds its offset. Those before
    `first_offset` are looked up by their keys; where there are none, the map is let go.
    """

    def __init__(self, first_offset: int, end: int, earlier: KeyMap | None = None) -> None:
        self._keys = earlier
        self.first_offset = first_offset
        self.bits = np.zeros((end - first_offset + 7) // 8, np.uint8)
        self._lock = threading.Lock()

    @classmethod
    def of(cls, keys_: KeyMap, first_offset: int, end: int, *, has_earlier: bool = True) -> Self:
        """Those that a map holds."""
        kept = cls(first_offset, end, keys_ if has_earlier else None)
        native.mark_latest(keys_.slots, first_offset, kept.bits)
        return kept

    def mark(self, slots: NDArray[np.int64]) -> None:
        """Take the offsets that some slots of a map hold; several threads may, each with bits of its own meanwhile."""
        bits = np.zeros_like(self.bits)
        native.mark_latest(slots, self.first_offset, bits)
        with self._lock:
            self.bits |= bits

    def __call__(self, run: Run) -> NDArray[np.int64]:
        """For each record that is superseded an offset behind its own, else -1."""
        table, row = run.chunk.table, run.rows.start
        base = table[t.BASE_OFFSET, row]
        if self._keys is not None and (table[t.LAST_OFFSET, row] if base < 0 else base) < self.first_offset:
            return self._keys.latest_of(run)
        latest = np.empty(run.count, np.int64)
        native.fill_latest_marked(self.bits, self.first_offset, run.columns, run.count, latest)
        return latest
