"""The options of a read: one parser of the string maps that Spark, SQL and `kseg.scan` hand over.

Names, defaults, precedence and what is refused are those of Spark's own Kafka source; names count in any case. What
differs:

- The three ways to choose topics (subscribe, subscribePattern, assign) exclude each other as in Spark, but none is
  needed, since a path is given: then every topic found is read, bar Kafka's internal ones.
- `startingOffsets` also takes `group:NAME`; `auto.offset.reset` (earliest | latest | none, which is the default) says
  what holds for partitions that the group never committed.
- Options that only a broker understands do nothing here and are listed in `ignored`, and so are unknown ones, unless
  one looks like a slip of the pen.

Names of columns are not checked here: which there are depends on `view` and `corrupt`.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from kseg.errors import OptionError
from kseg.option_limits import (
    ALL_EARLIEST,
    ALL_LATEST,
    AllAt,
    AtGroup,
    AtOffsets,
    AtTime,
    AtTimes,
    End,
    Start,
    check_order,
    parse_ending,
    parse_starting,
)
from kseg.option_names import CHOOSERS, ENDING, STREAM_ONLY, check_known, sort_options
from kseg.option_values import (
    EARLIEST,
    LATEST,
    MAX_INT32,
    MAX_INT64,
    parse_assignment,
    parse_bool,
    parse_choice,
    parse_duration_ms,
    parse_int,
    parse_key_files,
    parse_names,
    parse_size,
    parse_strings,
    text_of,
    wrong,
)
from kseg.types import TopicPartition

__all__ = [
    "ALL_EARLIEST",
    "ALL_LATEST",
    "EARLIEST",
    "LATEST",
    "VIEWS",
    "AllAt",
    "AtGroup",
    "AtOffsets",
    "AtTime",
    "AtTimes",
    "End",
    "Paths",
    "SourceOptions",
    "Start",
    "compile_topic_pattern",
    "option_map",
    "parse_source_options",
]

Isolation = Literal["read_uncommitted", "read_committed"]
Corrupt = Literal["fail", "skip", "column"]
Reset = Literal["earliest", "latest", "none"]
NoMatch = Literal["error", "latest"]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
View = Literal["records", "batches", "segments", "offsets", "groups", "transactions", "topics"]

VIEWS: Final = ("records", "batches", "segments", "offsets", "groups", "transactions", "topics")
DEFAULT_MAX_TRIGGER_DELAY_MS: Final = 15 * 60 * 1000


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a read, parsed and checked.

    Attributes:
        subscribe: Topics by name; of this, `subscribe_pattern` (Java's regular expressions, found anywhere in a name)
            and `assign` at most one is set.
        starting_no_match: What holds where no record is at or after a starting time.
        remote: The URI of a tier, read behind the local logs; where no path is given, the tier alone is read.
        remote_keys: Ids and files of the private keys that the tier is encrypted for.
        allow_shared_keys: Take key files that others than their owner can read.
        ignored: Options that do nothing here, by the names that were given.
        notes: What a user should be told once, a sentence each.
    """

    paths: tuple[str, ...] = ()
    subscribe: tuple[str, ...] | None = None
    subscribe_pattern: str | None = None
    assign: frozenset[TopicPartition] | None = None
    starting: Start = ALL_EARLIEST
    ending: End = ALL_LATEST
    starting_no_match: NoMatch = "error"
    auto_offset_reset: Reset = "none"
    isolation: Isolation = "read_uncommitted"
    read_past_high_watermark: bool = False
    fail_on_data_loss: bool = True
    corrupt: Corrupt = "fail"
    view: View = "records"
    columns: tuple[str, ...] | None = None
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_bytes_per_task: int | None = None
    max_read_bytes_per_second: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = DEFAULT_MAX_TRIGGER_DELAY_MS
    remote: str | None = None
    remote_keys: tuple[tuple[str, str], ...] = ()
    allow_shared_keys: bool = False
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def parse_source_options(options: Mapping[str, str], *, streaming: bool = False) -> SourceOptions:
    """Parse and check the options of a batch read, or of a streaming one.

    Raises:
        OptionError: A value is wrong, options contradict each other, or a name looks like a misspelled one.
    """
    given, ignored = sort_options(options)
    _check_combinations(given, streaming=streaming)
    pattern = given.get("subscribePattern")
    if pattern is not None:
        compile_topic_pattern(pattern)
    starting = parse_starting(given, streaming=streaming)
    ending: End = ALL_LATEST if streaming else parse_ending(given)
    check_order(starting, ending)
    if "auto.offset.reset" in given and not isinstance(starting, AtGroup):
        ignored.append("auto.offset.reset")
    per_trigger = _per_trigger(given)
    columns = parse_names("columns", given["columns"]) if "columns" in given else None
    if columns is not None and len(set(columns)) != len(columns):
        raise wrong("columns", given["columns"], "it names a column twice")
    return SourceOptions(
        paths=_paths(given),
        subscribe=parse_names("subscribe", given["subscribe"]) if "subscribe" in given else None,
        subscribe_pattern=None if pattern is None else pattern.strip(),
        assign=parse_assignment("assign", given["assign"]) if "assign" in given else None,
        starting=starting,
        ending=ending,
        starting_no_match=cast(
            "NoMatch", _choice(given, "startingOffsetsByTimestampStrategy", ("error", "latest"), lower=True)
        ),
        auto_offset_reset=cast("Reset", _choice(given, "auto.offset.reset", ("none", "earliest", "latest"))),
        isolation=cast("Isolation", _choice(given, "kafka.isolation.level", ("read_uncommitted", "read_committed"))),
        read_past_high_watermark=_bool(given, "readPastHighWatermark", default=False),
        fail_on_data_loss=_bool(given, "failOnDataLoss", default=True),
        corrupt=cast("Corrupt", _choice(given, "corrupt", ("fail", "skip", "column"), lower=True)),
        view=cast("View", _choice(given, "view", VIEWS, lower=True)),
        columns=columns,
        include_headers=_bool(given, "includeHeaders", default=False),
        min_partitions=_int(given, "minPartitions", most=MAX_INT32),
        max_records_per_partition=_int(given, "maxRecordsPerPartition"),
        max_bytes_per_task=_size(given, "maxBytesPerTask"),
        max_read_bytes_per_second=_size(given, "maxReadBytesPerSecond"),
        max_offsets_per_trigger=per_trigger[0] if streaming else None,
        min_offsets_per_trigger=per_trigger[1] if streaming else None,
        max_trigger_delay_ms=per_trigger[2] if streaming else DEFAULT_MAX_TRIGGER_DELAY_MS,
        remote=given.get("remote"),
        remote_keys=parse_key_files("remoteKeys", given["remoteKeys"]) if "remoteKeys" in given else (),
        allow_shared_keys=_bool(given, "allowSharedKeys", default=False),
        ignored=tuple(ignored),
        notes=_notes(given, ignored, streaming=streaming),
    )


