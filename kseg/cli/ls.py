"""`kseg ls`: topics, partitions and segments, with sizes and offsets."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from kseg.cli.common import add_json, add_path, add_remote, find_logs
from kseg.cli.render import Output
from kseg.errors import KsegError, OptionError, StorageError
from kseg.log.partition import Log
from kseg.tables import Column, format_size, format_time

EXAMPLE: Final = """example:
  kseg ls /var/lib/kafka/data --topic orders --segments
"""
_PARTITIONS: Final = (
    Column("TOPIC", at_least=16),
    Column("PART", right=True),
    Column("SEGS", right=True, droppable=2),
    Column("SIZE", right=True),
    Column("START", right=True),
    Column("END", right=True),
    Column("HIGH", right=True),
    Column("STABLE", right=True),
    Column("ID", at_least=6, droppable=3),
)
_SEGMENTS: Final = (
    Column("TOPIC", at_least=12),
    Column("PART", right=True),
    Column("BASE", right=True),
    Column("NEXT", right=True),
    Column("SIZE", right=True),
    Column("MAX TIMESTAMP"),
    Column("TIER", droppable=1),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_path(parser, "a log directory, a tree of them, one partition or a tier, by path or URI")
    parser.add_argument("--topic", metavar="T", help="this topic only")
    parser.add_argument("--segments", action="store_true", help="a line for each segment")
    add_remote(parser)
    add_json(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """List what is there; a partition that is damaged gets a line that says so, and the others go on."""
    rows = []
    for log in find_logs(args.path, args, out, topic=args.topic):
        word = ""
        try:
            found = log.relisting(partial(_listing, log, by_segment=args.segments))
        except OptionError:  # a key that was not given is no damage
            raise
        except KsegError as error:
            found = [{"topic": log.topic, "partition": log.partition, "path": log.directory, "error": str(error)}]
            word = "unreadable" if isinstance(error, StorageError) else "damaged"
            out.damage(error)
        if args.json:
            for row in found:
                out.json(row)
        else:
            rows += [_cells(row, args.segments, word) for row in found]
    if not args.json:
        out.table(_SEGMENTS if args.segments else _PARTITIONS, rows)


def _listing(log: Log, *, by_segment: bool) -> list[dict[str, Any]]:
    return list(_segments(log)) if by_segment else [_partition(log)]


def _partition(log: Log) -> dict[str, Any]:
    return {
        "topic": log.topic,
        "partition": log.partition,
        "topicId": log.topic_id,
        "segments": len(log.segments),
        "size": sum(segment.size for segment in log.segments),
        "startOffset": log.start_offset,
        "endOffset": log.end_offset,
        "highWatermark": log.high_watermark,
        "lastStableOffset": log.last_stable_offset,
        "path": log.directory,
    }


def _segments(log: Log) -> Iterator[dict[str, Any]]:
    for segment in log.segments:
        yield {
            "topic": log.topic,
            "partition": log.partition,
            "baseOffset": segment.base_offset,
            "nextOffset": segment.next_offset,
            "size": segment.size,
            "maxTimestamp": segment.max_timestamp,
            "tier": segment.tier,
            "path": segment.path,
        }


def _cells(row: dict[str, Any], segments: bool, word: str) -> list[object]:
    columns = _SEGMENTS if segments else _PARTITIONS
    if word:
        return [row["topic"], row["partition"], *["?"] * (len(columns) - 3), word]
    names = [name for name in row if name not in ("path", "topicId")]
    cells: list[object] = [row[name] for name in names]
    cells[names.index("size")] = format_size(row["size"])
    if segments:
        cells[names.index("maxTimestamp")] = format_time(row["maxTimestamp"])
    else:
        cells.append(row["topicId"])
    return cells
