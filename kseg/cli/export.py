"""`kseg export`: topics to Parquet."""

from __future__ import annotations

import argparse
from typing import Any, Final

from kseg.cli.common import add_json, parse_time
from kseg.cli.progress import for_people
from kseg.cli.render import DAMAGED, Output
from kseg.cli.spark import add_spark, spark_session
from kseg.errors import LogError, OptionError
from kseg.exporting.job import export
from kseg.exporting.settings import CODECS
from kseg.log.select import select_logs
from kseg.option_values import parse_size
from kseg.options import option_map, parse_source_options

EXAMPLE: Final = """A run adds what is new since the last one to the same TARGET; a crash leaves nothing half.

example:
  kseg export /var/lib/kafka/data /lake/events --topics orders,payments --by hour
"""
_MIB: Final = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("paths", metavar="PATH", nargs="+", help="log directories or partitions, by path or URI")
    parser.add_argument("target", metavar="TARGET", help="a new or empty directory, or that of an earlier export")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--topics", metavar="T,T", help="these topics only (default: all but internal ones)")
    which.add_argument("--topics-pattern", metavar="REGEX", help="topics whose names this matches")
    parser.add_argument("--by", choices=("day", "hour", "none"), default="day", help="directories (default: day)")
    parser.add_argument("--columns", metavar="C,C", help="columns of the files (default: as Spark's Kafka source)")
    parser.add_argument("--headers", action="store_true", help="the column headers too")
    parser.add_argument(
        "--isolation",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="whether to export records of aborted and open transactions (default: read_uncommitted)",
    )
    parser.add_argument("--at", metavar="TIME", type=parse_time, help="the first run starts at this time")
    parser.add_argument("--until", metavar="TIME", type=parse_time, help="stop before this time")
    parser.add_argument("--file-bytes", metavar="N", type=_size, default=128 * _MIB, help="of a file (default: 128m)")
    parser.add_argument(
        "--row-group-bytes", metavar="N", type=_size, default=32 * _MIB, help="before compression (default: 32m)"
    )
    parser.add_argument("--compression", choices=CODECS, default="snappy", help="default: snappy")
    parser.add_argument("--compression-level", metavar="N", type=int, help="of zstd, gzip or brotli")
    parser.add_argument("--allow-data-loss", action="store_true", help="go on where offsets are gone, and count them")
    parser.add_argument(
        "--corrupt",
        choices=("fail", "skip", "column"),
        default="fail",
        help="at damage: stop, go on at the next sound batch, or that and a row for each place (default: fail)",
    )
    parser.add_argument(
        "--option", metavar="NAME=VALUE", action="append", default=[], help="any other option of the Spark source"
    )
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be exported")
    add_spark(parser)
    add_json(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Export, and tell what was added."""
    _check_there(args)
    with spark_session(args) as session:
        report = export(
            session,
            args.paths,
            args.target,
            topics=args.topics,
            by=None if args.by == "none" else args.by,
            columns=None if args.columns is None else [name.strip() for name in args.columns.split(",")],
            target_file_bytes=args.file_bytes,
            row_group_bytes=args.row_group_bytes,
            compression=args.compression,
            compression_level=args.compression_level,
            dry_run=args.dry_run,
            progress=for_people(quiet=args.json or args.dry_run),
            **_options(args),
        )
    if report.damages:
        out.status = DAMAGED
    if args.json:
        out.json(report.to_dict())
        return
    for line in str(report).splitlines():
        out.line(line)


def _check_there(args: argparse.Namespace) -> None:
    """What is named wrongly in the call is told before anything is made."""
    options = parse_source_options(option_map(args.paths, args.topics, None, _options(args)))
    try:
        select_logs(options.paths, options)
    except LogError as error:
        raise OptionError(f"{error.message}: {', '.join(args.paths)}", hint=error.hint) from None


def _options(args: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kafka_isolation_level": args.isolation,
        "failOnDataLoss": not args.allow_data_loss,
        "corrupt": args.corrupt,
    }
    if args.headers:
        found["includeHeaders"] = True
    if args.topics_pattern is not None:
        found["subscribePattern"] = args.topics_pattern
    if args.at is not None:
        found |= {"startingTimestamp": args.at, "startingOffsetsByTimestampStrategy": "latest"}
    if args.until is not None:
        found["endingTimestamp"] = args.until
    for text in args.option:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise OptionError(f"--option takes NAME=VALUE, not {text!r}")
        if name in found:
            raise OptionError(f"--option {name} is given already")
        found[name] = value
    return found


def _size(text: str) -> int:
    try:
        return parse_size("size", text)
    except OptionError:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 1048576, 64m or 2GiB") from None
