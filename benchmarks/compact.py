"""One round of compaction against Kafka's own cleaner, on the same logs and the same number of cores.

A log holds 1 GiB of records before compression, in batches of 100 records, and nothing of it was cleaned before. On one
core seconds are those of the processor, kseg's with all its threads; on two they are those of the clock on the wall, so
only a calm machine gives a figure. The cleaner works on one partition per thread, with the broker's default buffer for
keys.

The limit is what no cleaner can leave out: all payloads decompressed twice, and what is rewritten compressed once, at
the codec's default level, by the plain C libraries. What a second core can give is measured by `apart.py`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np
import zstandard

from benchmarks import keyed_data, limits
from benchmarks.anchors import Anchor
from benchmarks.apart import PROCESSES, Apart, Share
from benchmarks.compact_work import Work
from benchmarks.keyed_data import KeyedCase
from benchmarks.measure import Contestant, Goal, compare, in_turn
from kseg.native import headers
from kseg.native import table as t
from kseg.types import Codec

SIZE = 1 << 30
QUICK_SIZE = 64 << 20
WARM_SIZE = 64 << 20
WARM_ROUNDS = 4
ROUNDS = {Codec.NONE: 12, Codec.LZ4: 8, Codec.ZSTD: 5}  # short ones vary more, and cost less
SECOND_CORE = 1.7


def reach_limit(case: KeyedCase, home: Path, share: slice = slice(None)) -> Callable[[], int]:
    """A run of the limit, or of a share of its batches; what is compressed is taken from a log that kseg compacted."""
    plain = [_payloads(path, case.codec) for path in keyed_data.cached_partitions(case)]
    work = Work(case, home)
    work.run_kseg(2, time.perf_counter)
    sources = {bytes(payload) for payloads in plain for payload in payloads}
    decompress = limits.decompressor(case.codec)
    rewritten = [
        bytes(decompress(memoryview(payload), 4 << 20, None))
        for path in sorted((home / "data").glob(f"{keyed_data.TOPIC}-*"))
        for payload in _payloads(path, case.codec)
        if bytes(payload) not in sources
    ]
    press = _compressor(case.codec)
    every = [memoryview(payload) for payloads in plain for payload in payloads]
    mine, pressed = every[share], rewritten[share]
    records = case.partitions * case.records * len(mine) // len(every)

    def run() -> int:
        for _ in range(2):
            for payload in mine:
                decompress(payload, 4 << 20, None)
        for raw in pressed:
            press(raw)
        return records

    return run


def log_apart(case: KeyedCase, home: Path, number: int) -> Share:
    """A log of its own for each process."""
    work, copies = Work(case, home), list[Path]()

    def prepare() -> None:
        copies[:] = work.fresh()

    return Share(prepare, lambda: work.compact(copies, 1, time.perf_counter))


def limit_apart(case: KeyedCase, home: Path, number: int) -> Share:
    """Every other batch of the limit."""
    return Share(lambda: None, reach_limit(case, home, slice(number, None, PROCESSES)))


def _payloads(path: Path, codec: Codec) -> list[Any]:
    found: list[Any] = []
    for file in sorted(path.glob("*.log"))[:-1]:
        data = np.fromfile(file, np.uint8)
        table = t.new_table(data.size // t.HEADER_SIZE + 1)
        rows, _, _ = headers.fill_headers(data, 0, data.size, 0, table, 0)
        for position, size, attributes in table[[t.POSITION, t.SIZE, t.ATTRIBUTES], :rows].T.tolist():
            if attributes & t.CODEC_MASK == codec:
                found.append(data[position + t.HEADER_SIZE : position + size])
    return found


def _compressor(codec: Codec) -> Callable[[bytes], Any]:
    if codec is Codec.LZ4:
        return lambda raw: lz4.frame.compress(raw, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False)
    return zstandard.ZstdCompressor().compress


def _limit(case: KeyedCase, home: Path, cores: int, stack: ExitStack) -> Contestant:
    if cores == 1:
        return Contestant("limit", reach_limit(case, home))
    both = stack.enter_context(Apart(limit_apart, case))
    return Contestant("limit", both.run, both.last_seconds)


def measure_case(case: KeyedCase, cores: int, rounds: int) -> dict[str, Any]:
    """All contestants on the same logs."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=keyed_data.cache_home()))
        jvm = stack.enter_context(Anchor("CompactAnchor"))
        work = Work(case, Path(folder))
        warm = Work(case.of_size(WARM_SIZE), Path(folder))
        for _ in range(WARM_ROUNDS):
            warm.run_java(jvm, cores)
        warm.run_kseg(cores, time.process_time)
        clock = time.process_time if cores == 1 else time.perf_counter
        contestants = [
            Contestant("kseg", lambda: work.run_kseg(cores, clock), work.last_seconds),
            Contestant("cleaner", lambda: work.run_java(jvm, cores), jvm.last_seconds),
        ]
        goals = [Goal("cleaner", case.goal)]
        if cores > 1:
            contestants.append(Contestant("kseg on 1", lambda: work.run_kseg(1, clock), work.last_seconds))
            goals.append(Goal("kseg on 1", SECOND_CORE))
            apart = stack.enter_context(Apart(log_apart, case))
            contestants.append(Contestant("apart", apart.run, apart.last_seconds))
        if case.codec is not Codec.NONE:
            contestants.append(_limit(case, Path(folder), cores, stack))
            goals.append(Goal("limit", 1 / 1.5))
        for number in range(rounds):
            for contestant in in_turn(contestants, number):
                contestant.seconds.append(contestant.once())
    log_bytes = sum(file.stat().st_size for path in keyed_data.cached_partitions(case) for file in path.glob("*.log"))
    best = {one.name: round(log_bytes / 1e6 / min(one.seconds)) for one in contestants}
    row = {"case": f"{case.name}-{cores}c", "log_bytes": log_bytes, "log_megabytes_per_second": best}
    result = compare(contestants, goals)
    rates = result["records_per_second"]
    if "limit" in rates:  # how far the limit itself gets
        result["ratios"]["cleaner"]["reachable"] = round(rates["limit"] / rates["cleaner"], 3)
    if "apart" in rates:  # how much two processes that share nothing gain
        result["ratios"]["kseg on 1"]["reachable"] = round(rates["apart"] / rates["kseg on 1"], 3)
    return row | result


def run(*, quick: bool, only: str = "") -> Iterator[dict[str, Any]]:
    """A row per case; one with several partitions tells how fast a log of one is beside it, byte for byte."""
    best: dict[tuple[Codec, int], float] = {}
    for case, cores in keyed_data.cases(QUICK_SIZE if quick else SIZE, quick=quick):
        if only not in f"{case.name}-{cores}c":
            continue
        row = measure_case(case, cores, ROUNDS[case.codec])
        rate = row["log_bytes"] / min(row["seconds"]["kseg"])
        if case.partitions == 1 and case.superseded > 50:
            best[case.codec, cores] = rate
        elif (case.codec, cores) in best:
            row["one_partition_over_several"] = round(best[case.codec, cores] / rate, 3)
        yield row
