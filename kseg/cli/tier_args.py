"""Arguments that the verbs of tiering share."""

from __future__ import annotations

import argparse

from kseg.errors import OptionError
from kseg.option_values import parse_size


def key_file(text: str) -> tuple[str, str]:
    """A key's id and its file, from `ID=FILE`."""
    key_id, separator, file = text.partition("=")
    if not (key_id and separator and file):
        raise argparse.ArgumentTypeError("a key is given as ID=FILE: a file, never the key itself")
    return key_id, file


def key_files(text: str) -> dict[str, str]:
    """Keys' ids and their files, from `ID=FILE,ID=FILE`."""
    return dict(key_file(item.strip()) for item in text.split(","))


def size_of(text: str) -> int:
    """A number of bytes, such as `4MiB`."""
    try:
        return parse_size("size", text)
    except OptionError:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 4194304, 4m or 4MiB") from None
