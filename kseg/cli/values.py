"""How bytes are shown: the formats of keys, values and headers."""

from __future__ import annotations

import base64
import itertools
import json
import math
import struct
import uuid
from collections.abc import Callable
from typing import Any, Final

from kseg.errors import OptionError

Shown = str | int | float | dict[str, Any] | list[Any] | bool | None
Decoder = Callable[[bytes], Shown]
MAX_DEPTH: Final = 200


def _number(layout: str) -> Decoder:
    packed = struct.Struct(layout)

    def decode(data: bytes) -> Shown:
        if len(data) != packed.size:
            raise ValueError(f"{len(data)} bytes and not {packed.size}")
        value: int | float = packed.unpack(data)[0]
        return value if math.isfinite(value) else str(value)

    return decode


def parse_json(data: bytes) -> Shown:
    """Read JSON that can be written again; NaN and the like are no JSON, and what nests deep breaks parsers.

    Raises:
        ValueError: It is no JSON.
    """
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        depths = itertools.accumulate((byte in b"[{") - (byte in b"]}") for byte in data)
        if max(depths) > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH}")
    value: Shown = json.loads(data, parse_constant=_refuse)
    return value


def _refuse(name: str) -> Shown:
    raise ValueError(f"{name} is no JSON")


def _uuid(data: bytes) -> Shown:
    if len(data) != 16:
        raise ValueError(f"{len(data)} bytes and not 16")
    return str(uuid.UUID(bytes=data))


FORMATS: Final[dict[str, Decoder]] = {
    "utf8": lambda data: data.decode("utf-8", "backslashreplace"),
    "hex": lambda data: data.hex(),
    "base64": lambda data: base64.b64encode(data).decode("ascii"),
    "json": parse_json,
    "int16": _number(">h"),
    "int32": _number(">i"),
    "int64": _number(">q"),
    "double": _number(">d"),
    "uuid": _uuid,
}
FORMAT_NAMES: Final = tuple(FORMATS)


def shown(data: bytes | None, name: str, what: str, offset: int) -> Shown:
    """Bytes in a format, None for None; `what` and `offset` are for the message where they are not of that format."""
    if data is None:
        return None
    try:
        return FORMATS[name](data)
    except ValueError as error:
        raise OptionError(f"the {what} is not {name}: {error}", offset=offset, hint="choose another format") from None


def as_text(value: Shown) -> str:
    """A shown value as text: text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
