"""`kseg restore`: bring segments back from a tier."""

from __future__ import annotations

import argparse
from typing import Final

from kseg.cli.common import add_json, parse_count
from kseg.cli.offload import show
from kseg.cli.progress import for_people
from kseg.cli.render import Output
from kseg.cli.tier_args import add_keys, key_arguments
from kseg.errors import OptionError
from kseg.tiering.restore_job import restore

EXAMPLE: Final = """example:
  kseg restore s3://bucket/prefix/ /var/lib/kafka/data --topic orders --partition 0 --from 1000 --to 5000
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("remote", metavar="URI", help="the tier: s3://, gs://, abfs://, ... or a local path")
    parser.add_argument("path", metavar="PATH", help="a stopped broker's log directory, or a new one")
    parser.add_argument("--topic", help="this topic only")
    parser.add_argument("--partition", metavar="N", type=parse_count, help="this partition only")
    parser.add_argument("--from", dest="start", metavar="OFFSET", type=parse_count, help="the first offset wanted")
    parser.add_argument("--to", dest="end", metavar="OFFSET", type=parse_count, help="the offset behind the last")
    parser.add_argument("--all", action="store_true", help="everything that the tier holds")
    parser.add_argument("--topic-id", metavar="ID", help="which topic, where the tier has several of one name")
    parser.add_argument("--metadata", metavar="DIR", help="a log directory with __remote_log_metadata")
    add_keys(parser)
    parser.add_argument(
        "--offsets", metavar="FILE", help="commit what groups had committed: a file of 'kseg offsets --export'"
    )
    parser.add_argument(
        "--offsets-partitions", metavar="N", type=parse_count, help="of __consumer_offsets, where no metadata log tells"
    )
    parser.add_argument("--dry-run", action="store_true", help="change nothing, and show what would be restored")
    parser.add_argument("--workers", metavar="N", type=parse_count, help="threads (default: one per core)")
    add_json(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Restore, and show what is back."""
    if args.all == (args.topic is not None):
        raise OptionError("say which topic, or --all", hint="'kseg restore URI PATH --all --dry-run' lists them")
    report = restore(
        args.remote,
        args.path,
        topics=None if args.all else [args.topic],
        partition=args.partition,
        start=args.start,
        end=args.end,
        topic_id=args.topic_id,
        metadata=args.metadata,
        **key_arguments(args),
        offsets=args.offsets,
        offsets_partitions=args.offsets_partitions,
        dry_run=args.dry_run,
        workers=args.workers or None,
        progress=for_people(quiet=args.json),
    )
    show(report, args, out)
