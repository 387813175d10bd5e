"""Arguments of the verbs that rewrite what is in a tier."""

from __future__ import annotations

import argparse
from typing import Any

from kseg.cli.common import add_metadata_topic, parse_count
from kseg.cli.tier_args import add_keys, key_arguments
from kseg.compaction.remote import RemoteOptions
from kseg.tiering.retirement import GRACE_MS


def add_remote_job(parser: argparse.ArgumentParser) -> None:
    """Declare the tier, who is told of changes there, and how long old objects stay."""
    tier = parser.add_argument_group("a tier")
    tier.add_argument("--remote", metavar="URI", help="the tier that holds segments of these partitions, rewritten too")
    tier.add_argument(
        "--archive", action="store_true", help="no broker will ever read the tier, which PATH may then be itself"
    )
    add_keys(tier)
    add_metadata_topic(tier)
    tier.add_argument("--bootstrap-server", metavar="HOST:PORT", help="tell this live cluster instead")
    tier.add_argument(
        "--grace-ms",
        metavar="MS",
        type=parse_count,
        default=GRACE_MS,
        help="how long objects of segments that were retired stay; 0: those of this run go now (default: 24 hours)",
    )
    tier.add_argument("--staging", metavar="DIR", help="for new segments until they are uploaded (default: temporary)")


def remote_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """What `erase` and `compact` take of these."""
    options = RemoteOptions(
        **key_arguments(args),
        remote_metadata=args.remote_metadata,
        remote_metadata_partitions=args.remote_metadata_partitions,
        bootstrap_server=args.bootstrap_server,
        grace_ms=args.grace_ms,
        staging=args.staging,
    )
    return {"remote": args.remote, "archive": args.archive, "remote_options": options}
