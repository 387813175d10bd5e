"""`kseg truncate`: cut a partition back to an offset, or to where its leader's log parts from it."""

from __future__ import annotations

import argparse
from typing import Final

from kseg.cli.common import add_path, parse_count
from kseg.cli.confirm import confirm
from kseg.cli.progress import for_people
from kseg.cli.render import Output
from kseg.cli.repair_output import add_repair_arguments, check_words, config_of, show
from kseg.recovery.job import truncate, undo_repair

EXAMPLE: Final = """example:
  kseg truncate /var/lib/kafka/data/orders-0 --to 120000 --dry-run
  kseg truncate /var/lib/kafka/data/orders-0 --to-leader /mnt/broker2/orders-0 --yes
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_path(parser, "one partition of a broker that is down")
    parser.add_argument("--to", metavar="OFFSET", type=parse_count, help="the first offset that goes")
    parser.add_argument("--to-leader", metavar="DIR", help="cut to where the leader's directory parts from this")
    add_repair_arguments(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Truncate, or undo; records go, so it is asked for."""
    check_words(args, "to", "to_leader", "as_kafka")
    if args.undo:
        show(undo_repair(args.path, run=args.run, dry_run=args.dry_run), args, out)
        return
    given = {
        "to_leader": args.to_leader,
        "as_kafka": args.as_kafka,
        "config": config_of(args),
        "now_ms": args.now,
        "metadata": args.metadata,
        "this_replica_only": args.this_replica_only,
    }
    if not args.dry_run and not args.yes:
        planned = truncate(args.path, args.to, dry_run=True, **given)
        if not args.json:
            show(planned, args, out)
        if planned.partitions[0].status != "unchanged" and not confirm(
            "Cut the log?", args, out, is_final=args.as_kafka
        ):
            return
    progress = for_people(quiet=args.json)
    show(truncate(args.path, args.to, dry_run=args.dry_run, progress=progress, **given), args, out)
