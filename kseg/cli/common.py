"""What several verbs share: arguments, and the partitions that a path stands for."""

from __future__ import annotations

import argparse
import datetime
import re
from typing import Final

from kseg.cli.render import Output
from kseg.cli.tier_args import add_keys, key_ring
from kseg.errors import LogError, OptionError
from kseg.log.logdir import LogDir
from kseg.log.partition import Log
from kseg.log.select import problems_that_matter
from kseg.log.walk import ReadOptions
from kseg.storage import Store
from kseg.tiering.reading import open_tiered_store
from kseg.types import TopicPartition

MAX_NUMBER: Final = 2**63 - 1
_EPOCH_MS = re.compile(r"[0-9]+")
_DIGITS = re.compile(r"[0-9]{1,19}")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Declare --json."""
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for programs")


def add_path(parser: argparse.ArgumentParser, text: str) -> None:
    """Declare the path that every verb takes."""
    parser.add_argument("path", metavar="PATH", help=text)


def add_remote(parser: argparse.ArgumentParser) -> None:
    """Declare the tier behind the local log."""
    parser.add_argument("--remote", metavar="URI", help="the tier that holds the older segments, read as one log")
    add_keys(parser)


def add_metadata_topic(parser: argparse._ActionsContainer) -> None:
    """Declare where a cluster's `__remote_log_metadata` is."""
    parser.add_argument(
        "--remote-metadata",
        metavar="DIR",
        action="append",
        default=[],
        help="log directories of all brokers that hold __remote_log_metadata (default: that of PATH)",
    )
    parser.add_argument(
        "--remote-metadata-partitions", metavar="N", type=parse_count, help="of that topic, where no metadata log tells"
    )


def parse_time(text: str) -> int:
    """Milliseconds since the epoch from a number of them or from ISO 8601; UTC where no zone is named."""
    if _EPOCH_MS.fullmatch(text):
        return parse_count(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither ISO 8601 (2026-01-31T12:00:00Z) nor milliseconds since the epoch"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - _EPOCH) // _MILLISECOND


def parse_count(text: str) -> int:
    """A number that is not negative and fits 64 bits."""
    if not _DIGITS.fullmatch(text) or (number := int(text)) > MAX_NUMBER:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to {MAX_NUMBER}")
    return number


def find_logs(
    path: str,
    tier: argparse.Namespace,
    out: Output,
    *,
    topic: str | None = None,
    partition: int | None = None,
    options: ReadOptions | None = None,
) -> list[Log]:
    """The partitions at a path, by topic and number: a partition directory, a log directory, a tree of them, a tier.

    Args:
        tier: Arguments that `add_remote` declared.
        out: Where directories that cannot be read are told.
        options: How bytes are read.

    Raises:
        OptionError: There is none, or none of the topic and partition that were asked for.
    """
    store, directory = open_tiered_store(path, tier.remote, key_ring(tier))
    log_dir = LogDir(store, directory, options=options)
    found = log_dir.partitions or _unnamed(store, directory, options)

    def is_wanted(place: TopicPartition) -> bool:
        return topic in (None, place.topic) and partition in (None, place.partition)

    for problem in problems_that_matter(log_dir.problems, is_wanted):
        out.damage(problem)
    if not found:
        raise OptionError(f"no partitions in {path}")
    wanted = [log for log in found if is_wanted(TopicPartition(log.topic, log.partition))]
    if not wanted:
        named = "-".join(str(part) for part in (topic, partition) if part is not None)
        what = f"partition {partition}" if topic is None else named
        raise OptionError(f"no {what} in {path}", hint="'kseg ls' lists what there is")
    return wanted


def _unnamed(store: Store, directory: str, options: ReadOptions | None) -> list[Log]:
    """A directory of segments whose name does not tell its topic, such as a copy of one partition."""
    if not store.list(directory):
        return []
    try:
        return [Log(store, directory, options=options)]
    except LogError:
        return []
