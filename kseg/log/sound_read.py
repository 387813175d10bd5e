"""The records of sound batches, and the damaged places between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kseg.errors import FormatError
from kseg.format.arrow import RecordDecoder
from kseg.log.damage import Damage
from kseg.log.sound_walk import SoundWalker
from kseg.log.visibility import AbortedRanges, visible_rows
from kseg.log.walk import Chunk, batch_offsets
from kseg.native import table as t

Item: TypeAlias = "pa.RecordBatch | Damage"


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a chunk that are to be decoded."""

    chunk: Chunk
    hidden: NDArray[np.bool_]
    start: int
    end: int
    path: str
    before: int  # the last offset before the chunk

    def decode(self, decoder: RecordDecoder, rows: range) -> Iterator[pa.RecordBatch]:
        chunk = self.chunk
        return decoder.decode(chunk.data, chunk.file_position, chunk.table, rows, self.hidden, self.start, self.end)

    def damage(self, row: int, problem: FormatError) -> Damage:
        """A batch whose frame is sound, but not its records."""
        firsts, lasts = batch_offsets(self.chunk)
        first = int(firsts[row])
        if self.chunk.table[t.BASE_OFFSET, row] < 0:  # a wrapper's first offset is in what cannot be read
            first = int(lasts[row - 1] if row else self.before) + 1
        position, size = int(self.chunk.table[t.POSITION, row]), int(self.chunk.table[t.SIZE, row])
        return Damage(self.path, position, size, first, int(lasts[row]) + 1, problem.message)


def read_sound(
    walker: SoundWalker, decoder: RecordDecoder, aborted: AbortedRanges, base_offset: int, start: int, end: int
) -> Iterator[Item]:
    """Give the visible records of `[start, end)`, and each damaged place where it lies among them."""
    before = base_offset - 1
    for chunk, rows, hidden in visible_rows(walker, aborted, base_offset, start, end):
        yield from walker.take_damages()
        yield from _decode(decoder, _Rows(chunk, hidden, start, end, walker.path, before), rows)
        before = int(chunk.table[t.LAST_OFFSET, chunk.rows - 1])
    yield from walker.take_damages()


def _decode(decoder: RecordDecoder, wanted: _Rows, rows: range) -> Iterator[Item]:
    """Decode rows; one that cannot be decoded is damage, and those behind it are not."""
    row = rows.start
    while row < rows.stop:
        given = 0
        problem: FormatError | None = None
        try:
            for batch in wanted.decode(decoder, range(row, rows.stop)):
                yield batch
                given += batch.num_rows
        except FormatError as error:
            problem = error.with_traceback(None)
        if problem is None:
            return
        if problem.position is None:  # it does not say which row it is about
            yield from _decode_one_by_one(decoder, wanted, range(row, rows.stop), given)
            return
        positions = wanted.chunk.table[t.POSITION, : wanted.chunk.rows]
        row = int(np.searchsorted(positions, problem.position))
        yield wanted.damage(row, problem)
        row += 1


def _decode_one_by_one(decoder: RecordDecoder, wanted: _Rows, rows: range, given: int) -> Iterator[Item]:
    """Decode each row by itself; the first `given` records were given already."""
    for row in rows:
        try:
            batches = list(wanted.decode(decoder, range(row, row + 1)))
        except FormatError as error:
            yield wanted.damage(row, error.with_traceback(None))
            continue
        for batch in batches:
            known = min(given, batch.num_rows)
            given -= known
            if known < batch.num_rows:
                yield batch.slice(known)
