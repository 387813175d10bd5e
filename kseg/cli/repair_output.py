"""What `recover` and `truncate` share: options, and how a report is shown."""

from __future__ import annotations

import argparse

from kseg.cli.common import add_json, parse_count
from kseg.cli.confirm import add_yes
from kseg.cli.render import DAMAGED, Output
from kseg.errors import OptionError
from kseg.log.config import LogConfig
from kseg.recovery.report import RepairReport


def add_repair_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that both verbs take."""
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and change nothing")
    parser.add_argument("--as-kafka", action="store_true", help="keep nothing of what goes, as a broker; needs --yes")
    parser.add_argument("--undo", action="store_true", help="put back what the last repair changed")
    parser.add_argument("--run", metavar="RUN", help="with --undo: this run, by its folder's name")
    parser.add_argument("--metadata", metavar="DIR", help="a directory with __cluster_metadata-0: knows the replicas")
    parser.add_argument("--this-replica-only", action="store_true", help="go on though there are other replicas")
    parser.add_argument(
        "--index-interval-bytes", metavar="N", type=parse_count, help="the topic's setting; 4096 if not told"
    )
    parser.add_argument(
        "--producer-id-expiration-ms", metavar="MS", type=parse_count, help="the broker's setting; a day"
    )
    parser.add_argument(
        "--now", metavar="MS", type=parse_count, help="the time by which producers expire; now if not told"
    )
    add_yes(parser)
    add_json(parser)


def check_words(args: argparse.Namespace, *others: str) -> None:
    """Refuse words that have no meaning together.

    Raises:
        OptionError: An undo was asked for together with `others`, or a run without an undo.
    """
    if args.run is not None and not args.undo:
        raise OptionError("--run goes with --undo")
    given = [name for name in others if getattr(args, name) not in (None, False)]
    if args.undo and given:
        raise OptionError(f"--undo takes back what was done: --{given[0].replace('_', '-')} has no meaning with it")


def config_of(args: argparse.Namespace) -> LogConfig:
    """The settings that were given."""
    names = ("index_interval_bytes", "producer_id_expiration_ms")
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    return LogConfig(**given)


def show(report: RepairReport, args: argparse.Namespace, out: Output) -> None:
    """Show a report: a line a partition for programs, a table for people."""
    if args.json:
        for one in report.partitions:
            out.json(one.to_dict())
    else:
        for line in report.lines(out.width):
            out.line(line)
    if report.damaged:
        out.status = DAMAGED
