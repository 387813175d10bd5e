"""Text checkpoints: a version line, a count line, then one entry a line, its fields split by white space.

As Kafka reads them (CheckpointFile): an empty file and a file that ends behind the version have no entries; another
version, a malformed number, a line with too many or too few fields, or a count that differs from the lines is an
error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from kseg.errors import IndexFileError
from kseg.types import TopicPartition

VERSION: Final = 0
_NUMBER = re.compile(r"([+-]?)0*([0-9]{1,19})")  # Python refuses to convert thousands of digits
_LINE_END = re.compile(r"\r\n|\n|\r")
_SPACE = re.compile(r"[ \t\n\x0b\f\r]+")


def _number(text: str, bits: int, line: int, path: str | None) -> int:
    match = _NUMBER.fullmatch(text)
    if match and -(2 ** (bits - 1)) <= (value := int(match[1] + match[2])) < 2 ** (bits - 1):
        return value
    raise IndexFileError(f"line {line}: {text[:40]!r} is no number of {bits} bits", path=path)


def parse_lines(data: bytes, fields: int, path: str | None = None) -> list[list[str]]:
    """Read a checkpoint's entries as fields of text.

    Raises:
        IndexFileError: The file is malformed.
    """
    lines = _LINE_END.split(data.decode("utf-8", "replace"))
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return []
    version = _number(lines[0], 32, 1, path)
    if version != VERSION:
        raise IndexFileError(f"version {version} of a checkpoint is unknown", path=path)
    if len(lines) == 1:
        return []
    count = _number(lines[1], 32, 2, path)
    entries = []
    for number, line in enumerate(lines[2:], 3):
        parts = _SPACE.split(
            line.rstrip(" \t\x0b\f")
        )  # as Java's split: a space in front makes a field, one behind none
        if len(parts) != fields:
            raise IndexFileError(f"line {number}: {line[:80]!r} has not {fields} fields", path=path)
        entries.append(parts)
    if len(entries) != count:
        raise IndexFileError(f"{count} entries expected, {len(entries)} found", path=path)
    return entries


def format_lines(entries: Iterable[Iterable[object]]) -> bytes:
    """Write a checkpoint."""
    lines = [" ".join(map(str, entry)) for entry in entries]
    return "".join(f"{line}\n" for line in [str(VERSION), str(len(lines)), *lines]).encode()


def parse_offsets(data: bytes, path: str | None = None) -> dict[TopicPartition, int]:
    """Read a checkpoint of `topic partition offset` lines; of a partition that is repeated the last line counts."""
    offsets = {}
    for line, (topic, partition, offset) in enumerate(parse_lines(data, 3, path), 3):
        tp = TopicPartition(topic, _number(partition, 32, line, path))
        offsets[tp] = _number(offset, 64, line, path)
    return offsets


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Write a checkpoint of `topic partition offset` lines."""
    return format_lines((tp.topic, tp.partition, offset) for tp, offset in offsets.items())


def parse_epochs(data: bytes, path: str | None = None) -> list[tuple[int, int]]:
    """Read a checkpoint of `epoch offset` lines."""
    lines = enumerate(parse_lines(data, 2, path), 3)
    return [(_number(epoch, 32, line, path), _number(offset, 64, line, path)) for line, (epoch, offset) in lines]
