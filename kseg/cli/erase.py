"""`kseg erase`: take records out of the files for good, with a proof."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any, Final

from kseg.cli.common import add_json, add_path, parse_count
from kseg.cli.confirm import add_yes, confirm
from kseg.cli.progress import for_people
from kseg.cli.remote_args import add_remote_job, remote_arguments
from kseg.cli.render import DAMAGED, WRONG, Output
from kseg.cli.spark import add_spark, spark_session
from kseg.compaction.erase_job import erase
from kseg.compaction.erase_report import EraseReport
from kseg.compaction.matching import read_keys
from kseg.errors import OptionError
from kseg.os_errors import storage_errors

EXAMPLE: Final = """example:
  kseg erase /var/lib/kafka/data --keys persons.txt --metadata /var/lib/kafka/data --dry-run
  kseg erase s3://bucket/backups/ --archive --keys persons.txt --grace-ms 0
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_path(parser, "a stopped broker's log directory, a tree of them, or one partition; or a tier, with --archive")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--keys", metavar="FILE", help="keys to erase, one a line")
    which.add_argument("--predicate", metavar="MODULE:NAME", help="a function of record batches: which rows to erase")
    parser.add_argument(
        "--key-format", choices=("utf8", "hex", "base64"), default="utf8", help="how FILE writes keys (default: utf8)"
    )
    parser.add_argument("--topics", metavar="T[,T]", help="these topics only (default: all but internal ones)")
    parser.add_argument(
        "--metadata",
        metavar="DIR",
        help="a log directory with __cluster_metadata-0: tells replicas (default: the one at PATH, if any)",
    )
    parser.add_argument(
        "--this-replica-only", action="store_true", help="go on though other brokers hold the partitions too"
    )
    parser.add_argument("--hash-secret", metavar="FILE", help="key of the hashes in the report (default: random)")
    parser.add_argument("--workers", metavar="N", type=parse_count, help="threads (default: one per core)")
    parser.add_argument("--dry-run", action="store_true", help="only count")
    add_yes(parser)
    add_remote_job(parser)
    add_spark(parser)
    add_json(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Count, ask, erase, and show the proof."""
    given: dict[str, Any] = {
        "keys": None if args.keys is None else read_keys(args.keys, args.key_format),
        "predicate": None if args.predicate is None else _function(args.predicate),
        "topics": None if args.topics is None else [name.strip() for name in args.topics.split(",")],
        "metadata": args.metadata,
        "this_replica_only": args.this_replica_only,
        "workers": args.workers or None,
    } | remote_arguments(args)
    if args.hash_secret is not None:
        with storage_errors(args.hash_secret):
            given["hash_secret"] = Path(args.hash_secret).read_bytes()
    with spark_session(args) as session:
        if not args.dry_run and not args.yes:
            planned = erase(args.path, spark=session, dry_run=True, **given)
            leftovers = len(planned.deleted_files) + len(planned.deleted_quarantine)
            if not (planned.records or leftovers or planned.failed or planned.lingering):
                _show(planned, args, out)
                return
            more = f", and {leftovers} leftovers of the broker and of repairs" if leftovers else ""
            if not confirm(f"Erase {planned.records} records{more} for good?", args, out):
                return
        progress = for_people(quiet=args.json)
        _show(erase(args.path, spark=session, dry_run=args.dry_run, progress=progress, **given), args, out)


def _function(name: str) -> Any:
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:  # a program's path has its own folder only; last, so that nothing else is hidden
        sys.path.append(here)
    try:
        found = getattr(importlib.import_module(module), attribute or "")
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(f"--predicate {name}: {error}", hint="give it as module:function") from None
    if not callable(found):
        raise OptionError(f"--predicate {name} is no function")
    return found


def _show(report: EraseReport, args: argparse.Namespace, out: Output) -> None:
    if args.json:
        values = report.to_dict()
        for place in values.pop("places"):
            out.json(place)
        values["isProof"] = report.is_proof
        out.json({"summary": values})
    else:
        for line in report.lines(out.width):
            out.line(line)
    if report.failed or report.unread or report.left or (report.lingering and not args.grace_ms and not report.dry_run):
        out.status = DAMAGED
    elif report.refusals:
        out.status = WRONG
