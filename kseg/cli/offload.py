"""`kseg offload`: copy sealed segments to a tier."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from kseg.cli.common import add_json, add_metadata_topic, add_path, parse_count, parse_time
from kseg.cli.confirm import add_yes, confirm
from kseg.cli.progress import for_people
from kseg.cli.render import DAMAGED, WRONG, Output
from kseg.cli.settings_args import add_settings, settings_arguments
from kseg.cli.spark import add_spark, spark_session
from kseg.cli.tier_args import add_keys, key_arguments, key_file, size_of
from kseg.tables import format_size
from kseg.tiering.layout import LAYOUTS
from kseg.tiering.offload_job import SETTINGS, offload
from kseg.tiering.offload_report import OffloadReport
from kseg.tiering.upload import DEFAULT_CHUNK_SIZE

EXAMPLE: Final = """A topic whose remote.storage.enable is not known to be true is left alone.
Credentials come from the environment or a profile, never from the URI.

example:
  kseg offload /var/lib/kafka/data s3://bucket/prefix/ --metadata /var/lib/kafka/data \\
    --server-properties /etc/kafka/server.properties --dry-run
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_path(parser, "a stopped broker's log directory, a tree of them, or one partition")
    parser.add_argument("remote", metavar="URI", help="the tier: s3://, gs://, abfs://, ... or a local path")
    parser.add_argument("--dry-run", action="store_true", help="change nothing, and show what would be copied")
    parser.add_argument("--layout", choices=LAYOUTS, default="chunked", help="of the objects (default: %(default)s)")
    parser.add_argument(
        "--chunk-size", metavar="SIZE", type=size_of, default=DEFAULT_CHUNK_SIZE, help="of chunked (default: 4 MiB)"
    )
    parser.add_argument("--no-compression", action="store_true", help="do not compress chunks")
    parser.add_argument("--encrypt", metavar="ID=FILE", type=key_file, help="public key that wraps the data keys")
    add_keys(parser, text="private key files, to read back what is encrypted")
    where = parser.add_argument_group("the records that brokers need")
    add_metadata_topic(where)
    where.add_argument("--bootstrap-server", metavar="HOST:PORT", help="write them to this live cluster")
    where.add_argument("--archive", action="store_true", help="write none: no broker will load this again")
    local = parser.add_argument_group("local files")
    local.add_argument(
        "--delete-local", action="store_true", help="delete by local retention what is proved to be in the tier"
    )
    local.add_argument("--verify", action="store_true", help="read every copy back")
    add_yes(parser)
    parser.add_argument("--max-bytes-per-second", metavar="SIZE", type=size_of, help="for each task")
    parser.add_argument("--now", metavar="TIME", type=parse_time, help="count ages from this time instead of now")
    parser.add_argument("--workers", metavar="N", type=parse_count, help="threads (default: one per core)")
    add_spark(parser)
    add_settings(parser, SETTINGS)
    add_json(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Copy, and show what was copied and what was left alone."""
    given = _arguments(args)
    if args.delete_local and not args.dry_run and not args.yes:
        planned = offload(args.path, args.remote, dry_run=True, **given)
        if planned.deleted_segments and not _may_delete(planned, args, out):
            return
    with spark_session(args) as session:
        report = offload(
            args.path,
            args.remote,
            spark=session,
            dry_run=args.dry_run,
            progress=for_people(quiet=args.json),
            **given,
        )
    show(report, args, out, report.unread)


def _arguments(args: argparse.Namespace) -> dict[str, Any]:
    given = settings_arguments(args)
    given["settings"] = given.pop("overrides")
    same = "layout chunk_size encrypt remote_metadata remote_metadata_partitions bootstrap_server archive delete_local"
    given |= {name: getattr(args, name) for name in [*same.split(), "verify", "max_bytes_per_second"]}
    return given | {
        "compression": not args.no_compression,
        **key_arguments(args),
        "now_ms": args.now,
        "workers": args.workers or None,
    }


def _may_delete(planned: OffloadReport, args: argparse.Namespace, out: Output) -> bool:
    if not args.json:
        for line in planned.lines(out.width):
            out.line(line)
    what = f"Copy {format_size(planned.log_bytes)}, then delete {planned.deleted_segments} local segments for good?"
    return confirm(what, args, out)


def show(report: Any, args: argparse.Namespace, out: Output, unread: Sequence[str] = ()) -> None:
    """Show a report of partitions, and set the exit status; `unread` are directories that could not be read."""
    if args.json:
        for partition in (values := report.to_dict()).pop("partitions"):
            out.json(partition)
        out.json({"summary": values})
    else:
        for line in report.lines(out.width):
            out.line(line)
    has_errors = any(partition.error is not None for partition in report.partitions)
    if has_errors or unread or any(refusal.is_damage for refusal in report.refusals):
        out.status = DAMAGED
    elif any(not refusal.is_usual for refusal in report.refusals):
        out.status = WRONG
