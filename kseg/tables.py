"""Tables and words for people: what reports print as, and what the command line shows."""

from __future__ import annotations

import datetime
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

ELLIPSIS: Final = "…"
_LEAST_TEXT: Final = 2
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Args:
        at_least: How narrow text may become before columns are left out; None: a number or the like, never cut.
        droppable: May be left out, the highest number first, where cutting does not help.
    """

    title: str
    right: bool = False
    at_least: int | None = None
    droppable: int = 0


SEGMENT_COLUMNS: Final = (
    Column("TOPIC", at_least=12),
    Column("PART", right=True),
    Column("BASE", right=True),
    Column("NEXT", right=True),
    Column("SIZE", right=True),
)
"""What a table of segments begins with."""


def format_table(columns: Sequence[Column], rows: Iterable[Sequence[object]], width: int) -> list[str]:
    """Lay out a table in `width` characters a line: cut text, then leave columns out, then cut text to what it takes.

    Numbers are never cut: half a number reads as another one. A line is longer than `width` where they need it.
    """
    body = [[_cell(value) for value in row] for row in rows]
    kept = list(range(len(columns)))
    widths = [max([len(column.title), *(cells(row[i]) for row in body)]) for i, column in enumerate(columns)]
    floors = [
        w if c.at_least is None else min(w, max(c.at_least, len(c.title))) for w, c in zip(widths, columns, strict=True)
    ]
    while sum(floors[i] for i in kept) + 2 * (len(kept) - 1) > width:
        candidates = [i for i in kept if columns[i].droppable]
        if not candidates:
            break
        kept.remove(max(candidates, key=lambda i: columns[i].droppable))
    excess = sum(widths[i] for i in kept) + 2 * (len(kept) - 1) - width
    least = [w if c.at_least is None else min(w, _LEAST_TEXT) for w, c in zip(widths, columns, strict=True)]
    for limits in (floors, least):
        for i in sorted(kept, key=lambda i: -columns[i].droppable):  # what matters least is cut first
            cut = min(max(excess, 0), max(widths[i] - limits[i], 0))
            widths[i] -= cut
            excess -= cut
    lines = [[column.title for column in columns], *body]
    return ["  ".join(_padded(row[i], widths[i], columns[i].right) for i in kept).rstrip() for row in lines]


def _cell(value: object) -> str:
    return "-" if value is None else visible(str(value))


def _padded(text: str, width: int, right: bool) -> str:
    text = clip(text, width)
    padding = " " * (width - cells(text))
    return padding + text if right else text + padding


def cells(text: str) -> int:
    """How many places of a terminal a text takes: two for most East Asian characters, none for combining ones."""
    if text.isascii():
        return len(text)
    return sum(_cells_of(char) for char in text)


def _cells_of(char: str) -> int:
    return 0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clip(text: str, width: int) -> str:
    """Cut text to a width, with an ellipsis where something is missing."""
    if cells(text) <= width:
        return text
    left = width - 1
    kept = []
    for char in text:
        left -= _cells_of(char)
        if left < 0:
            break
        kept.append(char)
    return "".join(kept) + ELLIPSIS


def visible(text: str, *, keep_backslash: bool = False) -> str:
    """Escape what would not be seen or would steer a terminal: anybody can write keys, values and names."""
    if text.isprintable() and (keep_backslash or "\\" not in text):
        return text
    return "".join(_visible_char(char, keep_backslash) for char in text)


def _visible_char(char: str, keep_backslash: bool) -> str:
    if char.isprintable() and (keep_backslash or char != "\\"):
        return char
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return _ESCAPES.get(char) or (
        f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )


def format_count(number: int, noun: str) -> str:
    """So many of something: `1 segment`, `2 segments`, `3 batches`."""
    plural = "es" if noun.endswith("ch") else "s"
    return f"{number} {noun}{'' if number == 1 else plural}"


def format_size(size: int) -> str:
    """Bytes for people: `512 B`, `1.4 MiB`."""
    value = float(size)
    unit = _UNITS[0]
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


def format_time(ts_ms: int) -> str:
    """Milliseconds since the epoch as ISO 8601 in UTC; the number itself where no calendar has it."""
    if ts_ms < 0:
        return "-" if ts_ms == -1 else str(ts_ms)
    try:
        moment = _EPOCH + datetime.timedelta(milliseconds=ts_ms)
    except OverflowError:
        return str(ts_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ts_ms % 1000:03d}Z"
