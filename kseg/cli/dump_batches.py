"""Batches and records for `kseg dump`: lines of JSON, or text for people."""

from __future__ import annotations

import base64
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from kseg.cli.render import Output
from kseg.errors import CorruptRecordError, FormatError
from kseg.internal.control_records import decode_control_record
from kseg.internal.decode import INTERNAL_TOPICS, decode_record
from kseg.log.dump import BatchRun, iter_runs
from kseg.log.walk import ReadOptions
from kseg.native import table as t
from kseg.storage import RandomFile
from kseg.tables import clip, format_time, visible
from kseg.types import Codec, TimestampType

Record = list[Any]  # offset, timestamp, key, value, [[header, value], ...]
Batch = dict[str, Any]
_CODECS: Final = {codec.value: codec.label for codec in Codec}
_MARKERS: Final = {0: "ABORT", 1: "COMMIT"}


class BatchPrinter:
    """Prints the batches of log files.

    Args:
        segment: The base offset in the file's name, None where it has none.
        topic: Whose records they are, to decode those of internal topics.
    """

    def __init__(
        self, out: Output, segment: int | None, topic: str | None, *, as_json: bool, records: bool, decode: bool
    ) -> None:
        self._out = out
        self._segment = segment
        self._topic = topic
        self._as_json = as_json
        self._records = records
        self._decode = records and (decode or not as_json)

    def print_file(self, file: RandomFile, options: ReadOptions, *, titled: bool) -> None:
        """Print all batches; of what is damaged the first is told in full, the others are counted."""
        if titled:
            self._out.line(f"{Path(file.path).name}: {file.size} bytes")
        damaged = 0
        try:
            for run in iter_runs(file, options, records=self._records):
                for batch, records, error in self._batches(run):
                    if error is not None:
                        damaged += 1
                        if damaged == 1:
                            self._out.damage(error)
                    self._print(batch, records, error)
        except FormatError as error:
            self._out.damage(error.with_context(path=file.path))
        if damaged > 1:
            self._out.note(f"{file.path}: {damaged - 1} more batches are damaged")

    def _batches(self, run: BatchRun) -> Iterator[tuple[Batch, list[Record], FormatError | None]]:
        columns = run.table[:, run.rows.start : run.rows.stop].tolist()
        records = _records_of(run.records)
        starts = run.starts.tolist()
        for i, row in enumerate(run.rows):
            values = [column[i] for column in columns]
            yield _batch_of(self._segment, values), records[starts[i] : starts[i + 1]], run.errors.get(row)

    def _print(self, batch: Batch, records: list[Record], error: FormatError | None) -> None:
        if not self._as_json:
            self._print_text(batch, records, error)
            return
        details = batch.pop("details")
        if not self._records:
            self._out.json(batch | details | {"valid": error is None})
        elif error is None:
            batch["records"] = [_encoded(record) for record in records]
            if self._decode:
                batch["decoded"] = [self._decoded(batch, record) for record in records]
            self._out.json(batch)

    def _decoded(self, batch: Batch, record: Record) -> Any:
        """What a record means, None where nothing is known of its topic."""
        try:
            if batch["control"]:
                return decode_control_record(record[2], record[3])
            return decode_record(self._topic, record[2], record[3]) if self._topic in INTERNAL_TOPICS else None
        except CorruptRecordError as error:
            self._out.damage(error.with_context(offset=record[0]))
            return {"type": "damaged", "reason": error.message}

    def _print_text(self, batch: Batch, records: list[Record], error: FormatError | None) -> None:
        for line in _wrapped(_facts(batch, error), self._out.width):
            self._out.line(line)
        for record in records:
            meaning = self._decoded(batch, record)
            place = f"    {record[0]}  {format_time(record[1])}"
            if meaning is None:
                self._out.line(clip(f"{place}  {_content(record)}", self._out.width))
                continue
            self._out.line(place)  # and no raw bytes: what they mean has secrets taken out
            text = json.dumps(meaning, ensure_ascii=False)
            for line in textwrap.wrap(visible(text, keep_backslash=True), max(self._out.width - 6, 20)):
                self._out.line("      " + line)


