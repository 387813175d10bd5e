"""`kseg offsets`: where consumer groups stand; export it, or write it to a stopped cluster."""

from __future__ import annotations

import argparse
from typing import Any, Final

from kseg.cli.common import add_json, parse_count, parse_time
from kseg.cli.confirm import add_yes, confirm
from kseg.cli.render import WRONG, Output
from kseg.errors import OptionError
from kseg.offsets.job import export, read
from kseg.offsets.report import ResetReport
from kseg.offsets.reset_job import reset
from kseg.offsets.reset_plan import EARLIEST, LATEST

EXAMPLE: Final = """example:
  kseg offsets /var/lib/kafka/data --group billing
  kseg offsets /var/lib/kafka/data --export groups.jsonl
  kseg offsets /var/lib/kafka/data --reset groups.jsonl --dry-run
  kseg offsets /var/lib/kafka/data --reset --group billing --topic orders --to-time 2026-01-31T12:00:00Z --yes
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("path", metavar="PATH", nargs="+", help="log directories that hold __consumer_offsets")
    parser.add_argument("--group", metavar="G", help="this group only")
    parser.add_argument("--topic", metavar="T", action="append", help="this topic only (repeatable)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--export", metavar="FILE", help="write them to a file, a JSON object a line")
    what.add_argument(
        "--reset", metavar="FILE", nargs="?", const="", help="commit what such a file says; without FILE, a target"
    )
    target = parser.add_argument_group("a target of --reset, for --group and --topic").add_mutually_exclusive_group()
    target.add_argument("--to-earliest", dest="to", action="store_const", const=EARLIEST, help="the log's start")
    target.add_argument("--to-latest", dest="to", action="store_const", const=LATEST, help="the log's end")
    target.add_argument("--to-offset", dest="to", metavar="N", type=parse_count, help="this offset")
    target.add_argument("--to-time", metavar="TIME", type=parse_time, help="the first record at or after a time")
    parser.add_argument("--metadata", metavar="DIR", help="a log directory with __cluster_metadata-0 (default: PATH)")
    parser.add_argument(
        "--offsets-partitions", metavar="N", type=parse_count, help="of __consumer_offsets, where no metadata log tells"
    )
    parser.add_argument(
        "--active-groups", action="store_true", help="reset groups that had members when the cluster stopped"
    )
    parser.add_argument(
        "--any-topic-id", action="store_true", help="take offsets that were committed for another topic of that name"
    )
    parser.add_argument("--dry-run", action="store_true", help="write nothing, and show what would be written")
    add_yes(parser)
    add_json(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Show, export or reset."""
    if args.reset is not None:
        _reset(args, out)
        return
    if args.to is not None or args.to_time is not None:
        raise OptionError("a target goes with --reset")
    given = {"group": args.group, "topics": args.topic}
    if args.export is not None:
        report = export(args.path, args.export, **given)
        line = f"{report.lines(out.width)[-1]} written to {args.export}"
        out.json({"offsets": len(report.offsets), "file": args.export}) if args.json else out.line(line)
        return
    report = read(args.path, **given)
    if args.json:
        for found in report.offsets:
            out.json(found.to_row())
    else:
        for line in report.lines(out.width):
            out.line(line)


def _reset(args: argparse.Namespace, out: Output) -> None:
    given: dict[str, Any] = {
        "group": args.group,
        "topics": args.topic,
        "to": args.to,
        "to_time_ms": args.to_time,
        "metadata": args.metadata,
        "offsets_partitions": args.offsets_partitions,
        "active_groups": args.active_groups,
        "any_topic_id": args.any_topic_id,
    }
    file = args.reset or None
    if not args.dry_run and not args.yes:
        planned = reset(args.path, file, dry_run=True, **given)
        if not args.json:
            _show(planned, args, out)
        if not planned.offsets or not confirm("Write these offsets?", args, out):
            return
    _show(reset(args.path, file, dry_run=args.dry_run, **given), args, out)


def _show(report: ResetReport, args: argparse.Namespace, out: Output) -> None:
    if args.json:
        for offset in (values := report.to_dict()).pop("offsets"):
            out.json(offset)
        out.json({"summary": values})
    else:
        for line in report.lines(out.width):
            out.line(line)
    if report.refusals:
        out.status = WRONG
