"""Records of a local file as record batches, one kernel call for each (`kseg.native.straight`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kseg.format.batch import record_error
from kseg.format.codec import BlockFunctions
from kseg.format.file_span import BUFFER_BYTES, TABLE_ROWS, FileSpan
from kseg.format.row_buffers import Payloads, RowBuffers
from kseg.native import records, steps, straight
from kseg.native import table as t
from kseg.native.header_reads import pread_address
from kseg.native.memory import pooled
from kseg.native.plain_batches import STAMPS
from kseg.native.rows import FILLED, NEXT_RECORD, STATE

COLUMNS: Final = frozenset({"key", "value", "headers", "topic", "partition", "offset", "timestamp", "timestampType"})
"""What can be told of a record without its batch, whose row is gone when a record batch is finished."""
_OF_RECORDS: Final = frozenset({"key", "value", "headers", "timestamp"})
ARENA_BYTES: Final = 4 << 20  # the largest batch, decompressed
CALL_BYTES: Final = 32 << 20  # that a signal waits for at most
LEAST_PIECE_BYTES: Final = 4 << 10
FIRST_ROWS: Final = 1 << 14
MAX_ROWS: Final = 1 << 18
FIRST_KEY_BYTES: Final = 64.0
MORE: Final = 1.125  # room for keys beyond what the record batch before has needed
KEY_STEP: Final = 4 << 10  # bytes, so that record batches alike are laid out alike
LEAST_SHARE: Final = 0.85  # less of it, and the next record batch gets more rows
FULL_SHARE: Final = 0.95  # of the room for values that is used where a record batch ends by its number of rows

_GOES_ON: Final = (steps.FULL, straight.PAUSED)

Numbers: TypeAlias = NDArray[np.int64]
Assemble: TypeAlias = Callable[[RowBuffers, Payloads, list[int], int], pa.RecordBatch]


class StraightReader:
    """Reads spans of files; the memory for it is used again and again.

    Args:
        kinds: The wanted columns.
        max_batch_bytes: The largest batch that is read, decompressed or not; a larger one is left alone.
        piece_bytes: About how many bytes of values go into one record batch.
    """

    def __init__(
        self,
        kinds: Mapping[str, pa.DataType],
        functions: BlockFunctions,
        *,
        max_batch_bytes: int,
        piece_bytes: int,
    ) -> None:
        self._kinds = kinds
        self._functions = functions
        self._limit = max_batch_bytes
        self._piece_bytes = min(max(piece_bytes, LEAST_PIECE_BYTES), records.PIECE_BYTES)
        self._pread = pread_address()
        self._rows = FIRST_ROWS
        self._key_bytes = FIRST_KEY_BYTES  # of a record
        self._payloads: Payloads | None = None
        self._has_headers = False

    @property
    def is_fit(self) -> bool:
        """Whether this is the way to read the wanted columns; headers are gathered from more bytes than a step has."""
        columns = self._kinds.keys()
        is_possible = bool(self._pread) and columns <= COLUMNS and not self._has_headers
        return is_possible and not columns.isdisjoint(_OF_RECORDS)

    def read(
        self,
        span: FileSpan,
        aborted: tuple[Numbers, Numbers, Numbers],
        base_offset: int,
        start: int,
        end: int,
        assemble: Assemble,
    ) -> Iterator[pa.RecordBatch]:
        """Give the visible records of `[start, end)`; the span then begins with what is not for this reader, if any.

        Args:
            assemble: Makes a record batch of what was read; the number is the timestamp type.

        Raises:
            FormatError: The records of a batch are broken, which everything before it was given of.
        """
        payloads = self._payloads = self._payloads or _new_payloads(self._limit)
        cursor, state = span.new_cursor(straight.CURSOR), np.zeros(STATE, np.int64)
        columns: RowBuffers | None = None
        status, is_stuck = steps.FULL, False
        while status in _GOES_ON and not (self._has_headers and state[NEXT_RECORD] == 0):
            if columns is None:
                columns = self._new_columns(span.end - int(cursor[steps.FROM]), large=is_stuck)
                state[:NEXT_RECORD] = 0
            status = columns.read(
                (self._pread, span.descriptor, span.end, CALL_BYTES), payloads, aborted, base_offset, self._limit,
                self._functions.addresses, start, end, cursor, state,
            )  # fmt: skip
            if status == straight.PAUSED:
                continue
            totals = state.tolist()
            is_stuck = not totals[FILLED]
            self._has_headers = self._has_headers or totals[records.HEADERS] > 0
            if totals[FILLED]:
                self._learn(totals, is_full=status == steps.FULL, had=columns.count)
                yield assemble(columns, payloads, totals, int(cursor[STAMPS]))
            columns = None
            if status < 0:
                raise record_error(payloads.table, int(cursor[steps.ROW]), status)
        span.move(payloads.table, cursor)
        span.is_over = status != steps.ODD and span.last_offset >= end - 1

    def _new_columns(self, left: int, *, large: bool) -> RowBuffers:
        """Room for one record batch, where so many bytes are left of the file; `large`: for any record at all."""
        if large:
            room = max(BUFFER_BYTES, ARENA_BYTES)
            return RowBuffers(self._kinds, self._rows, key=room, value=room)
        room = min(self._piece_bytes, max(8 * left, 64 << 10))
        rows = min(self._rows, max(left, 1 << 10))
        keys = int(self._key_bytes * rows * MORE) // KEY_STEP * KEY_STEP + KEY_STEP
        return RowBuffers(self._kinds, rows, key=keys, value=room)

    def _learn(self, totals: list[int], *, is_full: bool, had: int) -> None:
        """Foresee what the next record batch needs.

        As many rows as will nearly fill the room for values, the same number each time where values have about the same
        size: columns that are the same in every row are then made once.
        """
        filled, value_bytes = totals[FILLED], totals[records.VALUE_BYTES]
        self._key_bytes = totals[records.KEY_BYTES] / filled
        is_short = filled == had and value_bytes < LEAST_SHARE * self._piece_bytes
        if is_short or (is_full and filled < had):
            fitting = FULL_SHARE * self._piece_bytes * filled / max(value_bytes, 1)
            self._rows = min(max(int(fitting), 1), 2 * had, MAX_ROWS)


def _new_payloads(max_batch_bytes: int) -> Payloads:
    starts, ends, kept = np.empty((3, TABLE_ROWS), np.int64)
    buffer, arena = (pooled(min(size, max_batch_bytes)) for size in (BUFFER_BYTES, ARENA_BYTES))
    return Payloads(buffer, arena, t.new_table(TABLE_ROWS), np.empty(TABLE_ROWS, np.bool_), starts, ends, kept)
