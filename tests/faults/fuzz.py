"""Runs one mutated file through the public API and judges what comes out.

Allowed are rows, or a `KsegError` that names the file, and the position where it is about bytes. Where the twins know
the answer it must be theirs. To run a failing case again:

    python -c "from tests.faults.fuzz import replay; replay(CASE)"
"""

from __future__ import annotations

import random
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import kseg
from tests.faults.mutations import Mutation, mutate
from tests.faults.oracle import Refusal, Rows, expectation
from tests.faults.seeds import Seed, seeds
from tests.reference.record import Record
from tests.reference.rows import as_text, records_of

LARGEST_RESULT = 64 << 20  # bytes of Arrow data that a file of a few KiB may become; bombs aside, none comes near


def make(case: int) -> tuple[Seed, Mutation]:
    """The mutation of a case number."""
    rng = random.Random(case)
    found = seeds()
    seed = rng.choice(found)
    return seed, mutate(rng, seed.data, rng.choice(found).data)


def run(case: int, directory: Path) -> str:
    """Write and read one case; gives the kind of its outcome, raises `AssertionError` where it is not allowed."""
    seed, mutation = make(case)
    threading.current_thread().name = f"fuzz case {case}"  # shown by a timeout's stack dump
    path = directory / f"{seed.base:020d}.log"
    path.write_bytes(mutation.data)
    try:
        return _judge(path, seed, mutation)
    except Exception as error:
        raise AssertionError(
            f"case {case}: {seed.name}, entry {mutation.entry}, {mutation.what}: {type(error).__name__}: {error}; "
            f'again: python -c "from tests.faults.fuzz import replay; replay({case})"'
        ) from error
    finally:
        path.unlink()


def replay(case: int) -> str:
    """Run one case in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "fuzz-0"
        directory.mkdir()
        return run(case, directory)


def _judge(path: Path, seed: Seed, mutation: Mutation) -> str:
    log = _attempt(lambda: kseg.open_log(path.parent), path)
    if isinstance(log, kseg.KsegError):
        return _compare(log, expectation(mutation, seed.base))
    outcome = _attempt(lambda: _rows(log.read()), path)
    committed = _attempt(lambda: _offsets(log.read(isolation="read_committed")), path)
    _attempt(lambda: list(log.batches()), path)
    expected = expectation(mutation, seed.base)
    if isinstance(outcome, list) and isinstance(committed, list):
        shown = {record.offset for record in outcome}
        assert shown.issuperset(committed), "read_committed shows what read_uncommitted does not"
    return _compare(outcome, expected)


def _attempt(step: Callable[[], Any], path: Path) -> Any:
    try:
        return step()
    except kseg.KsegError as error:
        _check_error(error, path)
        # the caller keeps it: a traceback would lead back to the caller's frame, a cycle that holds a read's buffers
        return error.with_traceback(None)


def _check_error(error: kseg.KsegError, path: Path) -> None:
    assert error.path is not None, f"no path: {error!r}"
    assert str(path.parent) in str(error.path), f"another path: {error.path}"
    assert "\n" not in str(error), "more than one line"
    if isinstance(error, kseg.errors.FormatError):
        assert error.position is not None, f"no position: {error}"
        assert 0 <= error.position <= path.stat().st_size, f"position outside of the file: {error}"


def _bounded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    size = 0
    for batch in batches:
        size += batch.nbytes
        assert size < LARGEST_RESULT, "unbounded result"
        yield batch


def _rows(batches: Iterable[pa.RecordBatch]) -> list[Record]:
    return records_of(_bounded(batches))


def _offsets(batches: Iterable[pa.RecordBatch]) -> list[int]:
    made: list[int] = []
    for batch in _bounded(batches):
        batch.validate(full=True)
        made += batch.column("offset").to_pylist()
    return made


def _compare(outcome: list[Record] | kseg.KsegError, expected: Rows | Refusal | None) -> str:
    if isinstance(expected, Rows):
        if isinstance(outcome, kseg.KsegError):
            raise AssertionError(f"Kafka reads this, kseg refuses it: {outcome}")
        assert outcome == as_text(expected.records), "other rows than the twin's"
        return "rows as expected"
    if isinstance(expected, Refusal):
        assert isinstance(outcome, kseg.KsegError), f"Kafka refuses this ({expected.why}), kseg reads it"
        assert outcome.position == expected.position, f"the damage is at byte {expected.position}: {outcome}"
        return "refused as expected"
    return "rows" if isinstance(outcome, list) else type(outcome).__name__


def run_shard(first: int, count: int, directory: Path) -> Counter[str]:
    """Run cases `first` to `first + count`; gives how often each kind of outcome came."""
    name = threading.current_thread().name
    try:
        return Counter(run(case, directory) for case in range(first, first + count))
    finally:
        threading.current_thread().name = name
