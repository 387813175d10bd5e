"""`kseg fsck`: check what a tier holds."""

from __future__ import annotations

import argparse
from typing import Final

from kseg.cli.common import add_json, parse_count
from kseg.cli.confirm import add_yes, confirm
from kseg.cli.offload import show
from kseg.cli.progress import for_people
from kseg.cli.render import DAMAGED, Output
from kseg.cli.tier_args import add_keys, key_arguments
from kseg.errors import OptionError
from kseg.tables import format_size
from kseg.tiering.fsck_job import fsck
from kseg.tiering.fsck_report import FsckReport, Kind
from kseg.tiering.rebuild_job import rebuild_metadata
from kseg.tiering.rebuild_report import RebuildReport

EXAMPLE: Final = """example:
  kseg fsck s3://bucket/prefix/ --metadata /var/lib/kafka/data
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("remote", metavar="URI", help="the tier: s3://, gs://, abfs://, ... or a local path")
    parser.add_argument(
        "--metadata", metavar="DIR", action="append", help="a log directory with __remote_log_metadata (repeatable)"
    )
    parser.add_argument(
        "--remote-metadata-partitions", metavar="N", type=parse_count, help="of that topic, where no metadata log tells"
    )
    parser.add_argument("--deep", action="store_true", help="read every segment, and check every batch and index")
    add_keys(parser)
    parser.add_argument(
        "--delete-orphans", action="store_true", help="delete those older than 24 hours by the store's clock"
    )
    parser.add_argument(
        "--rebuild-metadata",
        action="store_true",
        help="tell the stopped cluster in --metadata of complete segments that it does not know",
    )
    parser.add_argument("--dry-run", action="store_true", help="delete and write nothing")
    add_yes(parser)
    parser.add_argument("--workers", metavar="N", type=parse_count, help="threads (default: one per core)")
    add_json(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Check, and show what is wrong."""
    if args.rebuild_metadata:
        _rebuild(args, out)
        return
    delete = args.delete_orphans and not args.dry_run
    report = _checked(args, delete_orphans=delete and args.yes)
    if delete and not args.yes:
        orphans = [finding for finding in report.findings if finding.kind is Kind.ORPHAN]
        size = format_size(sum(finding.bytes for finding in orphans))
        if orphans and confirm(f"Delete up to {len(orphans)} orphans, {size}, for good?", args, out):
            report = _checked(args, delete_orphans=True)
    if args.json:
        for finding in (values := report.to_dict()).pop("findings"):
            out.json(finding)
        out.json({"summary": values})
    else:
        for line in report.lines(out.width):
            out.line(line)
    if not report.is_sound:
        out.status = DAMAGED


def _rebuild(args: argparse.Namespace, out: Output) -> None:
    """Write the records, once somebody has seen what would be written."""
    if args.delete_orphans:
        raise OptionError("what the metadata does not know is an orphan, or is told to it: not both at once")
    if not args.metadata:
        raise OptionError("say with --metadata where the stopped cluster's directories are")
    if not args.dry_run and not args.yes:
        planned = _rebuilt(args, dry_run=True)
        if not args.json:
            show(planned, args, out)
        if not planned.segments or not confirm(f"Tell the cluster of {planned.segments} segments?", args, out):
            return
    show(_rebuilt(args, dry_run=args.dry_run), args, out)


def _rebuilt(args: argparse.Namespace, *, dry_run: bool) -> RebuildReport:
    return rebuild_metadata(
        args.remote,
        args.metadata,
        remote_metadata_partitions=args.remote_metadata_partitions,
        **key_arguments(args),
        dry_run=dry_run,
        workers=args.workers or None,
        progress=for_people(quiet=args.json),
    )


def _checked(args: argparse.Namespace, *, delete_orphans: bool) -> FsckReport:
    return fsck(
        args.remote,
        metadata=args.metadata,
        remote_metadata_partitions=args.remote_metadata_partitions,
        deep=args.deep,
        **key_arguments(args),
        delete_orphans=delete_orphans,
        workers=args.workers or None,
        progress=for_people(quiet=args.json),
    )
