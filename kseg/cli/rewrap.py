"""`kseg rewrap`: rotate the key pair of an encrypted tier."""

from __future__ import annotations

import argparse
from typing import Final

from kseg.cli.common import add_json, parse_count
from kseg.cli.confirm import add_yes, confirm
from kseg.cli.progress import for_people
from kseg.cli.render import DAMAGED, WRONG, Output
from kseg.cli.tier_args import add_keys, key_arguments
from kseg.tiering.rewrap_job import rewrap
from kseg.tiering.rewrap_report import RewrapReport

EXAMPLE: Final = """Private keys are needed, of the new pair too: a public key alone could not prove what it wraps.

example:
  kseg rewrap s3://bucket/prefix/ --remote-keys old=private.pem,new=private2.pem --to new --dry-run
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("remote", metavar="URI", help="the tier: s3://, gs://, abfs://, ... or a local path")
    add_keys(parser, required=True, text="private key files, old and new")
    parser.add_argument("--to", metavar="ID", required=True, help="the key that shall wrap the data keys")
    parser.add_argument("--topic", metavar="T", action="append", help="this topic only (repeatable)")
    parser.add_argument("--dry-run", action="store_true", help="write nothing, and show what would be wrapped anew")
    add_yes(parser)
    parser.add_argument("--workers", metavar="N", type=parse_count, help="threads (default: one per core)")
    add_json(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Wrap anew, and show what was done."""
    if not args.dry_run and not args.yes:
        planned = _done(args, dry_run=True)
        if not args.json:
            _show(planned, args, out)
        question = f"Replace {planned.rewrapped} manifests?"
        if not planned.rewrapped or not confirm(question, args, out):
            return
    _show(_done(args, dry_run=args.dry_run), args, out)


def _done(args: argparse.Namespace, *, dry_run: bool) -> RewrapReport:
    return rewrap(
        args.remote,
        to=args.to,
        topics=args.topic,
        **key_arguments(args),
        dry_run=dry_run,
        workers=args.workers or None,
        progress=for_people(quiet=args.json),
    )


def _show(report: RewrapReport, args: argparse.Namespace, out: Output) -> None:
    if args.json:
        for segment in (values := report.to_dict()).pop("segments"):
            out.json(segment)
        out.json({"summary": values})
    else:
        for line in report.lines(out.width):
            out.line(line)
    if report.failed:
        out.status = DAMAGED if any(found.is_damage for found in report.segments) else WRONG