def option_map(
    path: Paths, topics: str | Sequence[str] | None, columns: str | Sequence[str] | None, options: dict[str, Any]
) -> dict[str, str]:
    """The option map of a call in Python: paths, topics and columns, and options by name, underscores for dots.

    Values may be Python's own: numbers, truth values, lists of names, and dicts where the option's text is JSON. None
    is an option that is not given.

    Raises:
        OptionError: An option is neither of this source nor of Spark's Kafka source, or is given twice.
    """
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    found = {"paths": json.dumps([os.fspath(one) for one in paths])}
    if topics is not None:
        found["subscribe"] = topics if isinstance(topics, str) else ",".join(topics)
    if columns is not None:
        found["columns"] = columns if isinstance(columns, str) else ",".join(columns)
    for key, value in options.items():
        name = key.replace("_", ".")
        check_known(name)
        if name.lower() in ("path", "paths") or (name.lower() == "subscribe" and topics is not None):
            raise OptionError(f"option {name} is an argument of the call already")
        if value is not None:
            found[name] = text_of(name, value)
    return found


def compile_topic_pattern(text: str) -> re.Pattern[str]:
    """Compile a `subscribePattern`; it is to be found anywhere in a topic's name, as Spark's source has it.

    Raises:
        OptionError: The pattern is empty or wrong, or Java has something here that Python does not have.
    """
    pattern = text.strip()
    if not pattern:
        raise wrong("subscribePattern", text, "it must be a regular expression")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # set operations, which Java has, are a warning in Python
            return re.compile(pattern, re.ASCII)
    except (re.error, Warning, RecursionError, OverflowError) as error:
        allowed = "it must be a regular expression that Java and Python read alike"
        raise wrong("subscribePattern", text, f"{allowed} ({error})") from None


def _check_combinations(given: Mapping[str, str], *, streaming: bool) -> None:
    chosen = [name for name in CHOOSERS if name in given]
    if len(chosen) > 1:
        raise OptionError(f"options {' and '.join(chosen)} are both set; only one of {', '.join(CHOOSERS)} may be")
    if streaming:
        for name in ENDING:
            if name in given:
                raise wrong(name, given[name], "a streaming query has no end; leave it out")


def _per_trigger(given: Mapping[str, str]) -> tuple[int | None, int | None, int]:
    # 0 is a limit too, as in Spark's Kafka source: such a query waits
    most, least = _int(given, "maxOffsetsPerTrigger", least=0), _int(given, "minOffsetsPerTrigger", least=0)
    if most is not None and least is not None and least > most:
        raise OptionError(f"option minOffsetsPerTrigger is {least}; it must not be above maxOffsetsPerTrigger, {most}")
    delay = given.get("maxTriggerDelay")
    return most, least, DEFAULT_MAX_TRIGGER_DELAY_MS if delay is None else parse_duration_ms("maxTriggerDelay", delay)


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    if "remote" in given and not given["remote"].strip():
        raise OptionError("option remote is empty; it must be the URI of a tier")
    if not {"path", "paths"} & given.keys() and "remote" in given:
        return (given["remote"],)
    paths: tuple[str, ...] = (given["path"],) if "path" in given else ()
    if "paths" in given:
        paths += parse_strings("paths", given["paths"])
    if not all(path.strip() for path in paths):
        raise OptionError("option path is empty; it must be a directory or a URI")
    return paths


def _bool(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    return parse_bool(name, given[name]) if name in given else default


def _int(given: Mapping[str, str], name: str, *, least: int = 1, most: int = MAX_INT64) -> int | None:
    return parse_int(name, given[name], least=least, most=most) if name in given else None


def _size(given: Mapping[str, str], name: str) -> int | None:
    return parse_size(name, given[name]) if name in given else None


def _choice(given: Mapping[str, str], name: str, choices: tuple[str, ...], *, lower: bool = False) -> str:
    text = given.get(name, choices[0])
    return parse_choice(name, text.lower() if lower else text, choices)


def _notes(given: Mapping[str, str], ignored: list[str], *, streaming: bool) -> tuple[str, ...]:
    notes = []
    if ignored:
        notes.append(f"these options do nothing here and are ignored: {', '.join(sorted(ignored))}")
    unused = [] if streaming else [name for name in STREAM_ONLY if name in given]
    if unused:
        notes.append(f"these options are for streaming queries and are ignored: {', '.join(unused)}")
    if streaming and _int(given, "maxOffsetsPerTrigger", least=0) == 0:
        notes.append("option maxOffsetsPerTrigger is 0: the query reads nothing")
    return tuple(notes)
