"""How the keys of a round are compared: in memory where they fit, else through files. Chosen by a sample."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kseg.compaction.config import CleanerConfig, Strategy
from kseg.compaction.decode import EVERYTHING
from kseg.compaction.key_reader import KeyReader
from kseg.compaction.keymap import largest_map, new_hash_key, slots_for
from kseg.compaction.pieces import Piece, cut_segment, walk_piece
from kseg.compaction.policy import CleanableRange
from kseg.compaction.spill import files_for
from kseg.errors import FormatError
from kseg.log.segment import Segment
from kseg.native import table as t
from kseg.tables import format_size

SAMPLES: Final = 8
SAMPLE_BYTES: Final = 1 << 20
MIN_SAMPLE_BYTES: Final = 64 << 10
SAMPLED_SHARE: Final = 64  # of a log of some size one byte of so many is looked at
MARGIN: Final = 1.25


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


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """The way that was chosen, and why.

    Attributes:
        slots: Of the map in memory.
        files: That keys are spilled to.
    """

    strategy: Strategy
    reason: str
    estimate: Sample
    slots: int
    files: int

    @property
    def is_swept(self) -> bool:
        """Whether the log is read from its end, so that it is decompressed once (`sweep`)."""
        return not self.estimate.is_plain


def plan_keys(
    segments: Sequence[Segment], cleanable: CleanableRange, config: CleanerConfig, workers: int | None = None
) -> KeyPlan:
    """Choose by a sample of the records that were not cleaned before; those that were are compared with these."""
    dirty = [s for s in segments if s.base_offset < cleanable.first_uncleanable]
    floor = max((s.base_offset for s in dirty if s.base_offset <= cleanable.first_dirty), default=0)
    estimate = sample_keys([s for s in dirty if s.base_offset >= floor])
    whole = sum(s.size for s in dirty)
    share = whole / max(sum(s.size for s in dirty if s.base_offset >= floor), 1)
    room = largest_map(config.memory_budget)
    needed = slots_for(int(estimate.keys * MARGIN))
    threads = workers or os.cpu_count() or 1
    files = files_for(int(estimate.records * share * MARGIN), config.memory_budget, threads)
    slots = min(slots_for(int(min(estimate.records, estimate.keys) * MARGIN)), room)
    about = f"about {estimate.keys} keys take {format_size(needed * 24)}"
    budget = f"the budget of {format_size(config.memory_budget)}"
    if config.strategy is not None:
        return KeyPlan(config.strategy, f"asked for; {about} of {budget}", estimate, slots, files)
    if needed <= room:
        return KeyPlan("memory", f"{about}, within {budget}", estimate, slots, files)
    return KeyPlan("spill", f"{about}, above {budget}: {files} files", estimate, slots, files)


def sample_keys(segments: Sequence[Segment]) -> Sample:
    """Guess how many records and distinct keys some segments hold; a small log is not guessed but counted."""
    wanted = sum(segment.size for segment in segments) // (SAMPLES * SAMPLED_SHARE)
    size = min(max(wanted, MIN_SAMPLE_BYTES), SAMPLE_BYTES)
    pieces = [piece for segment in segments for piece in cut_segment(segment, size)]
    chosen = pieces if len(pieces) <= SAMPLES else [pieces[i * len(pieces) // SAMPLES] for i in range(SAMPLES)]
    reader = KeyReader(new_hash_key())
    records, seen, plain = 0, 0, 0
    for piece in chosen:
        try:
            for chunk, rows in walk_piece(piece, check=False, room=reader.room):
                sizes, attributes = chunk.table[[t.SIZE, t.ATTRIBUTES], rows.start : rows.stop]
                seen += int(sizes.sum())
                is_plain = (attributes & t.CODEC_MASK == 0) | (attributes & t.TRANSACTIONAL_BIT != 0)
                plain += int(sizes[is_plain].sum())
                reader.read(chunk, rows, np.zeros(rows.stop, np.bool_), EVERYTHING[0])
                records += int(chunk.table[t.COUNT, rows.start : rows.stop].sum())
        except FormatError as error:
            raise error.with_context(path=piece.segment.path) from None
    hashes = np.sort(reader.take()[:, 0])  # np.unique takes ten times as long
    distinct = len(hashes[:1]) + int(np.count_nonzero(hashes[1:] != hashes[:-1]))
    kind = 2 * plain >= seen, reader.payload_bytes / max(seen, 1), seen / max(records, 1)
    scale = _total_bytes(pieces) / max(seen, 1)
    if scale <= 1:
        return Sample(records, distinct, *kind)
    every = int(records * scale)
    return Sample(every, min(_all_keys(records, distinct), every), *kind)


def _total_bytes(pieces: Sequence[Piece]) -> int:
    return sum(piece.size for piece in pieces)


def _all_keys(records: int, distinct: int) -> int:
    """How many keys there are if so many records, drawn evenly from them, show so many distinct ones."""
    if distinct >= records:
        return 2**62
    low, high = float(distinct), float(distinct) ** 2 + 1
    for _ in range(100):
        middle = (low + high) / 2
        if middle * -math.expm1(-records / middle) < distinct:
            low = middle
        else:
            high = middle
    return int(high) + 1
