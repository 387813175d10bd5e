"""Where consumer groups stand: their last commits in the logs of `__consumer_offsets`.

A commit inside a transaction counts once the transaction is committed; a deleted one does not count.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from kseg.errors import OptionError, UnsupportedError
from kseg.internal import consumer_offsets
from kseg.internal.framing import UNKNOWN
from kseg.internal.schema import Fields
from kseg.log.partition import Log
from kseg.log.replay import decode_latest, load_latest
from kseg.log.select import choose_replicas

logger = logging.getLogger(__name__)

_COMMITS: Final = (consumer_offsets.LEGACY_OFFSET_COMMIT, consumer_offsets.OFFSET_COMMIT)


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """Where a group stands in a partition; None for what the commit does not tell."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    metadata: str
    commit_timestamp_ms: int
    topic_id: str | None
    record_offset: int

    @classmethod
    def of(cls, decoded: Fields, record_offset: int) -> Self:
        """Make it of a decoded OffsetCommit."""
        key, value = decoded["key"], decoded["value"]
        epoch = value.get("leaderEpoch", -1)
        return cls(
            key["group"],
            key["topic"],
            key["partition"],
            value["offset"],
            epoch if epoch >= 0 else None,
            value["metadata"],
            value["commitTimestamp"],
            value.get("topicId"),
            record_offset,
        )


def committed_offsets(logs: Iterable[Log], *, group: str | None = None) -> list[CommittedOffset]:
    """The last commits, by group, topic and partition.

    Args:
        logs: Among them the partitions of `__consumer_offsets`; others are not looked at.
        group: Only those of this group; only its records are decoded.

    Raises:
        UnsupportedError: A commit of the group asked for cannot be understood. Where all are asked for, such a one is
            passed over, with a warning.
    """
    wanted = choose_replicas([log for log in logs if log.topic == consumer_offsets.TOPIC])
    commits: dict[tuple[str, str, int], CommittedOffset] = {}
    for record_offset, decoded in decode_latest(consumer_offsets.TOPIC, load_latest(wanted, _prefixes(group))):
        if decoded["type"] == UNKNOWN:
            if group is not None:
                raise UnsupportedError(f"a commit of group {group}: {decoded['reason']}", offset=record_offset)
            logger.warning("a commit at offset %d is passed over: %s", record_offset, decoded["reason"])
            continue
        commit = CommittedOffset.of(decoded, record_offset)
        place = (commit.group, commit.topic, commit.partition)
        # The same place under the old and the new type of key: the later record counts.
        if place not in commits or commits[place].record_offset < record_offset:
            commits[place] = commit
    return [commits[place] for place in sorted(commits)]


def _prefixes(group: str | None) -> list[bytes]:
    """How the keys of commits begin: with their type, then the group's name."""
    kinds = [number.to_bytes(2, "big") for number in _COMMITS]
    if group is None:
        return kinds
    name = group.encode()
    if len(name) >= 1 << 15:
        raise OptionError(f"a consumer group's name has at most {(1 << 15) - 1} bytes, got {len(name)}")
    return [kind + len(name).to_bytes(2, "big") + name for kind in kinds]
