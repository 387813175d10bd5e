"""`kseg retain`: delete old segments as a broker's retention does."""

from __future__ import annotations

import argparse
from typing import Any, Final

from kseg.cli.common import add_json, add_path, parse_time
from kseg.cli.confirm import add_yes, confirm
from kseg.cli.progress import for_people
from kseg.cli.render import DAMAGED, WRONG, Output
from kseg.cli.settings_args import add_settings, settings_arguments
from kseg.retention.job import SETTINGS, retain
from kseg.retention.report import RetentionReport
from kseg.tables import format_size

EXAMPLE: Final = """example:
  kseg retain /var/lib/kafka/data --metadata /var/lib/kafka/data \\
    --server-properties /etc/kafka/server.properties --dry-run
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_path(parser, "a stopped broker's log directory, a tree of them, or one partition")
    parser.add_argument("--dry-run", action="store_true", help="change nothing, and show what would go")
    parser.add_argument("--now", metavar="TIME", type=parse_time, help="count ages from this time instead of now")
    add_yes(parser)
    add_settings(parser, SETTINGS)
    add_json(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Show what would go, ask, delete, and show what went."""
    given = settings_arguments(args)
    given["settings"] = given.pop("overrides")
    given["now_ms"] = args.now
    if not args.dry_run and not args.yes:
        planned = retain(args.path, dry_run=True, **given)
        if not _may_delete(planned, args, out):
            return
    _show(retain(args.path, dry_run=args.dry_run, progress=for_people(quiet=args.json), **given), args, out)


def _may_delete(planned: RetentionReport, args: argparse.Namespace, out: Output) -> bool:
    if not planned.segments:  # nothing to ask about
        return True
    if not args.json:
        for line in planned.lines(out.width):
            out.line(line)
    what = f"Delete {planned.segments} segments, {format_size(planned.freed_bytes)}, for good?"
    return confirm(what, args, out)


def _show(report: RetentionReport, args: argparse.Namespace, out: Output) -> None:
    if args.json:
        for partition in (values := report.to_dict()).pop("partitions"):
            out.json(partition)
        out.json(_summary(values))
    else:
        for line in report.lines(out.width):
            out.line(line)
    if any(refusal.is_damage for refusal in report.refusals):
        out.status = DAMAGED
    elif any(not refusal.is_usual for refusal in report.refusals):
        out.status = WRONG


def _summary(values: dict[str, Any]) -> dict[str, Any]:
    return {"summary": values}
