"""The map of keys that threads fill together."""

from __future__ import annotations

import mmap
import resource
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from kseg.compaction.keymap import MIN_SLOTS, KeptOffsets, KeyMap, KeyMapFull, new_hash_key
from kseg.native.keymap import SLOT_BYTES

BATCHES = 12
ROWS = 5000


def batch(seed, keys):
    """Rows of (low hash, high hash, offset)."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, keys, ROWS)
    low = (numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
    return np.column_stack([low, numbers, rng.integers(0, 1 << 40, ROWS)])


@pytest.mark.parametrize("keys", [1000, 200_000])
def test_a_map_that_threads_fill_grows_and_loses_nothing(keys):
    batches = [batch(seed, keys) for seed in range(BATCHES)]
    expected: dict[tuple[int, int], int] = {}
    for low, high, offset in np.concatenate(batches).tolist():
        expected[low, high] = max(expected.get((low, high), -1), offset)
    found = KeyMap(MIN_SLOTS, new_hash_key(), 1 << 30)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(found.put, batches))
    assert found.keys == len(expected)
    assert (len(found.slots) > MIN_SLOTS) == (len(expected) > MIN_SLOTS)
    hashes = np.array(list(expected), np.int64)
    assert found.latest(hashes, np.ones(len(hashes), np.bool_)).tolist() == list(expected.values())


def test_a_map_grows_within_its_budget_alone():
    grown = KeyMap(MIN_SLOTS, new_hash_key(), 3 * MIN_SLOTS * SLOT_BYTES)
    with pytest.raises(KeyMapFull):
        for seed in range(BATCHES):
            grown.put(batch(seed, 10**9))
    assert len(grown.slots) == 2 * MIN_SLOTS
    fixed = KeyMap(MIN_SLOTS, new_hash_key(), 3 * MIN_SLOTS * SLOT_BYTES - 1)
    with pytest.raises(KeyMapFull):
        for seed in range(BATCHES):
            fixed.put(batch(seed, 10**9))
    assert len(fixed.slots) == MIN_SLOTS


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_offsets_that_threads_mark_are_those_of_the_map(threads):
    keys = KeyMap(MIN_SLOTS, new_hash_key(), 1 << 30, 2)
    entries = np.random.default_rng(7).integers(-(2**62), 2**62, (5000, 3))
    entries[:, 2] = np.arange(300, 5300)
    keys.put(entries)
    kept = KeptOffsets(300, 5300)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(kept.mark, np.array_split(keys.slots, threads)))
    assert (kept.bits == KeptOffsets.of(keys, 300, 5300).bits).all()
    assert int(np.unpackbits(kept.bits).sum()) == 5000


def test_pages_of_a_map_were_faulted_in_twice_while_keys_were_put():
    found = KeyMap(1 << 19, new_hash_key())
    slots = len(found.slots)
    found.put(batch(1, ROWS))  # memory for sorting is there from now on
    batches = [batch(seed, 1 << 40) for seed in range(2, 2 + 2 * BATCHES)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for entries in batches:
        found.put(entries)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert found.keys > len(batches) * ROWS // 2  # spread over all pages
    assert len(found.slots) == slots
    assert faults < found.size // mmap.PAGESIZE // 10
