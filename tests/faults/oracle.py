"""What the twins say of a mutated file: rows, a refusal at a position, or nothing that can be compared."""

from __future__ import annotations

from dataclasses import dataclass

from tests.faults.mutations import Mutation
from tests.reference import batch as v2
from tests.reference import legacy
from tests.reference.errors import GreyError, RejectedError
from tests.reference.record import Record

LARGEST_RELATIVE = (1 << 31) - 1  # no segment holds offsets further from its base: its index could not name them


@dataclass(frozen=True)
class Rows:
    """The file reads to the end."""

    records: list[Record]


@dataclass(frozen=True)
class Refusal:
    """The entry at `position` must be refused."""

    position: int
    why: str


class _Unknown(Exception):
    """Offsets that contradict each other: what a reader shows depends on how it seeks, not on the format."""


def expectation(mutation: Mutation, base: int) -> Rows | Refusal | None:
    """Judge a file whose damaged entry has a fitting checksum; None where a reader is free to do as it likes."""
    if not mutation.repaired:
        return None
    try:
        entries, end = v2.walk(mutation.data)
        if end != len(mutation.data):
            return None
        position, size = entries[mutation.entry]
        if _is_control(mutation.data[position : position + size]):
            return None  # a marker is read for its transaction, not for rows
        return _read(mutation.data, entries, base)
    except (RejectedError, _Unknown, IndexError):
        return None


def _read(data: bytes, entries: list[tuple[int, int]], base: int) -> Rows | Refusal:
    records: list[Record] = []
    next_offset = base
    refusal: Refusal | None = None
    for position, size in entries:
        entry = data[position : position + size]
        first, last = _range(entry)
        if first < next_offset or last < first or last - base > LARGEST_RELATIVE:
            raise _Unknown
        next_offset = last + 1
        if refusal is not None:
            continue
        try:
            made = _entry_records(entry)
        except GreyError:
            raise _Unknown from None
        except RejectedError as error:
            if entry[16] < 2 and entry[17] & 0x07:
                raise _Unknown from None  # a reader may pass over inner messages whose offsets nobody asked for
            refusal = Refusal(position, str(error))
            continue
        _check_offsets(made, first, last)
        records += [] if _is_control(entry) else made
    return refusal or Rows(records)


def _is_control(entry: bytes) -> bool:
    return entry[16] == 2 and bool(entry[22] & v2.CONTROL_BIT)


def _range(entry: bytes) -> tuple[int, int]:
    """First and last offset by the header; the first of a legacy wrapper is taken from its last."""
    if entry[16] == 2:
        header = v2.read_header(entry)
        return header.base_offset, header.last_offset
    offset = int.from_bytes(entry[:8], "big", signed=True)
    if entry[17] & 0x07 == 0:
        return offset, offset
    try:
        inner = legacy.read_entry(entry)
    except RejectedError:
        return offset, offset
    return inner[0].offset, offset


def _entry_records(entry: bytes) -> list[Record]:
    return list(v2.read_batch(entry).records) if entry[16] == 2 else legacy.read_entry(entry)


def _check_offsets(records: list[Record], first: int, last: int) -> None:
    before = first - 1
    for record in records:
        if not before < record.offset <= last:
            raise _Unknown
        before = record.offset
