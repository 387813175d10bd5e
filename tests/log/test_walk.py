"""How much of a file a walk reads."""

from __future__ import annotations

from kseg.log.walk import CACHED_BYTES, CHUNK_BYTES, BatchWalker, ReadOptions, read_bytes
from kseg.storage import LocalFile, LocalStore
from tests.reference import batch as v2
from tests.reference.record import Record

BATCHES = 40


class Counted(LocalFile):
    """Notes each read."""

    def __init__(self, path):
        super().__init__(path)
        self.reads = []

    def read_into(self, position, view):
        self.reads.append((position, memoryview(view).nbytes))
        return super().read_into(position, view)


def make_file(tmp_path):
    """A segment of 40 batches of 100 KB each."""
    path = tmp_path / "00000000000000000000.log"
    record = Record(0, 1, None, bytes(100_000))
    path.write_bytes(b"".join(v2.encode_batch([record], v2.Fields(base_offset=i)) for i in range(BATCHES)))
    return str(path)


def test_nothing_behind_a_hint_is_read_before_it_is_asked_for(tmp_path):
    with Counted(make_file(tmp_path)) as file:
        size = file.size // BATCHES
        hint = 13 * size
        rows = 0
        for chunk in BatchWalker(file, ReadOptions(), hint=hint, chunk_bytes=5 * size):
            rows += chunk.rows
            if rows == 13:
                break
        assert max(position + count for position, count in file.reads) == hint


def test_small_reads_are_for_local_files_alone(tmp_path):
    with LocalStore().open(make_file(tmp_path)) as file:
        assert read_bytes(file, CHUNK_BYTES) == CACHED_BYTES
        assert read_bytes(file, 4096) == 4096
    assert read_bytes(object(), CHUNK_BYTES) == CHUNK_BYTES
