"""`kseg compact`: one round of Kafka's log cleaner."""

from __future__ import annotations

import argparse
from typing import Any, Final

from kseg.cli.common import add_json, add_path, parse_count, parse_time
from kseg.cli.progress import for_people
from kseg.cli.remote_args import add_remote_job, remote_arguments
from kseg.cli.render import DAMAGED, WRONG, Output
from kseg.cli.settings_args import add_settings, settings_arguments
from kseg.cli.spark import add_spark, spark_session
from kseg.compaction.config import DEFAULT_MEMORY_BUDGET, MIN_MEMORY_BUDGET
from kseg.compaction.effective import SETTINGS
from kseg.compaction.estimate import estimate
from kseg.compaction.job import compact
from kseg.errors import OptionError
from kseg.option_values import parse_size
from kseg.tables import format_size

EXAMPLE: Final = """A topic whose cleanup.policy is not known to be compact is left alone.

example:
  kseg compact /var/lib/kafka/data --metadata /var/lib/kafka/data \\
    --server-properties /etc/kafka/server.properties --dry-run
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_path(parser, "a stopped broker's log directory, a tree of them, or one partition; or a tier, with --archive")
    parser.add_argument("--dry-run", action="store_true", help="do all but the writing, and show what it comes to")
    parser.add_argument("--estimate", action="store_true", help="guess from a sample what would be saved")
    parser.add_argument("--output", metavar="DIR", help="write compacted copies there, and change nothing")
    parser.add_argument("--now", metavar="TIME", type=parse_time, help="the round's clock, instead of now")
    parser.add_argument(
        "--first-dirty",
        metavar="N",
        type=parse_count,
        help="where dirty records begin, of each partition (no ratio then)",
    )
    budget = format_size(DEFAULT_MEMORY_BUDGET)
    parser.add_argument(
        "--memory-budget", metavar="SIZE", type=_budget, help=f"for the map of keys (default: {budget})"
    )
    parser.add_argument("--strategy", choices=("memory", "spill"), help="how keys are compared (default: by a sample)")
    parser.add_argument("--workers", metavar="N", type=parse_count, help="threads (default: one per core)")
    add_remote_job(parser)
    add_spark(parser)
    add_settings(parser, SETTINGS)
    add_json(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Compact, and show what was done and what was left alone."""
    given = settings_arguments(args)
    given["settings"] = given.pop("overrides")
    if args.estimate and (args.remote is not None or args.archive):
        raise OptionError("an estimate is of local logs", hint="--dry-run does all but the writing")
    if args.estimate and args.output is not None:
        raise OptionError("an estimate makes no copies", hint="leave out --estimate, or --output")
    if args.estimate:
        _show(estimate(args.path, now_ms=args.now, first_dirty=args.first_dirty, **given), args, out)
        return
    with spark_session(args) as session:
        report = compact(
            args.path,
            spark=session,
            now_ms=args.now,
            first_dirty=args.first_dirty,
            output=args.output,
            dry_run=args.dry_run,
            workers=args.workers or None,
            memory_budget=args.memory_budget,
            strategy=args.strategy,
            progress=for_people(quiet=args.json),
            **remote_arguments(args),
            **given,
        )
    _show(report, args, out)


def _show(report: Any, args: argparse.Namespace, out: Output) -> None:
    if args.json:
        values = report.to_dict()
        for partition in values.pop("partitions"):
            out.json(partition)
        out.json({"summary": values})
    else:
        for line in report.lines(out.width):
            out.line(line)
    if report.unread or any(partition.error is not None for partition in report.partitions):
        out.status = DAMAGED
    elif any(partition.skipped is not None and not partition.is_usual for partition in report.partitions):
        out.status = WRONG


def _budget(text: str) -> int:
    try:
        size = parse_size("memory-budget", text)
    except OptionError:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 268435456, 256m or 1GiB") from None
    if size < MIN_MEMORY_BUDGET:
        raise argparse.ArgumentTypeError(f"{text!r} is below {format_size(MIN_MEMORY_BUDGET)}")
    return size
