"""Memory for what lies aside."""

from __future__ import annotations

import mmap
import resource

import numpy as np

from kseg.compaction.slabs import SLAB_BYTES, Slab, Slabs


def fill_and_count_faults(slabs: Slabs, parts: int) -> int:
    """Store so many parts of a MiB, let go of them, and tell how many pages were new."""
    slab = Slab(slabs)
    part = np.full(1 << 20, 7, np.uint8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [slab.store(part) for _ in range(parts)]
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert all((one == 7).all() for one in held)
    return faults


def test_what_one_partition_had_aside_cost_the_next_one_new_pages():
    slabs = Slabs()
    pages = (16 << 20) // mmap.PAGESIZE
    assert fill_and_count_faults(slabs, 16) > pages // 2
    assert fill_and_count_faults(slabs, 16) < pages // 10


def test_a_slab_is_used_again_only_when_nothing_in_it_is_left():
    slabs = Slabs()
    slab = Slab(slabs)
    held = slab.store(np.full(100, 1, np.uint8))
    del slab
    other = slabs.take(SLAB_BYTES)
    other[:] = 2
    assert (held == 1).all()
    address = held.ctypes.data
    del held
    assert slabs.take(1).ctypes.data == address


def test_memory_that_was_given_back_is_new_again():
    slabs = Slabs()
    slabs.take(SLAB_BYTES)[:] = 3
    slabs.clear()
    assert not slabs.take(SLAB_BYTES).any()


def test_data_larger_than_a_slab_has_memory_of_its_own():
    slabs = Slabs()
    data = np.arange(SLAB_BYTES + 1, dtype=np.uint8)
    held = Slab(slabs).store(data)
    assert (held == data).all()
    del held
    assert len(slabs.take(1)) == SLAB_BYTES
