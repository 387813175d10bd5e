"""Marks: small objects beside a partition's segments that say which of them do not count any more, or not yet.

`<partition's directory>/.kseg-retired-<id>.json`. Storage plugins pass over them; kseg's readers see them in the
listing that they need anyway. One mark is one change, and takes effect as a whole, since objects are replaced at once:

| state     | does not count                | until                                              |
|-----------|-------------------------------|----------------------------------------------------|
| `pending` | what shall replace the others | all of it is there, and the mark becomes `retired` |
| `retired` | what was replaced, or expired | its objects were swept, and the mark goes too      |

How long ago a segment was retired, the time of the mark's object tells, which is the store's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kseg.errors import FormatError
from kseg.log.metadata import is_uuid
from kseg.log.writer_place import random_topic_id
from kseg.tiering.layout import RemoteName

MAX_MARK_BYTES: Final = 64 << 20
VERSION: Final = 1
State = Literal["pending", "retired"]
Names = tuple[RemoteName, ...]
_STATES: Final = ("pending", "retired")
_NAME = re.compile(r"\.kseg-retired-([A-Za-z0-9_-]{22})\.json")
_STEM = re.compile(r"([0-9]{20})-([A-Za-z0-9_-]{22})")


@dataclass(frozen=True, slots=True)
class Mark:
    """Which segments of one partition give way, to which others, and why; an id of its own is its name.

    Attributes:
        reason: `retention`, `compaction` or `erase`, for people.
        segments: Those that give way.
        replaced_by: Those that hold their offsets then; none where they expired.
    """

    reason: str
    segments: Names
    replaced_by: Names = ()
    state: State = "retired"
    mark_id: str = field(default_factory=random_topic_id)

    @property
    def name(self) -> str:
        """The object's name in the partition's directory."""
        return f".kseg-retired-{self.mark_id}.json"

    @property
    def hidden(self) -> Names:
        """The segments that do not count while the mark is there."""
        return self.segments if self.state == "retired" else self.replaced_by

    def to_bytes(self) -> bytes:
        """The object."""
        first = self.segments[0]
        content = {
            "version": VERSION,
            "state": self.state,
            "reason": self.reason,
            "topic": first.topic,
            "topicId": first.topic_id,
            "partition": first.partition,
            "segments": [name.stem for name in self.segments],
            "replacedBy": [name.stem for name in self.replaced_by],
        }
        return json.dumps(content).encode()

    @classmethod
    def parse(cls, name: str, data: bytes, path: str) -> Mark:
        """Read an object whose name `is_mark` knows.

        Raises:
            FormatError: It is broken, or of a later version.
        """
        try:
            content = json.loads(data)
            place = content["topic"], content["partition"], content["topicId"]
            if content["version"] != VERSION or content["state"] not in _STATES or not content["segments"]:
                raise ValueError
            if not isinstance(place[0], str) or not isinstance(place[1], int):
                raise ValueError
            return cls(
                str(content["reason"]),
                _names(place, content["segments"]),
                _names(place, content["replacedBy"]),
                content["state"],
                _mark_id(name),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise FormatError("no mark of retired segments that this version can read", path=path) from None


def is_mark(name: str) -> bool:
    """Whether an object is a mark, by the last part of its key."""
    match = _NAME.fullmatch(name.rpartition("/")[2])
    return match is not None and is_uuid(match[1])


def hidden_ids(marks: Iterable[Mark]) -> frozenset[str]:
    """Ids of all segments that do not count."""
    return frozenset(name.segment_id for mark in marks for name in mark.hidden)


def _mark_id(name: str) -> str:
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(name)
    return match[1]


def _names(place: tuple[Any, Any, Any], stems: list[str]) -> Names:
    topic, partition, topic_id = place
    found = []
    for stem in stems:
        match = _STEM.fullmatch(stem)
        if match is None:
            raise ValueError(stem)
        found.append(RemoteName(topic, partition, topic_id, int(match[1]), match[2]))
    return tuple(found)
