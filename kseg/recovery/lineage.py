"""Where two replicas of a log part, by their leader epochs: what a follower works out with its leader (KIP-101)."""

from __future__ import annotations

from kseg.index.epoch import UNDEFINED, LeaderEpochs


def diverging_offset(
    follower: LeaderEpochs, follower_end: int, leader: LeaderEpochs, leader_end: int, high_watermark: int | None
) -> int | None:
    """The offset that the follower has to be cut back to; None where the epochs do not tell and nothing else does.

    Each round the follower asks the leader where its own last epoch ended. If the answer is about an epoch that the
    follower knows, both share the log up to the smaller end; if not, the follower drops what it has behind that epoch
    and asks again.

    Args:
        high_watermark: Of the follower: what it falls back to where the leader does not know the epoch.
    """
    epochs, end = follower, follower_end
    while True:
        if epochs.latest is None:
            return end if follower.entries else high_watermark
        known, known_end = leader.end_offset_for(epochs.latest.epoch, leader_end)
        if (known, known_end) == UNDEFINED:
            return None if high_watermark is None else min(high_watermark, end)
        own, own_end = epochs.end_offset_for(known, end)
        if own == known:
            return min(own_end, known_end, end)
        end = min(own_end, end) if own_end >= 0 else 0
        shorter = epochs.truncate_from_end(end)
        if shorter == epochs:
            return min(end, known_end)
        epochs = shorter
