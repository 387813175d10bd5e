"""Leader epochs that the batches of segments tell."""

from __future__ import annotations

from collections.abc import Iterable

from kseg.index.epoch import LeaderEpochs
from kseg.log.segment import Segment
from kseg.native import table as t


def epochs_of_batches(segments: Iterable[Segment], known: LeaderEpochs | None = None) -> LeaderEpochs:
    """The epochs that the batches of segments tell, on top of those known, as a broker gathers them that recovers them.

    Epochs do not fall in a segment: one whose last batch has none above those known is not read further.
    """
    epochs = known or LeaderEpochs()
    for segment in segments:
        if epochs.latest is not None and 0 <= _last_epoch(segment) <= epochs.latest.epoch:
            continue
        with segment.open() as file:
            for chunk in segment.walk(file, end=segment.sound_size if segment.is_last else None):
                epochs = epochs.assign_batches(chunk.table, chunk.rows)
    return epochs


def _last_epoch(segment: Segment) -> int:
    """The epoch of the last batch, -1 where it has none, as those of magic 0 and 1."""
    epoch = -1
    with segment.open() as file:
        position = segment.find_position(file, segment.base_offset + 0x7FFFFFFF)
        for chunk in segment.walk(file, start=position, end=segment.sound_size if segment.is_last else None):
            epoch = int(chunk.table[t.LEADER_EPOCH, chunk.rows - 1])
    return epoch
