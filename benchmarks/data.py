"""The data that is measured: seeded records, and logs of them in a cache folder outside the repository.

Values are text of words drawn by Zipf's law, keys repeat, timestamps rise: it compresses about as real topics do.
A log is made once per content and kept; raise VERSION when the generator changes.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from kseg.format.builder import BatchOptions, EncodedBatches, encode_batches
from kseg.index.build import IndexBuilder
from kseg.native import encode
from kseg.native import table as t
from kseg.types import Codec
from tests.kafka.jars import cache_dir, published

VERSION = 2
SEED = 20_000
FIRST_TIMESTAMP = 1_700_000_000_000
KEYS = 100_000
VOCABULARY = 2_000
TEXT_BYTES = 8 << 20
TOPIC = "bench"
LOG_NAME = f"{0:020d}.log"
BATCH_BYTES = 16 << 10
WHATEVER_SIZE = 1 << 30  # batches are cut by their count alone


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of log: what varies between the rows of a table. A log holds the records `copies` times over."""

    codec: Codec
    batch_records: int
    value_bytes: int
    records: int
    copies: int = 1

    @property
    def name(self) -> str:
        """Short and unique: `zstd-500x100` has batches of 500 records with values of about 100 bytes."""
        return f"{self.codec.label}-{self.batch_records}x{self.value_bytes}"


def cases(*, quick: bool, copies: dict[Codec, int] | None = None) -> list[Case]:
    """All codecs, large and one-record batches, small and large values; fewer records where a codec is slow."""
    sizes = {(500, 100): 200_000, (500, 1024): 30_000, (1, 100): 20_000, (1, 1024): 10_000}
    if quick:
        sizes = {(500, 100): 50_000, (1, 100): 10_000}
    return [
        Case(codec, *shape, records // (4 if codec is Codec.GZIP else 1), copies[codec] if copies else 1)
        for shape, records in sizes.items()
        for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY, Codec.GZIP)
        if not quick or shape[0] > 1 or codec in (Codec.NONE, Codec.LZ4)
    ]


@functools.cache
def _text() -> bytes:
    rng = np.random.default_rng(SEED)
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgkjqxz", np.uint8)
    lengths = rng.integers(2, 11, VOCABULARY)
    frequencies = 1 / np.arange(3, len(letters) + 3)
    drawn = rng.choice(letters, int(lengths.sum()), p=frequencies / frequencies.sum()).tobytes()
    ends = np.cumsum(lengths).tolist()
    words = [drawn[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]
    weights = 1 / np.arange(2, VOCABULARY + 2)
    picks = rng.choice(VOCABULARY, TEXT_BYTES // 5, p=weights / weights.sum())
    return b" ".join(words[pick] for pick in picks.tolist())


@functools.lru_cache(maxsize=2)
def make_records(count: int, value_bytes: int) -> pa.RecordBatch:
    """Records with values of about `value_bytes`; the same arguments always give the same records."""
    rng = np.random.default_rng([SEED, count, value_bytes])
    text = _text()
    lengths = rng.integers(value_bytes * 4 // 5, value_bytes * 6 // 5 + 1, count)
    starts = rng.integers(0, len(text) - 2 * value_bytes, count)
    values = [text[start : start + length] for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)]
    keys = [b"key-%08d" % number for number in rng.integers(0, KEYS, count).tolist()]
    stamps = FIRST_TIMESTAMP + np.cumsum(rng.integers(0, 3, count))
    return pa.record_batch(
        {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary()), "timestamp": pa.array(stamps)}
    )


def batch_options(case: Case) -> BatchOptions:
    """How the records of a case are put into batches: by their count alone."""
    return BatchOptions(codec=case.codec, batch_bytes=WHATEVER_SIZE, batch_records=case.batch_records, leader_epoch=0)


def encode_case(case: Case) -> EncodedBatches:
    """The batches of a case."""
    records = make_records(case.records, case.value_bytes)
    return encode_batches(records, first_offset=0, options=batch_options(case), now_ms=0)


def cached_log(case: Case) -> Path:
    """The partition directory of a case; made when first asked for."""
    name = f"{case.name}-{case.records}x{case.copies}"
    return _cached(name, lambda: itertools.islice(_repeat(encode_case(case), case.records), case.copies))


def cached_large_log(codec: Codec, size: int, batch_bytes: int = BATCH_BYTES) -> Path:
    """A partition directory with one segment of `size` bytes, in the batches of 16 KiB that producers send."""
    name = f"large-{codec.label}-{size >> 20}"
    name += "" if batch_bytes == BATCH_BYTES else f"-{batch_bytes}"
    return _cached(name, lambda: _until(_large_blocks(codec, batch_bytes), size))


def _large_blocks(codec: Codec, batch_bytes: int) -> Iterator[EncodedBatches]:
    records = make_records(200_000, 100)
    options = BatchOptions(codec=codec, batch_bytes=batch_bytes, leader_epoch=0)
    yield from _repeat(encode_batches(records, first_offset=0, options=options, now_ms=0), records.num_rows)


def _repeat(block: EncodedBatches, records: int) -> Iterator[EncodedBatches]:
    """The same batches for ever, with offsets and times that go on; each is to be used before the next is taken."""
    table, data = block.table.copy(), block.data.copy()
    span = int(table[t.MAX_TIMESTAMP].max() - table[t.BASE_TIMESTAMP].min()) + 1
    while True:
        encode.write_headers(data, table, table.shape[1])
        yield EncodedBatches(data, table)
        table[[t.BASE_OFFSET, t.LAST_OFFSET]] += records
        table[[t.BASE_TIMESTAMP, t.MAX_TIMESTAMP]] += span


def _until(blocks: Iterator[EncodedBatches], size: int) -> Iterator[EncodedBatches]:
    """Blocks up to the last whole batch within `size` bytes."""
    for block in blocks:
        ends = block.table[t.POSITION] + block.table[t.SIZE]
        fits = int(np.searchsorted(ends, size, side="right"))
        if fits:
            yield EncodedBatches(block.data[: ends[fits - 1]], block.table[:, :fits])
        if fits < block.count:
            return
        size -= int(ends[-1])


def _cached(name: str, make: Callable[[], Iterator[EncodedBatches]]) -> Path:
    target = cache_dir().parent / "benchmarks" / f"v{VERSION}" / name
    if not target.exists():
        with published(target) as folder:
            if folder is not None:
                _write_segment(folder / f"{TOPIC}-0", make())
    return target / f"{TOPIC}-0"


def _write_segment(folder: Path, blocks: Iterator[EncodedBatches]) -> None:
    folder.mkdir()
    log = folder / LOG_NAME
    indexes = IndexBuilder(0)
    with log.open("wb") as file:
        for block in blocks:
            table = block.table.copy()
            table[t.POSITION] += indexes.size
            indexes.add(table, block.count)
            file.write(block.data.data)
    indexes.finish()
    log.with_suffix(".index").write_bytes(indexes.offset_index.to_bytes())
    log.with_suffix(".timeindex").write_bytes(indexes.time_index.to_bytes())
