"""Every record of a run of batches: decompressed, decoded and compared with what its batch says."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kseg.errors import FormatError, UnsupportedError
from kseg.format.arrow import RecordDecoder
from kseg.format.batch import offset_shown
from kseg.log.walk import Chunk
from kseg.native import table as t
from kseg.native import verify as native
from kseg.schema import select_columns
from kseg.verification.findings import Findings

_ALL: Final = (-(2**63), 2**63 - 1)


class RecordCheck:
    """Decodes the batches of one segment."""

    def __init__(self, path: str, max_batch_bytes: int, findings: Findings) -> None:
        self._path = path
        self._findings = findings
        schema = select_columns(["offset", "timestamp"])
        self._decoder = RecordDecoder(schema, topic="", partition=0, max_batch_bytes=max_batch_bytes)

    def add(self, chunk: Chunk, skip: NDArray[np.bool_]) -> None:
        """Look at the records of a chunk, but for rows that are known to be damaged."""
        wrong = np.zeros(chunk.rows, np.int64)
        row = 0
        while row < chunk.rows:
            cursor = np.zeros(native.RECORD_CURSOR, np.int64)
            cursor[native.AT_ROW] = row
            rows = range(row, chunk.rows)
            try:
                for batch in self._decoder.decode(chunk.data, chunk.file_position, chunk.table, rows, skip, *_ALL):
                    offsets, timestamps = (column.view(pa.int64()).to_numpy() for column in batch.columns)
                    native.scan_records(chunk.table, chunk.rows, skip, cursor, offsets, timestamps, wrong)
                break
            except FormatError as error:
                self._findings.add_error("KS114" if _is_too_large(error) else "KS121", error, self._path)
                place = chunk.table[t.POSITION, : chunk.rows]
                row = int(np.searchsorted(place, error.position or 0, side="right"))
        self._tell(chunk, wrong)

    def _tell(self, chunk: Chunk, wrong: NDArray[np.int64]) -> None:
        for flag, code, detail in (
            (native.RECORD_OFFSETS, "KS122", "the records' offsets do not fit"),
            (native.RECORD_TIMES, "KS123", "no record, or a later one, than the batch's greatest timestamp {top}"),
        ):
            for row in np.flatnonzero(wrong & flag):
                if flag == native.RECORD_TIMES and self._lost_the_latest(chunk, int(row)):
                    continue
                text = detail.format(top=chunk.table[t.MAX_TIMESTAMP, row])
                place = int(chunk.table[t.POSITION, row])
                self._findings.add(code, self._path, text, position=place, offset=offset_shown(chunk.table, int(row)))

    def _lost_the_latest(self, chunk: Chunk, row: int) -> bool:
        """Whether a batch lost records, the latest one perhaps: an erasure leaves it its greatest timestamp."""
        table = chunk.table
        magic, count, last, first = table[[t.MAGIC, t.COUNT, t.LAST_OFFSET, t.BASE_OFFSET], row].tolist()
        if magic < 2 or count > last - first:
            return False
        skip = np.zeros(chunk.rows, np.bool_)
        parts = self._decoder.decode(chunk.data, chunk.file_position, table, range(row, row + 1), skip, *_ALL)
        times = (part.column("timestamp").view(pa.int64()).to_numpy() for part in parts)
        return all(part.max() <= table[t.MAX_TIMESTAMP, row] for part in times)


def _is_too_large(error: FormatError) -> bool:
    return isinstance(error, UnsupportedError) and "max_batch_bytes" in (error.hint or "")
