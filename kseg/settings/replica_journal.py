"""What is about to be appended to all replicas of a partition, so that the next run completes what one that died began.

Records go to one replica after the other, so a crash between two leaves the later ones short: prefixes of the others. A
broker would truncate the longer ones, or not, depending on who becomes leader. So `<partition>/.kseg/append.json`,
which brokers pass over, stands in the first replica's directory from before the first append until after the last.
What others lack is appended only if it is, to the byte, what stands there.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from kseg.format.batch import BatchHeader
from kseg.index.epoch import EpochStart, LeaderEpochs
from kseg.log.names import SIDE_DIR
from kseg.log.partition import Log
from kseg.log.staging import drop_side_file, write_side_file
from kseg.os_errors import storage_errors
from kseg.schema import select_columns
from kseg.types import Codec

FILE: Final = "append.json"
VERSION: Final = 1
_COLUMNS: Final = ["offset", "key", "value", "timestamp"]

Tail = list[tuple[BatchHeader, pa.Table]]


def epochs_below(log: Log, offset: int) -> tuple[EpochStart, ...]:
    """The leader epochs that begin below an offset; one that begins at the log's end is of a write that died."""
    return LeaderEpochs(tuple(log.leader_epochs())).truncate_from_end(offset).entries


def begin(directory: str, rows: pa.Table) -> None:
    """Write down, durably, what is about to be appended."""
    write_side_file(Path(directory), FILE, json.dumps({"version": VERSION, "rows": _described(rows)}).encode())


def end(directory: str) -> None:
    """All replicas have it."""
    drop_side_file(Path(directory), FILE)


def has_journal(directory: str) -> bool:
    """Whether a run has begun to append here, and did not end."""
    with storage_errors(directory):
        return (Path(directory) / SIDE_DIR / FILE).exists()


def plan_completion(replicas: Sequence[Log]) -> list[tuple[Log, Tail]] | None:
    """What short replicas lack of the longest; None where they differ by anything but what a journal names."""
    longest = max(replicas, key=lambda log: log.end_offset)
    rows = next((_read_journal(log.directory) for log in replicas if has_journal(log.directory)), None)
    if rows is None:
        return None
    plans = [(log, _tail(log, longest, rows)) for log in replicas if log.end_offset < longest.end_offset]
    found = [(log, tail) for log, tail in plans if tail is not None]
    return found if len(found) == len(plans) else None


def _tail(log: Log, longest: Log, expected: list[list[object]]) -> Tail | None:
    """The batches that a replica lacks; None where it is no prefix of the other, or they are not what is expected."""
    if epochs_below(log, log.end_offset) != epochs_below(longest, log.end_offset):
        return None
    start = max(log.start_offset, longest.start_offset)
    if _read(log, start, log.end_offset) != _read(longest, start, log.end_offset):
        return None
    if _described(_read(longest, log.end_offset, longest.end_offset)) != expected:
        return None
    tail: Tail = []
    for header in longest.batches(log.end_offset, longest.end_offset):
        if header.base_offset is None or header.base_offset < log.end_offset or not _is_plain(header):
            return None
        tail.append((header, _read(longest, header.base_offset, header.last_offset + 1)))
    return tail


def _is_plain(header: BatchHeader) -> bool:
    return header.codec is Codec.NONE and header.producer_id < 0 and not header.is_control


def _read(log: Log, start: int, end: int) -> pa.Table:
    batches = log.read(start, end, columns=_COLUMNS, read_past_high_watermark=True)
    return pa.Table.from_batches(batches, schema=select_columns(_COLUMNS))


def _described(rows: pa.Table) -> list[list[object]]:
    """Keys, values and times of records, as JSON can hold them."""
    names = [name for name in ("key", "value") if name in rows.column_names]
    times = rows["timestamp"].cast(pa.int64()).to_pylist()
    return [
        [*(_text(row.get(name)) for name in ("key", "value")), at]
        for row, at in zip(rows.select(names).to_pylist(), times, strict=True)
    ]


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _read_journal(directory: str) -> list[list[object]] | None:
    path = Path(directory) / SIDE_DIR / FILE
    with storage_errors(str(path)):
        data = path.read_bytes()
    try:
        content = json.loads(data)
        return list(content["rows"]) if content["version"] == VERSION else None
    except (ValueError, KeyError, TypeError):  # then replicas that differ are refused
        return None
