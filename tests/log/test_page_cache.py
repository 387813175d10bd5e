"""A live broker's page cache survives a reader that was told to spare it."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kseg
from kseg.log.select import select_logs
from kseg.options import parse_source_options
from kseg.storage import LocalFile
from tests.cli.calls import call

SIZE = 12 << 20
FEW = 64  # pages, of all reads together: those that two reads share are dropped by neither


@pytest.fixture(scope="module")
def path():
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # on a disk, where other tests may be in memory
        path = Path(folder) / "cold-0"
        with kseg.create_log(path) as writer:
            writer.append(pa.table({"value": [os.urandom(1 << 16)] * (SIZE >> 16)}))
        yield path


def pages_of(path):
    """How many pages of the log file are in the page cache."""
    with (path / f"{0:020d}.log").open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = np.frombuffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), np.uint8)
        found = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
        status = ctypes.CDLL(None).mincore(
            ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(size), ctypes.c_void_p(found.ctypes.data)
        )
        assert status == 0
        return int((found & 1).sum())


def evict(path):
    """Take the log file out of the page cache; gives how much is left, all on a file system that is memory itself."""
    with (path / f"{0:020d}.log").open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return pages_of(path)


READS = {
    "rows": lambda log: list(log.read()),
    "offsets": lambda log: list(log.read(columns=["offset"])),
    "headers": lambda log: list(log.batches()),
    "past damage": lambda log: list(log.read(on_corrupt="skip")),
}


def spares(path, read):
    """Whether a read of a file that is not cached leaves few pages."""
    left = evict(path)
    read()
    return pages_of(path) <= left + FEW


def test_looking_for_pages_brings_none_in(path):
    left = evict(path)
    with LocalFile(str(path / f"{0:020d}.log")) as file:
        file.read_nothing_ahead()
        for _ in range(100):
            assert not file.is_cached(0, file.size)
            assert not file.is_cached(SIZE // 2, SIZE // 2 + 1)
        time.sleep(0.1)
    assert pages_of(path) <= left


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_pages_that_only_this_read_brought_in_go(path, read):
    assert spares(path, lambda: read(kseg.open_log(path, drop_page_cache=True)))


def test_a_directory_and_cat_could_not_spare_them(path):
    assert spares(path, lambda: READS["rows"](kseg.open_dir(path.parent, drop_page_cache=True)["cold", 0]))
    assert spares(path, lambda: call("cat", path.parent, "--format", "%o\n", "--drop-page-cache"))


def test_pages_that_were_there_stay(path):
    READS["rows"](kseg.open_log(path))
    cached = pages_of(path)
    assert cached >= SIZE // mmap.PAGESIZE
    READS["rows"](kseg.open_log(path, drop_page_cache=True))
    assert pages_of(path) >= 0.9 * cached  # the kernel may have needed some


@pytest.mark.parametrize("limit", ["1g", None])
def test_a_source_that_limits_its_rate_spares_them_too(path, limit):
    options = {} if limit is None else {"maxReadBytesPerSecond": limit}

    def read():
        (log,) = select_logs([path], parse_source_options(options))
        READS["rows"](log)

    assert spares(path, read) is (limit is not None)
