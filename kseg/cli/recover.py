"""`kseg recover`: what a broker does when it starts after a crash, with a way back."""

from __future__ import annotations

import argparse
from typing import Final

from kseg.cli.common import add_path
from kseg.cli.confirm import confirm
from kseg.cli.progress import for_people
from kseg.cli.render import Output
from kseg.cli.repair_output import add_repair_arguments, check_words, config_of, show
from kseg.errors import OptionError
from kseg.recovery.job import recover, undo_repair

EXAMPLE: Final = """example:
  kseg recover /var/lib/kafka/data --dry-run
  kseg recover /var/lib/kafka/data/orders-0 --salvage
  kseg recover /var/lib/kafka/data/orders-0 --undo
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_path(parser, "one partition or a whole log directory, of a broker that is down")
    parser.add_argument("--all", action="store_true", help="check every segment, also after a clean shutdown")
    parser.add_argument("--salvage", action="store_true", help="take out only what is damaged, keep what is behind")
    add_repair_arguments(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Recover, or undo; what would be destroyed is asked for."""
    check_words(args, "all", "salvage", "as_kafka")
    if args.undo:
        show(undo_repair(args.path, run=args.run, dry_run=args.dry_run), args, out)
        return
    if args.as_kafka and args.salvage:
        raise OptionError("--as-kafka and --salvage exclude each other: a broker salvages nothing")
    if args.as_kafka and not args.dry_run and not confirm("Delete what a broker would cut off, for good?", args, out):
        return
    report = recover(
        args.path,
        all=args.all,
        as_kafka=args.as_kafka,
        salvage=args.salvage,
        dry_run=args.dry_run,
        config=config_of(args),
        now_ms=args.now,
        metadata=args.metadata,
        this_replica_only=args.this_replica_only,
        progress=for_people(quiet=args.json),
    )
    show(report, args, out)
    clean = sum(one.clean for one in report.partitions)
    if clean and not args.json:
        what = "1 partition was" if clean == 1 else f"{clean} partitions were"
        out.note(f"{what} shut down cleanly, so nothing was checked there, as a broker checks nothing; --all does")
