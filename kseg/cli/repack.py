"""`kseg repack`: another codec, fewer segments, the same records."""

from __future__ import annotations

import argparse
from typing import Final

from kseg.cli.common import add_json, add_path, parse_count
from kseg.cli.progress import for_people
from kseg.cli.render import DAMAGED, WRONG, Output
from kseg.cli.spark import add_spark, spark_session
from kseg.compaction.repack_job import repack

EXAMPLE: Final = """example:
  kseg repack /backup/data --codec zstd --level 9 --topics orders
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_path(parser, "a stopped broker's log directory, a tree of them, or one partition")
    parser.add_argument("--codec", required=True, choices=("none", "gzip", "snappy", "lz4", "zstd"), help="of batches")
    parser.add_argument("--level", metavar="N", type=int, help="of the codec (default: Kafka's)")
    parser.add_argument("--topics", metavar="T[,T]", help="these topics only (default: all but internal ones)")
    parser.add_argument(
        "--segment-bytes",
        metavar="N",
        type=parse_count,
        default=1 << 30,
        help="merge up to this size, cut what grows beyond it (default: 1 GiB)",
    )
    parser.add_argument("--workers", metavar="N", type=parse_count, help="threads (default: one per core)")
    parser.add_argument("--dry-run", action="store_true", help="compress, but write nothing")
    add_spark(parser)
    add_json(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Repack, and show what it came to."""
    with spark_session(args) as session:
        report = repack(
            args.path,
            codec=args.codec,
            level=args.level,
            segment_bytes=args.segment_bytes,
            topics=None if args.topics is None else [name.strip() for name in args.topics.split(",")],
            spark=session,
            workers=args.workers or None,
            dry_run=args.dry_run,
            progress=for_people(quiet=args.json),
        )
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
    elif not report.done and any(not partition.is_usual for partition in report.partitions):
        out.status = WRONG
