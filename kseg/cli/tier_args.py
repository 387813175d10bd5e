"""Arguments that the verbs of tiering share."""

from __future__ import annotations

import argparse
from typing import Any, Final

from kseg.errors import OptionError
from kseg.option_values import parse_key_files, parse_size
from kseg.tiering.crypto import KeyRing

_KEYS: Final = "--remote-keys"


def add_keys(
    parser: argparse._ActionsContainer,
    *,
    required: bool = False,
    text: str = "private key files, for segments that are encrypted",
) -> None:
    """Declare the keys of a tier."""
    parser.add_argument(_KEYS, metavar="ID=FILE,...", type=key_files, required=required, help=text)
    parser.add_argument(
        "--allow-shared-keys", action="store_true", help="take key files that others than their owner can read"
    )


def key_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """What jobs take of them."""
    return {"keys": args.remote_keys, "allow_shared_keys": args.allow_shared_keys}


def key_ring(args: argparse.Namespace) -> KeyRing:
    """The keys, read when they are needed."""
    return KeyRing(args.remote_keys, allow_shared=args.allow_shared_keys)


def key_file(text: str) -> tuple[str, str]:
    """A key's id and its file, from `ID=FILE`."""
    key_id, separator, file = text.partition("=")
    if not (key_id and separator and file):
        raise argparse.ArgumentTypeError("a key is given as ID=FILE: a file, never the key itself")
    return key_id, file


def key_files(text: str) -> dict[str, str]:
    """Keys' ids and their files, from `ID=FILE,ID=FILE`."""
    try:
        return dict(parse_key_files(_KEYS, text))
    except OptionError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def size_of(text: str) -> int:
    """A number of bytes, such as `4MiB`."""
    try:
        return parse_size("size", text)
    except OptionError:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 4194304, 4m or 4MiB") from None
