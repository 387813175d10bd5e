"""The same batches, appended by Kafka's own log and by kseg's writer: the two directories are equal, byte for byte."""

from __future__ import annotations

import random

import pytest

import kseg
from kseg.format.builder import EncodedBatches
from kseg.index.offset import OffsetIndex
from kseg.index.time import TimeIndex
from kseg.native import table as t
from tests.index.twins import table_of
from tests.scale import counts

NOW = 1_700_000_000_000  # the oracle's clock while it generates
PADDED = {".index": OffsetIndex, ".timeindex": TimeIndex}


def _settings(rng):
    """Every reason to roll, in all mixtures; index files as small as they can be."""
    large = rng.random() < 0.5
    return kseg.LogConfig(
        segment_bytes=rng.choice([9000, 40_000, 1 << 20] if large else [1500, 3000, 9000]),
        segment_ms=rng.choice([3000, 10_000, 60_000, 604_800_000]),
        segment_index_bytes=rng.choice([24, 30, 40, 100, 10 << 20]),
        index_interval_bytes=rng.choice([0, 1, 256, 1000, 4096]),
        message_timestamp_type=rng.choice(["CreateTime", "CreateTime", "LogAppendTime"]),
    ), {"rec": 30 if large else 4}


def _files(directory):
    """What a broker keeps, by name: index files without their padding, and no empty transaction indexes."""
    found = {}
    for path in directory.iterdir():
        data = path.read_bytes()
        if path.suffix in PADDED:
            data = PADDED[path.suffix].parse(data, int(path.stem)).to_bytes()
        if path.name != "partition.metadata" and (data or path.suffix != ".txnindex"):
            found[path.name] = data
    return found


@pytest.mark.parametrize("seed", range(counts(8)))
def test_a_log_is_written_as_kafka_writes_it(oracle, tmp_path, seed):
    rng = random.Random(seed)
    config, sizes = _settings(rng)
    kafkas, ours = tmp_path / "kafkas" / "twin-0", tmp_path / "ours" / "twin-0"
    oracle.gen(
        kafkas, 7000 + seed, 150, roll=0, gap=rng.choice([0, 0.1, 0.6]), txn=rng.choice([0, 0.4, 0.9]), **sizes,
        life=rng.choice([3, 25]), codec=rng.choice(["any", "none"]),
        lat=int(config.message_timestamp_type == "LogAppendTime"),
        **{
            "internal.segment.bytes": config.segment_bytes, "segment.ms": config.segment_ms,
            "segment.index.bytes": config.segment_index_bytes, "index.interval.bytes": config.index_interval_bytes,
        },
    )  # fmt: skip
    with kseg.create_log(ours, config=config, clock=lambda: NOW / 1000) as writer:
        for path in sorted(kafkas.glob("*.log")):
            table, rows = table_of(path)
            data = path.read_bytes()
            for row in range(rows):
                start = int(table[t.POSITION, row])
                one = data[start : start + int(table[t.SIZE, row])]
                writer.append_batches(EncodedBatches(one, table[:, row : row + 1]))
    written = _files(ours)
    assert sorted(written) == sorted(_files(kafkas))
    assert written == _files(kafkas)