def _batch_of(segment: int | None, row: list[int]) -> Batch:
    """One batch with the keys, and their order, of Kafka's own classes as an oracle; `details` is what we add."""
    magic, attributes = row[t.MAGIC], row[t.ATTRIBUTES]
    flags = attributes if magic == 2 else attributes & (t.CODEC_MASK | t.LOG_APPEND_TIME_BIT)
    kind = TimestampType(int(bool(flags & t.LOG_APPEND_TIME_BIT))) if magic else TimestampType.NO_TIMESTAMP
    has_horizon = bool(flags & t.DELETE_HORIZON_BIT)
    is_open = magic < 2 and row[t.COUNT] < 0  # a legacy wrapper that was not decompressed
    return {
        "segment": segment,
        "base": None if is_open else row[t.BASE_OFFSET],
        "last": row[t.LAST_OFFSET],
        "magic": magic,
        "codec": _CODECS.get(flags & t.CODEC_MASK, str(flags & t.CODEC_MASK)),
        "pid": row[t.PRODUCER_ID],
        "epoch": row[t.PRODUCER_EPOCH],
        "seq": row[t.BASE_SEQUENCE],
        "leaderEpoch": row[t.LEADER_EPOCH],
        "txn": bool(flags & t.TRANSACTIONAL_BIT),
        "control": bool(flags & t.CONTROL_BIT),
        "tsType": kind.label,
        "maxTs": row[t.MAX_TIMESTAMP],
        "horizon": row[t.BASE_TIMESTAMP] if has_horizon else None,
        "details": {
            "position": row[t.POSITION],
            "size": row[t.SIZE],
            "count": None if is_open else row[t.COUNT],
            "baseTs": None if has_horizon else row[t.BASE_TIMESTAMP],
            "marker": row[t.MARKER_TYPE] if row[t.MARKER_TYPE] >= 0 else None,
            "coordinatorEpoch": row[t.COORDINATOR_EPOCH] if row[t.COORDINATOR_EPOCH] >= 0 else None,
            "crc": row[t.CRC],
        },
    }


def _records_of(batch: pa.RecordBatch | None) -> list[Record]:
    """Rows as lists, from columns that are converted once each."""
    if batch is None:
        return []
    timestamps = batch.column("timestamp").view(pa.int64()).to_pylist()
    offsets, keys, values = (batch.column(name).to_pylist() for name in ("offset", "key", "value"))
    headers = [[[item["key"], item["value"]] for item in items or ()] for items in batch.column("headers").to_pylist()]
    return [list(row) for row in zip(offsets, timestamps, keys, values, headers, strict=True)]


def _encoded(record: Record) -> Record:
    offset, timestamp, key, value, headers = record
    return [offset, timestamp, _base64(key), _base64(value), [[name, _base64(data)] for name, data in headers]]


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")


def _facts(batch: Batch, error: FormatError | None) -> Iterator[str]:
    """The header fields of a batch, each with its name, but for those that say nothing here."""
    details = batch["details"]
    base = "?" if batch["base"] is None else batch["base"]
    yield f"offsets {base}..{batch['last']}"
    yield f"at byte {details['position']}"
    yield f"{details['size']} bytes"
    yield "1 record" if details["count"] == 1 else f"{'?' if details['count'] is None else details['count']} records"
    yield f"magic {batch['magic']}"
    yield f"codec {batch['codec']}"
    yield f"crc {details['crc']:08x} {'ok' if error is None else 'DAMAGED'}"
    yield f"{batch['tsType']} max {format_time(batch['maxTs'])}"
    if batch["magic"] == 2 and details["baseTs"] is not None:
        yield f"base {format_time(details['baseTs'])}"
    if batch["horizon"] is not None:
        yield f"delete horizon {format_time(batch['horizon'])}"
    if batch["leaderEpoch"] >= 0:
        yield f"leader epoch {batch['leaderEpoch']}"
    if batch["pid"] >= 0:
        yield f"producer {batch['pid']} epoch {batch['epoch']} sequence {batch['seq']}"
    if batch["txn"]:
        yield "transactional"
    if batch["control"]:
        marker = details["marker"]
        yield (
            "control"
            if marker not in _MARKERS
            else f"control {_MARKERS[marker]} coordinator epoch {details['coordinatorEpoch']}"
        )


def _wrapped(facts: Iterator[str], width: int) -> Iterator[str]:
    line = ""
    for fact in facts:
        if line and len(line) + 2 + len(fact) > width:
            yield line
            line = "   "
        line = f"{line}  {fact}" if line.strip() else line + fact
    yield line


def _content(record: Record) -> str:
    _, _, key, value, headers = record
    return f"{_preview(key)}  {_preview(value)}" + "".join(
        f"  {visible(name)}={_preview(data)}" for name, data in headers
    )


def _preview(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        return f'"{visible(data.decode("utf-8"))}"'
    except UnicodeDecodeError:
        return "0x" + data.hex()
