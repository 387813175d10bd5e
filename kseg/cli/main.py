"""The parser, and how a call ends: its exit status and, where it fails, one line on stderr."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn, Protocol, cast

from kseg import __version__
from kseg.cli.render import DAMAGED, LOCKED, WRONG, Output
from kseg.errors import KsegError, LockedError, OffsetOutOfRangeError, OptionError, StorageError

VERBS: Final = {
    "ls": "list topics and partitions with their segments, sizes and offsets",
    "cat": "print records as a consumer would read them",
    "dump": "show any file of a log as it is: batches, indexes, snapshots, checkpoints",
    "retain": "delete old segments by time, size and log start, as a broker's retention does",
    "compact": "run one round of the log cleaner over compacted topics",
    "repack": "compress segments with another codec and merge small ones, nothing removed",
    "erase": "take records with some keys out of the files for good, with a proof",
    "offload": "copy sealed segments to a tier in an object store",
    "restore": "bring segments back from a tier into a log directory",
    "rewrap": "wrap the data keys of an encrypted tier with another key pair",
    "offsets": "show where consumer groups stand, export it, or reset it on a stopped cluster",
    "fsck": "check what a tier holds: orphans, missing objects, gaps",
    "export": "write topics as Parquet; a second run adds what is new",
    "verify": "look for every kind of damage in a log, and compare copies of it",
    "recover": "do to logs what a broker does that starts after a crash, and keep what goes",
    "truncate": "cut a partition back to an offset, or to where its leader's log parts from it",
}
EXIT_STATUSES: Final = """exit status:
  0  done, and what was looked at is sound
  1  damage was found
  2  the call or its input is wrong
  3  refused: a live broker holds the directory's .lock
  130  interrupted by Ctrl-C
"""
EXAMPLE: Final = """example:
  kseg ls /var/lib/kafka/data

"""
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141  # what a shell shows for a tool that the closed pipe ended


class Verb(Protocol):
    """A verb's module."""

    EXAMPLE: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's arguments."""

    def run(self, args: argparse.Namespace, out: Output) -> None:
        """Do it; damage that does not end the call goes to `out.damage`."""


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are errors like any other."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the whole usage."""
        raise OptionError(message, hint=f"see '{self.prog} --help'")


def build_parser(verb: str | None) -> argparse.ArgumentParser:
    """Make the parser; the arguments of `verb` alone are filled in, so that help comes without loading it all."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = Parser(
        prog="kseg",
        description="Read, check, repair, compact and tier the files that a Kafka broker keeps on disk.",
        epilog=EXAMPLE + EXIT_STATUSES,
        formatter_class=layout,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"kseg {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)
    for name, summary in VERBS.items():
        sentence = summary[0].upper() + summary[1:] + "."
        sub = verbs.add_parser(name, help=summary, description=sentence, formatter_class=layout, allow_abbrev=False)
        if name == verb:
            module = _load(name)
            sub.epilog = module.EXAMPLE + "\n" + EXIT_STATUSES
            module.add_arguments(sub)
    return parser


def _load(verb: str) -> Verb:
    return cast(Verb, importlib.import_module(f"kseg.cli.{verb}"))


def exit_status(error: KsegError) -> int:
    """The exit status for an error that ended a call."""
    if isinstance(error, LockedError):
        return LOCKED
    return WRONG if isinstance(error, OptionError | StorageError | OffsetOutOfRangeError) else DAMAGED


def main(argv: Sequence[str] | None = None) -> int:
    """Run one call; return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    out = Output()
    try:
        verb = next((word for word in words if not word.startswith("-")), None)
        args = build_parser(verb).parse_args(words)
        _load(args.verb).run(args, out)
        out.flush()
    except KsegError as error:
        return _fail(out, error)
    except BrokenPipeError:
        _silence_stdout()
        return BROKEN_PIPE
    except OSError as error:  # stores and disks raise StorageError: this is stdout, on a full disk say
        _silence_stdout()
        return _fail(out, StorageError(f"cannot write the output: {error.strerror or error}"))
    except KeyboardInterrupt:
        _tell(out, "interrupted")
        return INTERRUPTED
    except SystemExit as done:  # argparse leaves so after --help and --version
        return done.code if isinstance(done.code, int) else WRONG
    return out.status


def _fail(out: Output, error: KsegError) -> int:
    _tell(out, str(error))
    return exit_status(error)


def _tell(out: Output, message: str) -> None:
    try:
        out.note(message)
    except BrokenPipeError:
        _silence_stdout()


def _silence_stdout() -> None:
    """Nobody reads on: let what is still buffered go nowhere, or Python would complain when it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
