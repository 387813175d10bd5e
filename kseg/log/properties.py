"""Java properties files, as `java.util.Properties` reads and writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kseg.errors import FormatError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|u|.)", re.DOTALL)
_BLANK = " \t\f"
_KEY = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)


def parse_properties(data: bytes, path: str | None = None) -> dict[str, str]:
    """Read a properties file; of a key that is repeated the last one counts.

    Raises:
        FormatError: A unicode escape is malformed.
    """

    def unescape(match: re.Match[str]) -> str:
        code = match[1]
        if code == "u":
            raise FormatError("malformed \\u escape in a properties file", path=path)
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    found = {}
    for line in _logical_lines(data.decode("latin-1")):
        key = _KEY.match(line)
        if key is not None:
            found[_ESCAPE.sub(unescape, key[1])] = _ESCAPE.sub(unescape, line[key.end() :])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones, continued lines joined."""
    pending = None
    for raw in re.split(r"\r\n|\n|\r", text):
        line = raw.lstrip(_BLANK)
        if pending is None and (not line or line[0] in "#!"):
            continue
        line = (pending or "") + line
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            pending = line[:-1]
        else:
            pending = None
            yield line
    if pending:
        yield pending


def format_properties(values: Mapping[str, str], comment: str = "") -> bytes:
    """Write a properties file."""
    lines = [f"#{comment}"] if comment else []
    lines += [f"{_escape(key, in_key=True)}={_escape(value, in_key=False)}" for key, value in values.items()]
    return "".join(f"{line}\n" for line in lines).encode("latin-1")


def _escape(text: str, *, in_key: bool) -> str:
    reverse = {value: f"\\{name}" for name, value in _ESCAPES.items()}
    out = []
    for index, char in enumerate(text):
        if char in reverse:
            out.append(reverse[char])
        elif char in "=:#!\\" or (char == " " and (in_key or index == 0)):
            out.append("\\" + char)
        elif not " " <= char <= "~":
            units = char.encode("utf-16-be")
            out += [f"\\u{units[at : at + 2].hex().upper()}" for at in range(0, len(units), 2)]
        else:
            out.append(char)
    return "".join(out)
