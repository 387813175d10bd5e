"""`kseg cat`: records as a consumer would read them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa

from kseg.cli import template
from kseg.cli.common import add_json, add_path, add_remote, find_logs, parse_count, parse_time
from kseg.cli.render import DAMAGED, Output
from kseg.cli.template import Template
from kseg.cli.tier_args import size_of
from kseg.cli.values import FORMAT_NAMES, as_text, shown
from kseg.errors import OptionError
from kseg.log.damage import Records
from kseg.log.partition import Log, read_options
from kseg.schema import RECORD_SCHEMA
from kseg.tables import format_time, visible

EXAMPLE: Final = f"""{template.HELP}

example:
  kseg cat /var/lib/kafka/data --topic orders --at 2026-01-31T12:00:00Z -n 10
"""
_NAMES: Final = ("json", "hex", "raw")
_OFFSET = re.compile(r"-?[0-9]{1,19}")
Render = Callable[[pa.RecordBatch], Iterator[bytes | dict[str, Any]]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_path(parser, "a partition, a log directory or a tier, by path or URI")
    parser.add_argument("--topic", metavar="T", help="this topic only")
    parser.add_argument(
        "--partition", metavar="P", type=parse_count, help="this partition only (default: all, in order)"
    )
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--from", dest="start", metavar="OFFSET", type=_offset, help="first offset; -N: N before the end"
    )
    start.add_argument(
        "--at", metavar="TIME", type=parse_time, help="from this time on: ISO 8601 or epoch milliseconds"
    )
    parser.add_argument("--to", dest="end", metavar="OFFSET", type=parse_count, help="stop before this offset")
    parser.add_argument("-n", dest="limit", metavar="N", type=parse_count, help="stop after N records in all")
    parser.add_argument(
        "--isolation",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="whether to show records of aborted and open transactions (default: read_uncommitted)",
    )
    parser.add_argument(
        "--read-past-high-watermark", action="store_true", help="show what is not known to be replicated"
    )
    parser.add_argument(
        "--corrupt",
        choices=("fail", "skip"),
        default="fail",
        help="at damage: stop, or go on at the next sound batch; status 1 in either case (default: fail)",
    )
    parser.add_argument(
        "--format", metavar="F", help="json, hex, raw (values, a newline behind each) or a template, see below"
    )
    for name in ("key", "value", "header"):
        text = (
            f"how to show {name}s: {', '.join(FORMAT_NAMES)} (default: utf8)"
            if name == "key"
            else f"the same for {name}s"
        )
        parser.add_argument(f"--{name}-format", metavar="F", choices=FORMAT_NAMES, help=text)
    parser.add_argument("--headers", action="store_true", help="show headers in lines for people too")
    parser.add_argument("--max-bytes-per-second", metavar="SIZE", type=size_of, help="read no faster than this")
    parser.add_argument("--drop-page-cache", action="store_true", help="spare a live broker's page cache")
    add_remote(parser)
    add_json(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Print the records of each partition, one after the other."""
    columns, render = _renderer(args)
    left = args.limit
    options = read_options(None, args.max_bytes_per_second, drop_page_cache=args.drop_page_cache)
    for log in find_logs(args.path, args, out, topic=args.topic, partition=args.partition, options=options):
        records = _read(log.past_damage if args.corrupt == "skip" else log, args, columns, out)
        for batch in records:
            shown_rows = batch if left is None else batch.slice(0, left)
            _write(render(shown_rows), out)
            if left is not None and (left := left - shown_rows.num_rows) <= 0:
                break
        if records.damages:  # said in the log, with the first place
            out.status = DAMAGED
        if left is not None and left <= 0:
            return


def _offset(text: str) -> int:
    if not _OFFSET.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an offset")
    return int(text)


def _read(log: Log, args: argparse.Namespace, columns: list[str] | None, out: Output) -> Records:
    past = args.read_past_high_watermark
    end = log.end_offset if past else log.high_watermark
    if args.isolation == "read_committed":
        end = log.stable_below(end)
    start = args.start if args.start is None or args.start >= 0 else end + args.start
    if args.at is not None:
        match = log.offset_for_time(args.at)
        start = end if match is None else match.offset
    if args.end is None and not past and log.high_watermark < log.end_offset:
        out.note(
            f"{log.directory}: offsets {log.high_watermark} to {log.end_offset - 1} are behind the high watermark; "
            "--read-past-high-watermark shows them"
        )
    return log.read(start, args.end, isolation=args.isolation, columns=columns, read_past_high_watermark=past)


def _write(rows: Iterator[bytes | dict[str, Any]], out: Output) -> None:
    for row in rows:
        if isinstance(row, bytes):
            out.write(row)
        else:
            out.json(row)


def _renderer(args: argparse.Namespace) -> tuple[list[str] | None, Render]:
    """The columns to read and how to show them."""
    chosen = args.format
    if args.json and chosen not in (None, "json"):
        raise OptionError("--json and --format contradict each other")
    usual = "hex" if chosen == "hex" else "utf8"
    formats = {
        "key": args.key_format or usual,
        "value": args.value_format or usual,
        "headers": args.header_format or usual,
    }
    if args.json or chosen == "json":
        return RECORD_SCHEMA.names, lambda batch: _objects(batch, formats)
    if chosen is None or chosen == "hex":
        columns = ["topic", "partition", "offset", "timestamp", "key", "value", *(["headers"] if args.headers else [])]
        return columns, lambda batch: _lines(batch, formats)
    compiled = Template("%v{raw}\\n" if chosen == "raw" else chosen, formats)
    if "%" not in chosen and "\\" not in chosen and chosen not in _NAMES:
        raise OptionError(f"--format: {chosen!r} is neither {', '.join(_NAMES)} nor a template")
    return compiled.columns, compiled.render


def _rows(batch: pa.RecordBatch, formats: dict[str, str]) -> Iterator[dict[str, Any]]:
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names if name != "timestamp"}
    columns["timestamp"] = batch.column("timestamp").view(pa.int64()).to_pylist()
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        offset = row["offset"]
        for name in ("key", "value"):
            row[name] = shown(row[name], formats[name], name, offset)
        if "headers" in row:
            items = row["headers"] or ()
            row["headers"] = [
                {"key": item["key"], "value": shown(item["value"], formats["headers"], "header", offset)}
                for item in items
            ]
        yield row


def _objects(batch: pa.RecordBatch, formats: dict[str, str]) -> Iterator[bytes | dict[str, Any]]:
    order = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
    for row in _rows(batch, formats):
        yield {name: row[name] for name in order}


def _lines(batch: pa.RecordBatch, formats: dict[str, str]) -> Iterator[bytes | dict[str, Any]]:
    """One line a record, whatever is in it: what is not printable is escaped."""
    for row in _rows(batch, formats):
        place = f"{row['topic']}-{row['partition']}  {row['offset']}  {format_time(row['timestamp'])}"
        headers = "".join(f"  {visible(item['key'])}={_visible(item['value'])}" for item in row.get("headers", ()))
        line = f"{place}  {_visible(row['key'])}  {_visible(row['value'])}{headers}\n"
        yield line.encode("utf-8", "backslashreplace")


def _visible(value: Any) -> str:
    return visible(as_text(value), keep_backslash=True)
