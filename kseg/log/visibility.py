"""What a consumer may see: aborted transactions, and where reading stops.

The aborted transactions of a range are found in the transaction indexes of its segments and of later ones, because a
marker can lie far behind its data. A segment whose indexes a broker would rebuild is replayed instead of trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kseg.errors import CorruptRecordError, IndexFileError, StorageError
from kseg.index.txn import AbortedTxn
from kseg.log.files import read_sidecar
from kseg.log.names import FileKind
from kseg.log.producers import ProducerState
from kseg.log.segment import Segment
from kseg.log.sound_walk import SoundWalker
from kseg.log.walk import ROWS_PER_CHUNK, BatchWalker, Chunk, Walk, order_error, rows_in_order
from kseg.native import table as t
from kseg.native.visibility import fill_hidden
from kseg.types import MAX_OFFSET


@dataclass(frozen=True, slots=True)
class AbortedRanges:
    """Aborted transactions in the order that `native.visibility` searches: by producer, then by first offset."""

    producers: NDArray[np.int64]
    firsts: NDArray[np.int64]
    markers: NDArray[np.int64]

    @classmethod
    def of(cls, transactions: Iterable[AbortedTxn]) -> AbortedRanges:
        """Sort and lay out; the same transaction may be given twice."""
        ordered = sorted({(txn.producer_id, txn.first_offset, txn.last_offset) for txn in transactions})
        columns = np.array(ordered, np.int64).reshape(-1, 3).T
        return cls(*(np.ascontiguousarray(column) for column in columns))

    def within(self, start: int, end: int) -> AbortedRanges:
        """Those that touch `[start, end)`."""
        touching = (self.markers >= start) & (self.firsts < end)
        return AbortedRanges(self.producers[touching], self.firsts[touching], self.markers[touching])


NONE_ABORTED = AbortedRanges.of(())


def visible_rows(
    walker: Walk, aborted: AbortedRanges, base_offset: int, start: int, end: int, last_offset: int | None = None
) -> Iterator[tuple[Chunk, range, NDArray[np.bool_]]]:
    """The chunks of a walk, the rows of each that touch `[start, end)`, and which of them a reader must not see.

    Args:
        last_offset: Of the batch before those of the walk, where it is known.
    """
    hidden = np.empty(ROWS_PER_CHUNK, np.bool_)
    last = base_offset - 1 if last_offset is None else last_offset
    for chunk in walker:
        found, last = rows_in_order(chunk, base_offset, last)
        lasts = chunk.table[t.LAST_OFFSET, :found]
        first_row = int(lasts.searchsorted(start))
        # the row that holds `end - 1`, or the first behind it, is the last of interest
        end_row = found if last < end else min(int(lasts.searchsorted(end - 1)) + 1, found)
        fill_hidden(chunk.table, first_row, end_row, aborted.producers, aborted.firsts, aborted.markers, hidden)
        yield chunk, range(first_row, end_row), hidden
        if found < chunk.rows and end_row == found:  # made where it is raised: held here it would be a cycle
            raise order_error(chunk, found, last, base_offset, walker.path)
        if last >= end - 1:
            if end_row == chunk.rows and isinstance(walker, BatchWalker):
                walker.check_behind(chunk, base_offset, last)
            walker.stop()
            return


def replay_producers(
    segments: Sequence[Segment],
    snapshots: Sequence[int],
    *,
    log_start: int = 0,
    is_recovered: Callable[[Segment], bool] | None = None,
    upto: int | None = None,
    snapshot_limit: int | None = None,
    must_be_sound: bool = False,
) -> ProducerState:
    """Producer state at the end of `segments`, or at `upto`: the newest sound snapshot, then the batches behind it.

    Args:
        snapshots: Offsets of the snapshots that are there, descending.
        log_start: Use no snapshot up to this, and no batch below it, as a broker that starts.
        is_recovered: Whether a broker that starts takes a segment, in which the log starts, from its first batch on.
        snapshot_limit: Use no snapshot above this; completed transactions behind it are known then.
        must_be_sound: Raise at damage, even where reading passes over it.
    """
    limit = snapshot_limit if snapshot_limit is not None else upto
    log_start = max(log_start, segments[0].base_offset) if segments else log_start
    state = _from_newest_snapshot(segments, snapshots, log_start, limit)
    if state is None:
        state = ProducerState(_replay_start(segments, log_start, is_recovered))
    start = state.end_offset
    for i, segment in enumerate(segments):
        if start < log_start <= segment.base_offset and state.end_offset <= log_start:
            # LogLoader.recoverSegment keeps what it found by a snapshot, and none counts up to the log start
            state = ProducerState(log_start)
        following = segments[i + 1].base_offset if i + 1 < len(segments) else None
        if (following is not None and following <= start) or (upto is not None and segment.base_offset >= upto):
            continue
        with segment.open() as file:
            position = segment.find_position(file, start) if start > segment.base_offset else 0
            walker = segment.walk(file, start=position, end=segment.sound_size if segment.is_last else None)
            for chunk in walker:
                lasts = chunk.table[t.LAST_OFFSET, : chunk.rows]
                first = int(np.searchsorted(lasts, start))
                end = chunk.rows if upto is None else int(np.searchsorted(lasts, upto))
                state.add(chunk.table, end - first, first_row=first, strict=False)
        if must_be_sound and isinstance(walker, SoundWalker) and (walker.damages or segment.tail_problem is not None):
            raise CorruptRecordError(
                "a damaged place may hide how a transaction ended, and no transaction index tells it",
                path=segment.path,
                hint="read with read_uncommitted, or bring back the segments' .index and .txnindex files",
            )
    return state


def _replay_start(segments: Sequence[Segment], log_start: int, is_recovered: Callable[[Segment], bool] | None) -> int:
    """Where the replay begins without a snapshot: at the log start, or with the segment that the log starts in."""
    holder = segment_around(segments, log_start)
    return holder.base_offset if holder and is_recovered and is_recovered(holder) else log_start


def segment_around(segments: Sequence[Segment], log_start: int) -> Segment | None:
    """The segment that the log starts inside of, None where it starts with one."""
    holder = next((segment for segment in reversed(segments) if segment.base_offset <= log_start), None)
    return holder if holder and holder.base_offset < log_start else None


def _from_newest_snapshot(
    segments: Sequence[Segment], snapshots: Sequence[int], log_start: int, limit: int | None
) -> ProducerState | None:
    for offset in snapshots:
        if offset <= log_start or (limit is not None and offset > limit):
            continue
        store, directory = segments[0].store, segments[0].directory
        path = store.join(directory, f"{offset:020d}{FileKind.SNAPSHOT.value}")
        try:
            return ProducerState.from_snapshot(read_sidecar(store, path), offset, path)
        except IndexFileError:  # torn snapshots are normal after a crash: the next older one serves
            continue
        except StorageError as error:  # a broker may have deleted it meanwhile
            if not error.missing:
                raise
    return None


def aborted_transactions(
    segments: Sequence[Segment], snapshots: Sequence[int], start: int, end: int
) -> list[AbortedTxn]:
    """Aborted transactions that touch `[start, end)`, by marker.

    Those of a segment whose transaction index a broker would rebuild come from the batches.
    """
    found: list[AbortedTxn] = []
    replayed: list[AbortedTxn] | None = None
    floor = max((i for i, segment in enumerate(segments) if segment.base_offset <= start), default=0)
    ceilings = [*(segment.base_offset for segment in segments[floor + 1 :]), MAX_OFFSET]
    for segment, ceiling in zip(segments[floor:], ceilings, strict=False):
        if segment.needs_rebuild:
            replayed = replay_producers(segments, (), must_be_sound=True).aborted if replayed is None else replayed
            ended = [txn for txn in replayed if segment.base_offset <= txn.last_offset < ceiling]
            found += [txn for txn in ended if txn.last_offset >= start and txn.first_offset < end]
            continue
        collected, complete = segment.txn_index.collect(start, end)
        found += collected
        if complete:
            break
    return found
