"""`kseg dump`: any file of a log as it is."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kseg.cli.common import add_json, add_path, add_remote
from kseg.cli.dump_batches import BatchPrinter
from kseg.cli.dump_files import FORMATS, KNOWN_FILES, SegmentName, parse_segment_name, render
from kseg.cli.render import Output
from kseg.cli.tier_args import key_ring
from kseg.errors import OptionError, StorageError
from kseg.log.files import check_sidecar_size
from kseg.log.names import (
    METADATA_TOPIC,
    FileKind,
    FileState,
    parse_partition_dir,
    parse_segment_file,
    parse_snapshot_file,
)
from kseg.log.walk import ReadOptions
from kseg.storage import Store
from kseg.tiering.reading import open_any_file
from kseg.tiering.tier import place_of

EXAMPLE: Final = """example:
  kseg dump /var/lib/kafka/data/orders-0/00000000000000042000.log --records
"""
_CHECKPOINT: Final = ".checkpoint"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_path(
        parser,
        f"a partition (all its .log files, by name), or a file: {KNOWN_FILES}, *.checkpoint (metadata snapshots); "
        "these also with .part, .deleted, segment files also with .swap, .cleaned, .deleted",
    )
    parser.add_argument("--records", action="store_true", help="show the records of each batch too")
    parser.add_argument(
        "--decode",
        action="store_true",
        help="with --records --json: add what control records and records of internal topics mean, as 'decoded' "
        "(text for people always has it)",
    )
    add_remote(parser)
    add_json(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Show a file, or all log files of a partition."""
    if args.decode and not args.records:
        raise OptionError("--decode needs --records")
    store, path = open_any_file(args.path, args.remote, key_ring(args))
    entry = store.stat(path)
    if entry is None:
        raise StorageError("no such file or directory", path=args.path)
    options = ReadOptions()
    if not entry.is_dir and _is_sidecar(path):
        check_sidecar_size(entry.size, path)
    for file_path, segment in _log_files(store, path) if entry.is_dir else _one_file(path):
        if segment is not None and segment.kind is not FileKind.LOG:
            render(segment.kind, store.read(file_path), file_path, segment.base_offset, args.json, out)
        elif segment is None and not _is_snapshot(file_path):
            render(Path(file_path).name, store.read(file_path), file_path, 0, args.json, out)
        else:
            base = None if segment is None else segment.base_offset
            printer = BatchPrinter(
                out, base, _topic_of(file_path), as_json=args.json, records=args.records, decode=args.decode
            )
            with store.open(file_path) as file:
                printer.print_file(file, options, titled=entry.is_dir and not args.json)


def _log_files(store: Store, directory: str) -> Iterator[tuple[str, SegmentName | None]]:
    """Every live .log file, by name; what a broker is replacing or deleting can be shown by its own name."""
    live = [
        entry
        for entry in store.list(directory)
        if not entry.is_dir
        and (file := parse_segment_file(entry.name)) is not None
        and (file.kind, file.state) == (FileKind.LOG, FileState.LIVE)
    ]
    if not live:
        raise OptionError(f"no .log file in {directory}", hint="give a partition directory, or a file")
    for entry in sorted(live, key=lambda entry: entry.name):
        path = store.join(directory, entry.name) if entry.remote is None else entry.remote.path
        yield path, parse_segment_name(entry.name)


def _one_file(path: str) -> Iterator[tuple[str, SegmentName | None]]:
    name = Path(path).name
    segment = parse_segment_name(name)
    if segment is None and name not in FORMATS and not _is_snapshot(name):
        raise OptionError(f"{path}: no file of a log has such a name; known are {KNOWN_FILES}, *.checkpoint")
    yield path, segment


def _is_snapshot(path: str) -> bool:
    """Whether a file is one of the metadata log's snapshots, be it incomplete or given up."""
    return path.endswith(_CHECKPOINT) or parse_snapshot_file(Path(path).name) is not None


def _is_sidecar(path: str) -> bool:
    """Whether a file is shown from memory, and not batch by batch."""
    segment = parse_segment_name(Path(path).name)
    return not _is_snapshot(path) if segment is None else segment.kind is not FileKind.LOG


def _topic_of(path: str) -> str | None:
    if _is_snapshot(path):
        return METADATA_TOPIC
    directory = str(Path(path).absolute().parent)
    place = place_of(directory)
    if place is not None:
        return place.topic
    found = parse_partition_dir(Path(directory).name)
    return None if found is None else found.topic_partition.topic
