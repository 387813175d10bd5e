"""How many records and keys a range of a log holds, guessed from small pieces of it.

The range is cut into strata of one size, and of each one piece is read, at a random place: keys that come back in a
regular way would meet pieces at regular places always or never. What counts for a key is in how many pieces it is, not
how often: within a piece the same key comes again and again where it is written in a row.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kseg.compaction.decode import EVERYTHING
from kseg.compaction.key_reader import KeyReader
from kseg.compaction.keymap import new_hash_key
from kseg.compaction.pieces import Piece, cut_segment, walk_piece
from kseg.errors import FormatError
from kseg.log.segment import Segment
from kseg.native import table as t
from kseg.storage import LocalStore

QUICK_SHARE: Final = 64  # a quick look is at one byte of so many, within limits
LEAST_BYTES: Final = 512 << 10
QUICK_BYTES: Final = 2 << 20
CLOSE_BYTES: Final = 8 << 20
QUICK_PIECES: Final = 16
CLOSE_PIECES: Final = 128
REMOTE_PIECES: Final = 8  # to read one takes requests
_SEED: Final = 0  # the same log has the same sample


@dataclass(frozen=True, slots=True)
class Sample:
    """What a sample of a range says of all of it."""

    records: int
    keys: int
    is_plain: bool = True
    """Whether half of the bytes or more are not compressed, or belong to transactions."""
    growth: float = 1.0
    """How many bytes a byte of the log has when it is decompressed."""
    record_bytes: float = 100.0
    """Of the log, for each record."""


def sample_keys(segments: Sequence[Segment], *, closely: bool = False) -> Sample:
    """Guess how many records and distinct keys some segments hold; a small log is not guessed but counted.

    Args:
        closely: Look at 8 MiB, instead of at 2 MiB or, of a log below 128 MiB, at less.
    """
    total = sum(segment.size for segment in segments)
    wanted = CLOSE_BYTES if closely else min(max(total // QUICK_SHARE, LEAST_BYTES), QUICK_BYTES)
    is_local = all(isinstance(segment.store, LocalStore) for segment in segments)
    most = (CLOSE_PIECES if closely else QUICK_PIECES) if is_local else REMOTE_PIECES
    counter = _Counter()
    for piece in _choose(segments, total, wanted, most):
        counter.add(piece)
        if counter.seen >= wanted:  # a piece has a batch or more, however large that is
            break
    return counter.sample(total)


def _choose(segments: Sequence[Segment], total: int, wanted: int, most: int) -> Iterator[Piece]:
    """At most so many pieces of about `wanted` bytes together, in random order; all where these are no more."""
    strata = [piece for segment in segments for piece in cut_segment(segment, max(-(-total // most), 1))]
    if total <= wanted:
        yield from strata
        return
    chance = random.Random(_SEED)
    for stratum in chance.sample(strata, min(most, len(strata))):
        yield _part(stratum, wanted // most, chance.random())


def _part(piece: Piece, size: int, place: float) -> Piece:
    """About `size` bytes of a piece, at a place from 0 to 1 in it; all of it where the index tells no places."""
    index = piece.segment.offset_index
    low, high = np.searchsorted(index.offsets, [piece.start + 1, piece.end]).tolist()
    offsets = np.concatenate([[piece.start], index.offsets[low:high], [piece.end]])
    begin = int(index.positions[low - 1]) if low else 0
    positions = np.concatenate([[begin], index.positions[low:high], [begin + piece.size]])
    first = int(np.searchsorted(positions[:-1], begin + place * max(piece.size - size, 0), "right")) - 1
    last = min(int(np.searchsorted(positions, positions[first] + size)), len(positions) - 1)
    return Piece(piece.segment, int(offsets[first]), int(offsets[last]), int(positions[last] - positions[first]))


class _Counter:
    """Counts what pieces hold."""

    def __init__(self) -> None:
        self._reader = KeyReader(new_hash_key())
        self._records = 0
        self._plain = 0
        self._hashes = [np.empty(0, np.int64)]
        self.seen = 0  # bytes

    def add(self, piece: Piece) -> None:
        """Read a piece.

        Raises:
            FormatError: It is damaged.
        """
        reader = self._reader
        try:
            for chunk, rows in walk_piece(piece, check=False, room=reader.room):
                sizes, attributes = chunk.table[[t.SIZE, t.ATTRIBUTES], rows.start : rows.stop]
                self.seen += int(sizes.sum())
                is_plain = (attributes & t.CODEC_MASK == 0) | (attributes & t.TRANSACTIONAL_BIT != 0)
                self._plain += int(sizes[is_plain].sum())
                reader.read(chunk, rows, np.zeros(rows.stop, np.bool_), EVERYTHING[0])
                self._records += int(chunk.table[t.COUNT, rows.start : rows.stop].sum())
        except FormatError as error:
            raise error.with_context(path=piece.segment.path) from None
        hashes = np.sort(reader.take()[:, 0])  # np.unique takes ten times as long
        self._hashes.append(hashes[_run_starts(hashes)])

    def sample(self, total: int) -> Sample:
        """What that says of `total` bytes."""
        kind = 2 * self._plain >= self.seen, self._reader.payload_bytes / max(self.seen, 1)
        record_bytes = self.seen / max(self._records, 1)
        hashes = np.sort(np.concatenate(self._hashes))
        pieces = np.diff(_run_starts(hashes), append=len(hashes))
        records, keys = self._records, len(pieces)
        if 0 < self.seen < total:
            records = int(records * total / self.seen)
            once, twice = (int(np.count_nonzero(pieces == count)) for count in (1, 2))
            keys = min(keys + _unseen(once, twice, len(self._hashes) - 1, self.seen / total), records)
        return Sample(records, keys, *kind, record_bytes)


def _run_starts(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where values begin that are not those before them."""
    return np.flatnonzero(np.concatenate([np.ones(len(values[:1]), np.bool_), values[1:] != values[:-1]]))


def _unseen(once: int, twice: int, pieces: int, share: float) -> int:
    """How many keys are in none of the pieces, which are a share of all, if so many are in one or two of them.

    That is Chao and Lin's estimate for samples without replacement (Statistica Sinica 22, 2012), with a third of its
    term for the share: with all of it keys that are drawn at random, and not in turn, are too few. It also is right
    where each key has its time. Of keys that are written more and less often it finds too few.
    """
    if not once:
        return 0
    most = once * (1 - share) / share
    return int(min(once**2 / (2 * twice * pieces / max(pieces - 1, 1) + once**2 / most / 3), most))
