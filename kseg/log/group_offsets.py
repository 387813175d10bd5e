"""Where a consumer group stands: its last commits in the logs of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from kseg.errors import KsegError, OptionError, UnsupportedError
from kseg.internal import consumer_offsets
from kseg.internal.framing import UNKNOWN
from kseg.log.partition import Log
from kseg.types import TopicPartition

_TYPES = (consumer_offsets.LEGACY_OFFSET_COMMIT, consumer_offsets.OFFSET_COMMIT)


@dataclass(frozen=True, slots=True)
class Commit:
    """The offset that a group will read next; the topic's id where the commit names one."""

    offset: int
    topic_id: str | None


def read_group_offsets(group: str, logs: Sequence[Log]) -> dict[TopicPartition, Commit]:
    """Read the last commit of a group for each partition; deleted ones are left out.

    Commits of open or aborted transactions do not count. Only records of this group are decoded, and of each key
    only the last.

    Args:
        logs: Partitions of `__consumer_offsets`.
    """
    name = group.encode()
    if len(name) >= 1 << 15:
        raise OptionError(f"a consumer group's name has at most {(1 << 15) - 1} bytes, got {len(name)}")
    prefixes = [kind.to_bytes(2, "big") + len(name).to_bytes(2, "big") + name for kind in _TYPES]
    commits: dict[TopicPartition, Commit] = {}
    for log in logs:
        for key, value, offset in _last_records(log, prefixes):
            try:
                decoded = consumer_offsets.decode(key, value)
            except KsegError as error:
                raise error.with_context(path=log.directory, offset=offset) from None
            if decoded["type"] == UNKNOWN:
                raise UnsupportedError(
                    f"a commit of group {group}: {decoded['reason']}", path=log.directory, offset=offset
                )
            if decoded["value"] is None:
                continue
            tp = TopicPartition(decoded["key"]["topic"], decoded["key"]["partition"])
            commits[tp] = Commit(decoded["value"]["offset"], decoded["value"].get("topicId"))
    return commits


def _last_records(log: Log, prefixes: Sequence[bytes]) -> list[tuple[bytes, bytes | None, int]]:
    """Key, value and offset of the newest record of each key that begins with one of some prefixes of one length."""
    newest: dict[bytes, tuple[bytes, bytes | None, int]] = {}
    for batch in log.read(isolation="read_committed", columns=["key", "value", "offset"]):
        starts = pc.binary_slice(batch.column("key"), 0, len(prefixes[0]))
        matching = pc.equal(starts, prefixes[0])
        for prefix in prefixes[1:]:
            matching = pc.or_(matching, pc.equal(starts, prefix))
        found = batch.filter(matching)
        for record in zip(*(column.to_pylist() for column in found.columns), strict=True):
            newest[record[0][2:]] = record  # without the type: both types are about the same thing
    return list(newest.values())
