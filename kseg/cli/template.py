r"""The little language of `kseg cat --format`, after kcat and franz-go: `%t %p %o %k{hex} %v\n`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa

from kseg.cli.values import FORMATS, as_text, shown
from kseg.errors import OptionError
from kseg.tables import format_time

# verb: long name, the column it needs, what it is
VERBS: Final = {
    "t": ("topic", "topic", "topic"),
    "p": ("partition", "partition", "partition"),
    "o": ("offset", "offset", "offset"),
    "T": ("timestamp", "timestamp", "timestamp in ms; %%T{iso} as ISO 8601"),
    "k": ("key", "key", "key; nothing where it is null"),
    "v": ("value", "value", "value; nothing where it is null"),
    "h": ("headers", "headers", "headers: name=value,name=value"),
    "K": ("keyLength", "key", "bytes of the key, -1 for null"),
    "V": ("valueLength", "value", "bytes of the value, -1 for null"),
    "H": ("headerCount", "headers", "number of headers"),
    "e": ("leaderEpoch", "leaderEpoch", "leader epoch of the batch"),
    "x": ("producerId", "producerId", "producer id"),
    "y": ("producerEpoch", "producerEpoch", "producer epoch"),
    "q": ("sequence", "sequence", "sequence number"),
}
HELP: Final = "\n".join(
    [
        "templates of --format (nothing is added: end it with \\n):",
        *(f"  %{verb}  %{{{name}}}".ljust(23) + text.replace("%%", "%") for verb, (name, _, text) in VERBS.items()),
        "  %k{hex}".ljust(23) + "a key, value or headers in a format, or {raw}: as it is",
        "  %%".ljust(23) + "%",
        "  \\n \\t \\r \\\\ \\xNN".ljust(23) + "newline, tab, carriage return, backslash, a byte",
    ]
)
_BYTES: Final = frozenset({"key", "value", "headers"})
_VERB_OF: Final = {name: verb for verb, (name, _, _) in VERBS.items()}
_TOKEN = re.compile(
    r"%(?:(?P<percent>%)|(?P<verb>[A-Za-z])|\{(?P<name>[A-Za-z]+)\})(?(percent)|(?:\{(?P<format>[a-z0-9]+)\})?)"
    r"|\\(?P<escape>[ntr\\]|x[0-9A-Fa-f]{2})|(?P<text>[^%\\]+)|(?P<bad>[%\\])"
)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\"}

Part = Callable[[pa.RecordBatch], Iterable[bytes]]


class Template:
    """A compiled template.

    Args:
        formats: The format of key, value and headers where the template does not name one.

    Attributes:
        columns: What has to be read for it; at least the offset, which error messages name.
    """

    def __init__(self, text: str, formats: dict[str, str]) -> None:
        self._formats = formats
        self._parts: list[Part] = []
        needed = {"offset"}
        for token in _TOKEN.finditer(text):
            if token["bad"]:
                raise OptionError(f"--format: {text[token.start() : token.start() + 8]!r} is no verb or escape")
            verb = token["verb"] or _VERB_OF.get(token["name"] or "")
            if token["verb"] or token["name"]:
                if verb is None or verb not in VERBS:
                    raise OptionError(f"--format: {token[0]!r} is no verb", hint="see 'kseg cat --help'")
                needed.add(VERBS[verb][1])
                self._parts.append(self._part(verb, token["format"]))
            else:
                self._parts.append(_literal(_plain(token)))
        self.columns = sorted(needed)

    def render(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """The records of a batch, each as it is to be written."""
        if not self._parts:
            return iter(())
        return map(b"".join, zip(*(part(batch) for part in self._parts), strict=False))

    def _part(self, verb: str, wanted: str | None) -> Part:
        name, column, _ = VERBS[verb]
        known = {"iso"} if verb == "T" else {*FORMATS, "raw"} if name in _BYTES else set()
        if wanted is not None and wanted not in known:
            raise OptionError(
                f"--format: %{verb} has no format {wanted!r}; valid are {', '.join(sorted(known)) or 'none'}"
            )
        chosen = wanted or self._formats.get(name, "")
        if name == "headers":
            return lambda batch: _headers(batch, chosen)
        if name in _BYTES:
            return lambda batch: _bytes(batch, column, chosen)
        if verb == "T":
            return lambda batch: _timestamps(batch, iso=wanted is not None)
        if verb in "KVH":
            return lambda batch: (
                b"%d" % (len(v) if v is not None else 0 if verb == "H" else -1)
                for v in batch.column(column).to_pylist()
            )
        return lambda batch: (str(value).encode() for value in batch.column(column).to_pylist())


def _plain(token: re.Match[str]) -> bytes:
    if token["percent"]:
        return b"%"
    if escape := token["escape"]:
        return _ESCAPES.get(escape) or bytes([int(escape[1:], 16)])
    return token["text"].encode("utf-8", "surrogateescape")


def _literal(data: bytes) -> Part:
    return lambda batch: itertools.repeat(data, batch.num_rows)


def _timestamps(batch: pa.RecordBatch, *, iso: bool) -> Iterator[bytes]:
    values = batch.column("timestamp").view(pa.int64()).to_pylist()
    return ((format_time(value) if iso else str(value)).encode() for value in values)


def _bytes(batch: pa.RecordBatch, column: str, name: str) -> Iterator[bytes]:
    values = batch.column(column).to_pylist()
    if name == "raw":
        return (value or b"" for value in values)
    offsets = batch.column("offset").to_pylist()
    return (_one(value, name, column, offset) for value, offset in zip(values, offsets, strict=True))


def _headers(batch: pa.RecordBatch, name: str) -> Iterator[bytes]:
    offsets = batch.column("offset").to_pylist()
    for items, offset in zip(batch.column("headers").to_pylist(), offsets, strict=True):
        yield b",".join(
            item["key"].encode() + b"=" + _one(item["value"], name, "header", offset) for item in items or ()
        )


def _one(data: bytes | None, name: str, what: str, offset: int) -> bytes:
    if data is None or name == "raw":
        return data or b""
    return as_text(shown(data, name, what, offset)).encode("utf-8", "backslashreplace")
