"""Leader epochs of a log whose checkpoint is missing or broken."""

from __future__ import annotations

from collections.abc import Iterable

from kseg.index.epoch import LeaderEpochs
from kseg.log.segment import Segment


def epochs_of_batches(segments: Iterable[Segment]) -> LeaderEpochs:
    """The epochs that the batches of segments tell, as a broker gathers them that recovers them."""
    epochs = LeaderEpochs()
    for segment in segments:
        with segment.open() as file:
            for chunk in segment.walk(file, end=segment.sound_size if segment.is_last else None):
                epochs = epochs.assign_batches(chunk.table, chunk.rows)
    return epochs
