"""Two copies of the same partitions, compared by offsets: batches first, records where the batches differ.

Copies are cut at the base offsets of the first copy's segments; each piece is a task. A batch is the same in both if
its offsets, its size and its checksum are: the checksum covers all but offsets, length, magic and leader epoch, and the
copy's is computed. Where batches differ, as after `repack`, the records of the offsets between are compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kseg.errors import FormatError, KsegError, OptionError, StorageError
from kseg.log.partition import Log, OnCorrupt
from kseg.native import table as t
from kseg.progress import Progress
from kseg.runner import run_tasks
from kseg.settings.source import INTERNAL_PREFIX
from kseg.tiering.store import TieredStore
from kseg.types import TopicPartition
from kseg.verification.findings import Finding, Findings
from kseg.views.places import LogPlace

Numbers = NDArray[np.int64]
COLUMNS: Final = [
    "offset",
    "timestamp",
    "timestampType",
    "key",
    "value",
    "headers",
    "producerId",
    "producerEpoch",
    "sequence",
]
_KEPT: Final = (
    t.BASE_OFFSET, t.LAST_OFFSET, t.CRC, t.SIZE, t.MAGIC, t.LEADER_EPOCH, t.ATTRIBUTES, t.MARKER_TYPE, t.PRODUCER_ID,
    t.COUNT,
)  # fmt: skip
_BASE, _LAST, _CRC, _SIZE, _MAGIC, _EPOCH, _ATTRIBUTES, _MARKER, _PRODUCER, _COUNT = range(len(_KEPT))


@dataclass(frozen=True, slots=True)
class CompareTask:
    """Offsets `[start, end)` of two copies; it can be pickled."""

    tp: TopicPartition
    ours: LogPlace
    theirs: LogPlace
    start: int
    end: int


def compare_copies(
    logs: Sequence[Log], others: Sequence[Log], *, spark: Any, workers: int | None, progress: Progress
) -> list[Finding]:
    """Compare each partition with the same one of the other copy; of each the first difference of a kind is told."""
    by_name = {TopicPartition(log.topic, log.partition): log for log in others}
    in_tier = any(isinstance(log.store, TieredStore) for log in others)
    alone = len(logs) == 1 and len(others) == 1  # two directories that were named by hand, whatever they are called
    found: list[Finding] = []
    tasks: list[CompareTask] = []
    for log in logs:
        tp = TopicPartition(log.topic, log.partition)
        other = others[0] if alone else by_name.get(tp)
        if other is None:
            if in_tier and tp.topic.startswith(INTERNAL_PREFIX):  # a broker tiers none of these
                continue
            found.append(Finding("KS905", log.directory, "not in the copy", topic=tp.topic, partition=tp.partition))
            continue
        of_log, findings = _plan(log, other)
        tasks += of_log
        found += [replace(finding, topic=tp.topic, partition=tp.partition) for finding in findings]
    progress.begin("compare", len(tasks), "tasks")
    try:
        results = run_tasks(compare_range, tasks, spark=spark, workers=workers, progress=progress)
    finally:
        progress.end()
    return found + _first_of_each(tasks, results)


def _plan(log: Log, other: Log) -> tuple[list[CompareTask], list[Finding]]:
    findings = Findings()
    try:
        log = _past_own_damage(log)
        ours, theirs = (log.start_offset, log.end_offset), (other.start_offset, other.end_offset)
    except OptionError:  # such as a key that was not given
        raise
    except KsegError as error:
        findings.add_error(_code_of(error, log.directory), error, other.directory)
        return [], findings.list()
    if ours != theirs:
        detail = f"offsets {ours[0]} to {ours[1] - 1}, the copy {theirs[0]} to {theirs[1] - 1}"
        findings.add("KS904", other.directory, detail, offset=min(ours[1], theirs[1]))
    start, end = max(ours[0], theirs[0]), min(ours[1], theirs[1])
    if start >= end and (ours[0] < ours[1] or theirs[0] < theirs[1]):
        lost = f", and offsets {end} to {start - 1} are in neither" if start > end else ""
        findings.add("KS908", other.directory, f"nothing was compared{lost}", offset=end)
    edges = [start, *(s.base_offset for s in log.segments if start < s.base_offset < end), end]
    whose = TopicPartition(log.topic, log.partition), LogPlace.of(log), LogPlace.of(other)
    pairs = itertools.pairwise(edges)
    return [CompareTask(*whose, first, last) for first, last in pairs if first < last], findings.list()


def _first_of_each(tasks: list[CompareTask], results: Sequence[list[Finding] | KsegError]) -> list[Finding]:
    found: dict[tuple[str, str], Finding] = {}
    for task, result in zip(tasks, results, strict=True):
        if isinstance(result, OptionError):
            raise result
        if isinstance(result, KsegError):
            path, code = result.path or task.theirs.directory, _code_of(result, task.ours.directory)
            result = [Finding(code, path, result.message, result.position, result.offset)]
        for finding in result:
            named = replace(finding, topic=task.tp.topic, partition=task.tp.partition)
            found.setdefault((finding.code, task.ours.directory), named)
    return list(found.values())


def _code_of(error: KsegError, own: str) -> str:
    """What stopped a comparison: the copy, or our own log that cannot be read, as it was deleted meanwhile."""
    is_own = error.path is not None and f"{error.path}/".startswith(own.rstrip("/") + "/")
    if not isinstance(error, StorageError) or not is_own:
        return "KS907"
    return "KS708" if error.missing else "KS709"


def _past_own_damage(log: Log) -> Log:
    try:
        _ = log.end_offset
    except FormatError:  # it was told; where the log ends behind it is wanted all the same
        return log.past_damage
    return log


def compare_range(task: CompareTask) -> list[Finding]:
    """Compare one range; gives the first difference of each kind. What damage has taken from our own log is one."""
    ours, theirs = task.ours.open(), task.theirs.open()
    try:
        return _compare(ours, theirs, task)
    except FormatError as error:
        if error.path is None or not error.path.startswith(ours.directory.rstrip("/") + "/"):
            raise
    return _compare(ours.past_damage, theirs, task)


def _compare(ours: Log, theirs: Log, task: CompareTask) -> list[Finding]:
    a, b = _headers(ours, task, check=False), _headers(theirs, task, check=True)
    findings = Findings()
    told: set[str] = set()
    for start, end in _different(a, b, task):
        for code, offset, detail in _compare_records(ours, theirs, a, b, start, end):
            if code not in told:
                told.add(code)
                findings.add(code, theirs.directory, detail, offset=offset)
    common, in_a, in_b = np.intersect1d(a[_LAST], b[_LAST], return_indices=True)
    epochs = np.flatnonzero(a[_EPOCH, in_a] != b[_EPOCH, in_b])
    if len(epochs):
        row = epochs[0]
        detail = f"leader epoch {a[_EPOCH, in_a[row]]}, in the copy {b[_EPOCH, in_b[row]]}"
        findings.add("KS903", theirs.directory, detail, offset=int(common[row]))
    return findings.list()


def _headers(log: Log, task: CompareTask, *, check: bool) -> Numbers:
    """The headers of all batches that touch the range, in the order of `_KEPT`."""
    parts = [np.empty((len(_KEPT), 0), np.int64)]
    segments = log.segments
    for segment, following in itertools.zip_longest(segments, segments[1:]):
        if segment.base_offset >= task.end or (following is not None and following.base_offset <= task.start):
            continue
        with segment.open() as file:
            place = segment.find_position(file, task.start) if task.start > segment.base_offset else 0
            for chunk in segment.walk(
                file, start=place, end=segment.sound_size if segment.is_last else None, check=check
            ):
                rows = chunk.table[list(_KEPT), : chunk.rows]
                wanted = (rows[_LAST] >= task.start) & (np.maximum(rows[_BASE], 0) < task.end)
                parts.append(rows[:, wanted])
                if rows[_BASE, -1] >= task.end:
                    break
    rows = np.concatenate(parts, axis=1)
    wrapped = rows[_BASE] < 0  # of a legacy wrapper the first offset is not known
    rows[_BASE] = np.where(wrapped, np.append(task.start - 1, rows[_LAST, :-1]) + 1, rows[_BASE])
    return rows


def _different(a: Numbers, b: Numbers, task: CompareTask) -> Iterator[tuple[int, int]]:
    """Ranges of offsets in which the batches of the two differ; they end where batches of both end."""
    key = [_BASE, _LAST, _CRC, _SIZE, _MAGIC, _COUNT]
    same_a, same_b = (np.zeros(side.shape[1], np.bool_) for side in (a, b))
    _, in_a, in_b = np.intersect1d(a[_LAST], b[_LAST], return_indices=True)
    equal = (a[key][:, in_a] == b[key][:, in_b]).all(axis=0)
    same_a[in_a[equal]] = True
    same_b[in_b[equal]] = True
    if same_a.all() and same_b.all():
        return
    firsts, lasts = np.concatenate([a[:, ~same_a][[_BASE, _LAST]], b[:, ~same_b][[_BASE, _LAST]]], axis=1)
    order = np.argsort(firsts, kind="stable")
    starts, ends = firsts[order], np.maximum.accumulate(lasts[order] + 1)
    edges = np.append(True, starts[1:] > ends[:-1])  # what touches is one range
    for start, end in zip(starts[edges].tolist(), ends[np.append(edges[1:], True)].tolist(), strict=True):
        yield max(start, task.start), min(end, task.end)


def _compare_records(
    ours: Log, theirs: Log, a: Numbers, b: Numbers, start: int, end: int
) -> Iterator[tuple[str, int, str]]:
    """Differences of the records in a range, as code, offset and detail; control batches are compared too."""
    markers = [_markers(side, start, end) for side in (a, b)]
    if markers[0] != markers[1]:
        offset = min(set(markers[0].items()) ^ set(markers[1].items()))[0]
        both = offset in markers[0] and offset in markers[1]
        where = (
            "of another kind or producer" if both else f"only in {'this one' if offset in markers[0] else 'the copy'}"
        )
        yield ("KS901" if both else "KS902"), offset, f"a control batch {where}"
    sides = [_Records(log, start, end) for log in (ours, theirs)]
    while True:
        left, right = (side.peek() for side in sides)
        if left is None or right is None:
            break
        count = min(left.num_rows, right.num_rows)
        x, y = left.slice(0, count), right.slice(0, count)
        if x.equals(y):
            for side in sides:
                side.drop(count)
            continue
        row = _first_difference(x, y)
        first, second = x.column(0)[row].as_py(), y.column(0)[row].as_py()
        if first == second:
            names = [name for i, name in enumerate(COLUMNS) if not x.column(i)[row].equals(y.column(i)[row])]
            yield "KS901", first, f"the record's {', '.join(names)} differ"
        else:
            yield (
                "KS902",
                min(first, second),
                f"offset {min(first, second)} is only in {'this one' if first < second else 'the copy'}",
            )
        return
    for rest, where in ((left, "this one"), (right, "the copy")):
        if rest is not None:
            offset = rest.column(0)[0].as_py()
            yield "KS902", offset, f"offset {offset} is only in {where}"
            return
    if markers[0] == markers[1]:
        yield "KS906", start, f"offsets {start} to {end - 1} and perhaps others"


def _markers(side: Numbers, start: int, end: int) -> dict[int, tuple[int, int]]:
    control = (side[_ATTRIBUTES] & t.CONTROL_BIT != 0) & (side[_MAGIC] == 2) & (side[_COUNT] > 0)
    rows = side[:, control & (side[_BASE] >= start) & (side[_BASE] < end)]
    return {base: (kind, producer) for base, kind, producer in rows[[_BASE, _MARKER, _PRODUCER]].T.tolist()}


def _first_difference(x: pa.RecordBatch, y: pa.RecordBatch) -> int:
    """The first row in which two batches of equal length differ."""
    low, high = 0, x.num_rows - 1  # it is in [low, high]
    while low < high:
        middle = (low + high) // 2
        if x.slice(low, middle - low + 1).equals(y.slice(low, middle - low + 1)):
            low = middle + 1
        else:
            high = middle
    return low


class _Records:
    """Records of a range, taken from the front in pieces of any length."""

    def __init__(self, log: Log, start: int, end: int) -> None:
        on_corrupt: OnCorrupt = "skip" if log.options.skip_damage else "raise"
        self._batches = log.read(start, end, columns=COLUMNS, read_past_high_watermark=True, on_corrupt=on_corrupt)
        self._held: pa.RecordBatch | None = None

    def peek(self) -> pa.RecordBatch | None:
        while self._held is None or not self._held.num_rows:
            self._held = next(self._batches, None)
            if self._held is None:
                return None
        return self._held

    def drop(self, count: int) -> None:
        assert self._held is not None
        self._held = self._held.slice(count)
