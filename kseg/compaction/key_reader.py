"""The keys of batches, with their offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kseg.compaction.decode import Payloads, RunDecoder
from kseg.compaction.pieces import Piece
from kseg.format.batch import record_error
from kseg.format.file_span import FileSpan
from kseg.log.visibility import AbortedRanges
from kseg.log.walk import Chunk
from kseg.native import keys, steps
from kseg.native import table as t
from kseg.native.header_reads import pread_address
from kseg.native.records import DONE

ROOM_ENTRIES: Final = 1 << 16  # the keys of a piece of usual records


class KeyReader:
    """Collects the keys of batches, with their offsets, in a decoder's memory; one at a time per thread.

    Attributes:
        in_order: Whether no two records that were read can have the same offset.
        last_offset: The last one of all batches that were read.
        payload_bytes: Of the records that were read, decompressed, but for those that were read straight from a file.
        room: For the walk that gives the chunks.
    """

    def __init__(self, hash_key: NDArray[np.uint64], decoder: RunDecoder | None = None) -> None:
        self._hash_key = hash_key
        self._decoder = decoder or RunDecoder()
        self.room = self._decoder.room
        self.count = 0
        self.in_order = True
        self.last_offset = -1
        self.payload_bytes = 0

    def read(self, chunk: Chunk, rows: range, hidden: NDArray[np.bool_], first_offset: int) -> None:
        """Add the records of some rows that have a key and an offset from `first_offset` on.

        Raises:
            FormatError: A payload or a record is damaged.
        """
        for found in self._decoder.unpack(chunk, rows, hidden):
            self.read_payloads(found, first_offset)

    def read_payloads(self, found: Payloads, first_offset: int) -> bool:
        """The same for batches that are decompressed already; tell whether their offsets rise from record to record.

        Raises:
            FormatError: A record is damaged.
        """
        table = found.chunk.table
        self._make_room(found.records)
        self.count, stop, status, in_order = keys.fill_entries(
            found.chunk.data, found.arena, table, found.rows, found.skip, found.starts, found.ends, first_offset,
            self._hash_key, self._decoder.entries, self.count,
        )  # fmt: skip
        if status != DONE:
            raise record_error(table, stop, status)
        self.in_order = self.in_order and in_order
        self.payload_bytes += found.payload_bytes
        self.last_offset = max(self.last_offset, int(table[t.LAST_OFFSET, found.rows.stop - 1]))
        return in_order

    def read_straight(
        self,
        span: FileSpan,
        piece: Piece,
        aborted: AbortedRanges,
        first_offset: int,
        *,
        see: Callable[[Chunk, range], None],
        put: Callable[[NDArray[np.int64]], None],
    ) -> bool:
        """The same for a piece of a file, by kernels alone, as far as they go; tell whether nothing is left of it.

        The span then begins with what is left.

        Args:
            see: Is shown rows that have transactional or control batches among them.
            put: Takes what was collected, where there is no room for more.
        """
        decoder, room = self._decoder, self._decoder.steps
        self._make_room(ROOM_ENTRIES)
        cursor = span.new_cursor(keys.CURSOR)
        cursor[keys.SCANNED] = -1
        status = steps.GOT
        while status not in (steps.ENDED, steps.ODD):
            cursor[keys.FILLED] = self.count
            status = keys.scan_entries(
                (pread_address(), span.descriptor, span.end), room.buffer, room.table, room.skip,
                (aborted.producers, aborted.firsts, aborted.markers), piece.segment.base_offset, decoder.arena,
                decoder.limit, decoder.functions.addresses, room.starts, room.ends, (piece.start, piece.end),
                first_offset, self._hash_key, self._decoder.entries, cursor,
            )  # fmt: skip
            self.count = int(cursor[keys.FILLED])
            if status == steps.FULL:
                put(self.take())
            elif cursor[keys.TRANSACTIONS]:
                see(room.chunk(cursor), range(int(cursor[keys.FIRST]), int(cursor[steps.ROW])))
                cursor[keys.TRANSACTIONS] = False
        self.in_order = self.in_order and not cursor[keys.DISORDER]
        self.last_offset = max(self.last_offset, int(cursor[keys.SCANNED]))
        span.move(room.table, cursor)
        return status == steps.ENDED

    def read_lingering(self, chunk: Chunk, rows: range, hidden: NDArray[np.bool_], first_offset: int) -> None:
        """The same, with `~offset` instead of the offset."""
        before = self.count
        self.read(chunk, rows, hidden, first_offset)
        added = self._decoder.entries[before : self.count, 2]
        np.invert(added, out=added)

    def take(self) -> NDArray[np.int64]:
        """What was collected, rows of (low hash, high hash, offset), and begin anew; valid until the next `read`."""
        count, self.count = self.count, 0
        return self._decoder.entries[:count]

    def _make_room(self, more: int) -> None:
        needed = self.count + more
        if len(self._decoder.entries) < needed:
            grown = np.empty((needed + needed // 4, 3), np.int64)
            grown[: self.count] = self._decoder.entries[: self.count]
            self._decoder.entries = grown
