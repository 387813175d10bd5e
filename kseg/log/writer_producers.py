"""Who writes: what a batch says of its producer, and the numbers that it may say."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

import numpy as np

from kseg.errors import LogError, OptionError
from kseg.format.builder import MAX_COUNT
from kseg.index.producer import ProducerEntry
from kseg.log.producers import ProducerState
from kseg.native import table as t


class ProducerFields(TypedDict):
    """The options of a batch that say who wrote it."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool


def check_range(name: str, value: int, bits: int) -> None:
    """Refuse a number that is negative or has more than so many bits."""
    if not isinstance(value, int | np.integer) or not 0 <= value < 1 << bits:
        raise OptionError(f"{name} must be from 0 to {(1 << bits) - 1}, got {value!r}")


def producer_fields(
    state: ProducerState,
    producer_id: int | None,
    producer_epoch: int,
    base_sequence: int | None,
    *,
    transactional: bool,
    path: Path,
) -> ProducerFields:
    """Check who wants to write; the sequence goes on behind the producer's last one unless it is given.

    Raises:
        OptionError: A number is out of its range.
        LogError: The producer has an open transaction, and this is not part of it, or its epoch is past.
    """
    if producer_id is None:
        if transactional or base_sequence is not None or producer_epoch != 0:
            raise OptionError("a transaction, an epoch or a sequence needs a producer_id")
        return ProducerFields(producer_id=-1, producer_epoch=-1, base_sequence=-1, is_transactional=False)
    check_range("producer_id", producer_id, 63)
    known = check_producer_epoch(state, producer_id, producer_epoch, path)
    if known is not None and known.txn_first_offset >= 0 and not transactional:
        raise LogError(f"producer {producer_id} has an open transaction", path=str(path))
    if base_sequence is None:
        goes_on = known is not None and known.epoch == producer_epoch
        base_sequence = (known.last_sequence + 1) & MAX_COUNT if known is not None and goes_on else 0
    check_range("base_sequence", base_sequence, 31)
    return ProducerFields(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=transactional,
    )


def check_producer_epoch(
    state: ProducerState, producer_id: int, producer_epoch: int, path: Path
) -> ProducerEntry | None:
    """Refuse an epoch below the producer's last one, as a leader does; return what is known of the producer."""
    check_range("producer_epoch", producer_epoch, 15)
    known = state.find(producer_id)
    if known is not None and producer_epoch < known.epoch:
        message = f"producer_epoch {producer_epoch} of producer {producer_id} is below its last one, {known.epoch}"
        raise LogError(message, path=str(path))
    return known


def next_sequence(table: t.Table) -> int:
    """The sequence behind the last batch of a table, -1 where it has none; sequences wrap."""
    sequence, base, last = (int(table[column, -1]) for column in (t.BASE_SEQUENCE, t.BASE_OFFSET, t.LAST_OFFSET))
    return -1 if sequence < 0 else (sequence + last - base + 1) & MAX_COUNT
