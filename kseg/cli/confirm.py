"""What cannot be undone is asked for first."""

from __future__ import annotations

import argparse
import sys

from kseg.cli.render import Output
from kseg.errors import OptionError


def add_yes(parser: argparse.ArgumentParser) -> None:
    """Declare --yes."""
    parser.add_argument("--yes", action="store_true", help="do not ask")


def confirm(question: str, args: argparse.Namespace, out: Output, *, is_final: bool = True) -> bool:
    """Whether to go on: with --yes at once, else as the terminal's user says.

    Args:
        is_final: Whether it cannot be undone.

    Raises:
        OptionError: There is nobody to ask.
    """
    if args.yes:
        return True
    if args.json or not sys.stdin.isatty():
        what = "this cannot be undone" if is_final else "records would go"
        raise OptionError(what, hint="look with --dry-run first, then give --yes")
    out.flush()
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
