"""`kseg verify`: look for every kind of damage, and compare copies."""

from __future__ import annotations

import argparse
from typing import Final

from kseg.cli.common import add_json, add_path, parse_count
from kseg.cli.progress import for_people
from kseg.cli.render import DAMAGED, Output
from kseg.cli.spark import add_spark, spark_session
from kseg.cli.tier_args import add_keys, key_arguments
from kseg.verification.job import verify

EXAMPLE: Final = """example:
  kseg verify /var/lib/kafka/data --deep
  kseg verify /var/lib/kafka/data/orders-0 --against /backup/orders-0
  kseg verify /restored/data --topics orders --against s3://bucket/tier
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_path(parser, "a log directory, a tree of them, a tier or one partition, by path or URI")
    parser.add_argument("--against", metavar="COPY", help="compare with another copy: a replica, a backup or the tier")
    add_keys(parser)
    parser.add_argument("--deep", action="store_true", help="decompress every batch and look at every record")
    parser.add_argument("--topics", metavar="T[,T]", help="these topics only")
    parser.add_argument("--quiet", action="store_true", help="leave out findings of severity info")
    parser.add_argument("--workers", metavar="N", type=parse_count, help="threads; one per core unless told")
    parser.add_argument("--max-batch-bytes", metavar="N", type=parse_count, help="the largest batch that is looked at")
    parser.add_argument("--drop-page-cache", action="store_true", help="spare a live broker's page cache")
    add_spark(parser)
    add_json(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Verify, show the findings, and end with status 1 where there is damage or a difference."""
    with spark_session(args) as session:
        report = verify(
            args.path,
            against=args.against,
            **key_arguments(args),
            spark=session,
            deep=args.deep,
            topics=None if args.topics is None else args.topics.split(","),
            workers=args.workers or None,
            max_batch_bytes=args.max_batch_bytes,
            drop_page_cache=args.drop_page_cache,
            progress=for_people(quiet=args.json),
        )
    if args.json:
        for finding in report.findings:
            if not args.quiet or finding.severity != "info":
                out.json({"type": "finding"} | finding.to_dict())
        out.json({"type": "summary"} | report.summary())
    else:
        for line in report.lines(out.width, infos=not args.quiet):
            out.line(line)
    if not report.is_sound:
        out.status = DAMAGED
