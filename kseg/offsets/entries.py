"""The file of exported offsets: a JSON object a line, by the names of Spark's view `offsets`.

`commitTimestamp` is in milliseconds. Names that are not known are passed over, so what `kseg offsets --json` prints is
such a file too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from kseg.errors import OptionError
from kseg.log.metadata import is_uuid
from kseg.log.names import MAX_OFFSET, MAX_PARTITION, parse_partition_dir
from kseg.storage import open_store

MAX_FILE_BYTES: Final = 1 << 30
_NAMES: Final = {
    "group": "group",
    "topic": "topic",
    "partition": "partition",
    "offset": "offset",
    "leaderEpoch": "leader_epoch",
    "metadata": "metadata",
    "commitTimestamp": "commit_timestamp_ms",
    "topicId": "topic_id",
}


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    """Where a group stands, or shall stand, in a partition; None for what is not known."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int | None = None
    metadata: str = ""
    commit_timestamp_ms: int | None = None
    topic_id: str | None = None

    def check(self) -> OffsetEntry:
        """Refuse what cannot be committed; what is read from a log may be anything."""
        if not isinstance(self.group, str) or not isinstance(self.topic, str) or not isinstance(self.metadata, str):
            raise OptionError("group, topic and metadata must be strings")
        _check_number("partition", self.partition, MAX_PARTITION)
        _check_number("offset", self.offset, MAX_OFFSET)
        if self.leader_epoch is not None:
            _check_number("leaderEpoch", self.leader_epoch, 2**31 - 1)
        if self.commit_timestamp_ms is not None:
            _check_number("commitTimestamp", self.commit_timestamp_ms, 2**63 - 1)
        if parse_partition_dir(f"{self.topic}-{self.partition}") is None:
            raise OptionError(f"{self.topic!r} cannot be a topic")
        if self.topic_id is not None and not (isinstance(self.topic_id, str) and is_uuid(self.topic_id)):
            raise OptionError("topicId must be a uuid in base64 of 22 characters")
        return self

    @property
    def place(self) -> tuple[str, str, int]:
        """What it is about; two commits for one place contradict each other."""
        return self.group, self.topic, self.partition

    def to_row(self) -> dict[str, Any]:
        """The object of its line."""
        return {name: getattr(self, field) for name, field in _NAMES.items()}


def _check_number(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise OptionError(f"{name} must be a number from 0 to {most}, got {value!r}")


def format_entries(entries: Iterable[OffsetEntry]) -> bytes:
    """The bytes of a file."""
    rows = (json.dumps(entry.to_row(), ensure_ascii=True, separators=(",", ":")) for entry in entries)
    return "".join(f"{row}\n" for row in rows).encode("ascii")


def parse_entries(data: bytes, path: str | None = None) -> list[OffsetEntry]:
    """Take a file apart.

    Raises:
        OptionError: A line is no such object, or a group's partition is there twice.
    """
    found: dict[tuple[str, str, int], OffsetEntry] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = _parse_line(line)
            if entry.place in found:
                raise OptionError(f"group {entry.group} has {entry.topic}-{entry.partition} twice")
        except OptionError as error:
            raise OptionError(f"line {number}: {error.message}", path=path) from None
        found[entry.place] = entry
    return list(found.values())


def _parse_line(line: bytes) -> OffsetEntry:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise OptionError("no JSON") from None
    if not isinstance(row, dict):
        raise OptionError("no JSON object")
    missing = [name for name in ("group", "topic", "partition", "offset") if row.get(name) is None]
    if missing:
        raise OptionError(f"no {', '.join(missing)}")
    return OffsetEntry(**{field: row[name] for name, field in _NAMES.items() if row.get(name) is not None}).check()


def read_entries(path: str | os.PathLike[str]) -> list[OffsetEntry]:
    """Read a file, by path or URI."""
    store, place = open_store(path)
    found = store.stat(place)
    if found is not None and found.size > MAX_FILE_BYTES:
        raise OptionError(f"{found.size} bytes are too many for a file of offsets", path=place)
    return parse_entries(store.read(place), place)
