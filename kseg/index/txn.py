"""The transaction index: the aborted transactions whose ABORT marker lies in the segment.

An entry is i16 version 0, then i64 producer id, first offset, last offset (the marker's), last stable offset,
big-endian. The file is made at the first abort and never padded. A partial entry at its end is passed over, as
Kafka's iterator does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from kseg.errors import IndexFileError

ENTRY_SIZE: Final = 34
VERSION: Final = 0
_FIELDS: Final = ("producer_id", "first_offset", "last_offset", "last_stable_offset")
_ENTRY = np.dtype([("version", ">i2")] + [(name, ">i8") for name in _FIELDS])


@dataclass(frozen=True, slots=True, order=True)
class AbortedTxn:
    """An aborted transaction; `last_stable_offset` is what it was right after the marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True, eq=False)
class TxnIndex:
    """Aborted transactions of a segment: `columns[field, entry]`, the fields in AbortedTxn's order."""

    columns: NDArray[np.int64]
    path: str | None = None
    parse_problems: tuple[IndexFileError, ...] = ()

    @classmethod
    def parse(cls, data: bytes, path: str | None = None) -> Self:
        """Read a file's bytes.

        Of the version a broker looks at the first byte alone: what it takes for version 0 is read here too, as a
        problem.

        Raises:
            IndexFileError: An entry's version is one that a broker does not read, so what it holds cannot be told.
        """
        entries = np.frombuffer(data, _ENTRY, len(data) // ENTRY_SIZE)
        problems: list[IndexFileError] = []
        for slot in np.flatnonzero(entries["version"] != VERSION).tolist():
            version = int(entries["version"][slot])
            problem = IndexFileError(
                f"version {version} of entry {slot} is unknown", path=path, position=slot * ENTRY_SIZE
            )
            if version >> 8 > VERSION:
                raise problem
            problems[:] = problems or [problem]  # the first one is enough
        if extra := len(data) % ENTRY_SIZE:
            message = f"the last entry is cut off after {extra} of {ENTRY_SIZE} bytes"
            problems.append(IndexFileError(message, path=path, position=len(data) - extra))
        columns = np.empty((len(_FIELDS), len(entries)), np.int64)
        for row, name in enumerate(_FIELDS):
            columns[row] = entries[name]
        return cls(columns, path, tuple(problems))

    @classmethod
    def of(cls, transactions: Iterable[AbortedTxn], path: str | None = None) -> Self:
        """Make an index of transactions, which come in the order of their markers."""
        rows = [(t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset) for t in transactions]
        return cls(np.array(rows, np.int64).reshape(-1, len(_FIELDS)).T, path)

    def __len__(self) -> int:
        return int(self.columns.shape[1])

    def __iter__(self) -> Iterator[AbortedTxn]:
        return (AbortedTxn(*row) for row in self.columns.T.tolist())

    def to_bytes(self) -> bytes:
        """The file's bytes."""
        entries = np.empty(len(self), _ENTRY)
        entries["version"] = VERSION
        for row, name in enumerate(_FIELDS):
            entries[name] = self.columns[row]
        return entries.tobytes()

    def collect(self, fetch: int, upper: int) -> tuple[list[AbortedTxn], bool]:
        """Transactions that touch `[fetch, upper)`, and whether the search is complete.

        Where it is not complete, the indexes of later segments have to be asked too: a marker can lie far behind its
        data.
        """
        _, first, last, stable = self.columns
        settled = stable >= upper
        complete = bool(settled.any())
        end = int(settled.argmax()) + 1 if complete else len(self)
        wanted = (last[:end] >= fetch) & (first[:end] < upper)
        return [AbortedTxn(*row) for row in self.columns[:, :end][:, wanted].T.tolist()], complete

    def truncated(self, offset: int) -> TxnIndex:
        """The same without transactions whose marker is at or above `offset`."""
        return TxnIndex(self.columns[:, self.columns[2] < offset], self.path)

    def check(self, base_offset: int) -> list[IndexFileError]:
        """All that is wrong: a cut-off entry, markers before the segment, markers that do not ascend."""
        problems = list(self.parse_problems)
        _, first, last, _ = self.columns
        tests = (
            (last < base_offset, f"the marker's offset is below the segment's base offset {base_offset}"),
            (first > last, "the transaction starts behind its marker"),
            (np.append(False, last[1:] <= last[:-1]), "the marker's offset is not above the one before it"),
        )
        for broken, message in tests:
            for slot in np.flatnonzero(broken)[:1]:
                place = int(slot) * ENTRY_SIZE
                problems.append(IndexFileError(message, path=self.path, position=place, offset=int(last[slot])))
        return problems
