"""`kseg retain`: delete old segments as a broker's retention does."""

from __future__ import annotations

import argparse
from typing import Any, Final

from kseg.cli.common import add_json, add_metadata_topic, add_path, parse_count, parse_time
from kseg.cli.confirm import add_yes, confirm
from kseg.cli.offload import show
from kseg.cli.progress import for_people
from kseg.cli.render import DAMAGED, WRONG, Output
from kseg.cli.settings_args import add_settings, settings_arguments
from kseg.cli.tier_args import add_keys, key_arguments
from kseg.retention.job import retain
from kseg.retention.report import RetentionReport
from kseg.tables import format_size
from kseg.tiering import retain as retain_tiered
from kseg.tiering.retain_job import SETTINGS
from kseg.tiering.retain_report import TierRetentionReport
from kseg.tiering.retirement import GRACE_MS

EXAMPLE: Final = """examples:
  kseg retain /var/lib/kafka/data --metadata /var/lib/kafka/data \\
    --server-properties /etc/kafka/server.properties --dry-run
  kseg retain /var/lib/kafka/data --remote s3://bucket/prefix/ --metadata /var/lib/kafka/data \\
    --server-properties /etc/kafka/server.properties --dry-run
  kseg retain s3://bucket/archive/ --archive --topics orders --cleanup-policy delete --retention-ms 31536000000
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_path(parser, "a stopped broker's log directory, a tree of them, or one partition; or a tier, with --archive")
    parser.add_argument("--dry-run", action="store_true", help="change nothing, and show what would go")
    parser.add_argument("--now", metavar="TIME", type=parse_time, help="count ages from this time instead of now")
    add_yes(parser)
    tier = parser.add_argument_group("tiered topics")
    tier.add_argument(
        "--remote", metavar="URI", help="the tier of these partitions: retention there, and of local files"
    )
    tier.add_argument(
        "--archive", action="store_true", help="no broker will ever read the tier, which PATH may then be itself"
    )
    add_keys(tier)
    add_metadata_topic(tier)
    tier.add_argument(
        "--grace-ms",
        metavar="MS",
        type=parse_count,
        default=GRACE_MS,
        help="how long objects of segments that were retired stay (default: 24 hours)",
    )
    tier.add_argument("--this-replica-only", action="store_true", help="although other brokers hold the partitions too")
    add_settings(parser, SETTINGS)
    add_json(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Show what would go, ask, delete, and show what went."""
    given = settings_arguments(args)
    given["settings"] = given.pop("overrides")
    given["now_ms"] = args.now
    if args.remote is not None or args.archive:
        _run_tiered(args, out, given)
        return
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


def _run_tiered(args: argparse.Namespace, out: Output, given: dict[str, Any]) -> None:
    same = "remote_metadata remote_metadata_partitions archive grace_ms this_replica_only"
    given |= {name: getattr(args, name) for name in same.split()} | key_arguments(args)
    remote, path = (args.path, None) if args.remote is None else (args.remote, args.path)
    if not args.dry_run and not args.yes:
        planned = retain_tiered(remote, path, dry_run=True, **given)
        gone = planned.remote_segments + planned.local_segments + planned.swept_segments
        if gone and not args.json:
            for line in planned.lines(out.width):
                out.line(line)
        if gone and not confirm(_question(planned), args, out):
            return
    report = retain_tiered(remote, path, dry_run=args.dry_run, progress=for_people(quiet=args.json), **given)
    show(report, args, out, report.unread)


def _question(planned: TierRetentionReport) -> str:
    size = format_size(planned.remote_bytes + planned.local_bytes + planned.swept_bytes)
    return f"Retire {planned.remote_segments} and delete {planned.local_segments} segments, {size}, for good?"


def _show(report: RetentionReport, args: argparse.Namespace, out: Output) -> None:
    if args.json:
        for partition in (values := report.to_dict()).pop("partitions"):
            out.json(partition)
        out.json(_summary(values))
    else:
        for line in report.lines(out.width):
            out.line(line)
    if report.unread or any(refusal.is_damage for refusal in report.refusals):
        out.status = DAMAGED
    elif any(not refusal.is_usual for refusal in report.refusals):
        out.status = WRONG


def _summary(values: dict[str, Any]) -> dict[str, Any]:
    return {"summary": values}
