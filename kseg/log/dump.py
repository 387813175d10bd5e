"""A log file batch by batch, with nothing hidden: control records, aborted data, batches whose checksum is wrong.

Reading for consumers is `scan.py`; this is for people who want to see what the bytes are. One decode call serves many
batches; where the records of each begin is told beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kseg.errors import CorruptRecordError, FormatError
from kseg.format.arrow import RecordDecoder
from kseg.format.batch import checksum_error
from kseg.log.walk import BatchWalker, Chunk, ReadOptions
from kseg.native import table as t
from kseg.native.headers import scan_checksums
from kseg.schema import select_columns
from kseg.storage import RandomFile

COLUMNS = ("offset", "timestamp", "key", "value", "headers")
_FIRST, _END = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class BatchRun:
    """Batches that follow each other in a file; the table is overwritten when the next run is asked for.

    Attributes:
        rows: The rows of `table` that this run is about.
        records: Their records, with the columns of `COLUMNS`; None where there are none or they were not asked for.
        starts: Where in `records` those of each row begin, and behind the last row where they end.
        errors: What is wrong with a row: its checksum, or its records; it has no records here then.
    """

    table: t.Table
    rows: range
    records: pa.RecordBatch | None
    starts: NDArray[np.int64]
    errors: dict[int, FormatError] = field(default_factory=dict)


def iter_runs(file: RandomFile, options: ReadOptions, *, records: bool) -> Iterator[BatchRun]:
    """Walk a log file from its start; a row that is damaged is given with its error, and the walk goes on behind it.

    Args:
        records: Decode the records too; the base offset and count of a legacy wrapper are known only then.

    Raises:
        FormatError: Here no batch begins, or bytes are left at the end; all that is before was given.
    """
    decoder = RecordDecoder(select_columns(COLUMNS), topic="", partition=0, max_batch_bytes=options.max_batch_bytes)
    walker = BatchWalker(file, options, check=False)
    for chunk in walker:
        errors = _bad_checksums(chunk) | _impossible(chunk)
        for error in errors.values():
            error.with_context(path=file.path)
        if records:
            yield from _decoded(chunk, decoder, errors, file.path)
        else:
            rows = range(chunk.rows)
            yield BatchRun(chunk.table, rows, None, np.zeros(len(rows) + 1, np.int64), errors)
    walker.raise_if_torn()


def _bad_checksums(chunk: Chunk) -> dict[int, FormatError]:
    found: dict[int, FormatError] = {}
    row = 0
    while row < chunk.rows:
        bad, computed = scan_checksums(chunk.data, chunk.file_position, chunk.table, row, chunk.rows - row)
        if bad < 0:
            break
        found[int(bad)] = checksum_error(chunk.table, int(bad), int(computed))
        row = int(bad) + 1
    return found


def _impossible(chunk: Chunk) -> dict[int, FormatError]:
    """Rows with an offset behind which no range can end."""
    rows = np.flatnonzero(chunk.table[t.LAST_OFFSET, : chunk.rows] == _END).tolist()
    positions = chunk.table[t.POSITION]
    return {
        row: CorruptRecordError(f"offset {_END}, which no log can hold", position=int(positions[row])) for row in rows
    }


def _decoded(chunk: Chunk, decoder: RecordDecoder, errors: dict[int, FormatError], path: str) -> Iterator[BatchRun]:
    skip = np.zeros(chunk.rows, np.bool_)
    skip[list(errors)] = True
    row = 0
    while row < chunk.rows:
        rows = range(row, chunk.rows)
        try:
            for batch in decoder.decode(chunk.data, chunk.file_position, chunk.table, rows, skip, _FIRST, _END):
                run = _run_of(chunk, batch, row, skip, errors)
                yield run
                row = run.rows.stop
        except FormatError as error:
            if error.position is None:
                raise
            bad = int(np.searchsorted(chunk.table[t.POSITION, : chunk.rows], error.position))
            errors[bad] = error.with_context(path=path)
            skip[bad] = True
            stop = bad + 1
        else:
            stop = chunk.rows
        if row < stop:  # what is left has no records
            yield BatchRun(chunk.table, range(row, stop), None, np.zeros(stop - row + 1, np.int64), errors)
        row = stop


def _run_of(
    chunk: Chunk, batch: pa.RecordBatch, row: int, skip: NDArray[np.bool_], errors: dict[int, FormatError]
) -> BatchRun:
    """The rows that a record batch covers: counts of legacy wrappers are in the table once they were decoded."""
    counts = np.where(skip[row:], 0, np.maximum(chunk.table[t.COUNT, row : chunk.rows], 0))
    ends = np.cumsum(counts)
    covered = int(np.searchsorted(ends, batch.num_rows)) + 1
    if covered > len(ends) or ends[covered - 1] != batch.num_rows:  # the decoder left one out: its offset is `_END`
        place = int(chunk.table[t.POSITION, row])
        raise CorruptRecordError(f"a record behind here has offset {_END}, which no log can hold", position=place)
    starts = np.append(0, ends[:covered])
    return BatchRun(chunk.table, range(row, row + covered), batch, starts, errors)
