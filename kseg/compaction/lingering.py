"""A round that begins inside a segment: whose batches Kafka's cleaner takes for aborted, though they are not.

Pass 1 of the cleaner starts to read at the index entry before the first dirty offset, and knows the aborted
transactions of the whole segment. One whose marker lies before that place never ends for it: until the next ABORT
marker of that producer it takes all its transactions for aborted, and lets none of their records supersede others.
Nothing is lost by that, some records stay for a round longer; kseg keeps the same ones.

Where a broker that starts rebuilds the segment's indexes, those that it would make count.
"""

from __future__ import annotations

from collections.abc import Sequence

from kseg.compaction.markers import is_abort, transaction_rows
from kseg.compaction.pieces import END
from kseg.errors import FormatError
from kseg.index.build import IndexBuilder
from kseg.index.txn import AbortedTxn
from kseg.log.segment import Segment
from kseg.native import table as t
from kseg.storage import RandomFile


def lingering_aborts(
    segments: Sequence[Segment],
    aborted: Sequence[AbortedTxn],
    first_dirty: int,
    index_interval_bytes: int,
    rebuilt_from: int | None,
) -> list[AbortedTxn]:
    """What pass 1 has to take for aborted besides `aborted`: from where it starts to the marker that ends it.

    Args:
        rebuilt_from: A broker rebuilds the indexes of segments from this offset on; None: it believes all.
    """
    begun = [segment for segment in segments if segment.base_offset <= first_dirty]
    if not begun:
        return []
    base = begun[-1].base_offset
    if not any(base <= txn.last_offset < first_dirty for txn in aborted):
        return []
    start: int | None = None
    waiting: set[int] = set()
    ends: dict[int, int] = {}
    for segment in segments[len(begun) - 1 :]:
        try:
            with segment.open() as file:
                position = 0
                if start is None:
                    is_rebuilt = segment.needs_rebuild or (rebuilt_from is not None and base >= rebuilt_from)
                    interval = index_interval_bytes if is_rebuilt else None
                    position = _find_position(segment, file, first_dirty, interval)
                walker = segment.walk(file, start=position)
                for chunk in walker:
                    if start is None:
                        start = int(chunk.table[t.LAST_OFFSET, 0])
                        waiting = {txn.producer_id for txn in aborted if base <= txn.last_offset < start}
                    rows = transaction_rows(chunk, range(chunk.rows))
                    for _, last, producer, *_ in rows[:, is_abort(rows)].T.tolist():
                        if producer in waiting:
                            waiting.discard(producer)
                            ends[producer] = last
                    if not waiting:
                        walker.stop()
                        break
        except FormatError as error:
            raise error.with_context(path=segment.path) from None
        if start is not None and not waiting:
            break
    ends |= dict.fromkeys(waiting, END)
    return [AbortedTxn(producer, start or 0, end, 0) for producer, end in ends.items()]


def _find_position(segment: Segment, file: RandomFile, offset: int, rebuilt_interval: int | None) -> int:
    """Where the cleaner starts to read for an offset: by the index there is, or by one that is rebuilt."""
    if rebuilt_interval is None:
        return segment.find_position(file, offset)
    builder = IndexBuilder(segment.base_offset, rebuilt_interval)
    for chunk in segment.walk(file):
        builder.add(chunk.table, chunk.rows)
        if chunk.table[t.LAST_OFFSET, chunk.rows - 1] >= offset:
            break
    return builder.offset_index.lookup(offset)[1]
