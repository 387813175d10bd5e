"""Any bytes end in lines and a status, in every verb."""

from __future__ import annotations

import json
import random

import pytest

from tests.builders import LogBuilder
from tests.cli.calls import call
from tests.reference import batch as v2
from tests.reference import legacy
from tests.scale import counts

CHANGES = counts(40)
LOG = "00000000000000000000.log"


def _log(tmp_path):
    log = (
        LogBuilder(tmp_path, "__consumer_offsets")
        .segment()
        .batch(4)
        .empty(2)
        .legacy(3, codec="gzip")
        .legacy(2, magic=0)
    )
    log.transaction(2, producer_id=9).control("abort", producer_id=9).batch(5, codec="lz4").batch(3, codec="zstd")
    return log


def _changed(rng, log):
    """The file with a few bytes of one batch changed, its checksum made to fit in half of the cases."""
    entries = [entry.data for entry in log.batches]
    number = rng.randrange(len(entries))
    data = bytearray(entries[number])
    for _ in range(rng.choice((1, 1, 2, 4))):
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    whole = bytes(data)
    if rng.random() < 0.7 and whole[8:12] == entries[number][8:12]:
        whole = v2.repair(whole) if whole[16] == 2 and len(whole) >= 61 else legacy.repair(whole)
    return b"".join([*entries[:number], whole, *entries[number + 1 :]])


@pytest.mark.parametrize("seed", range(5))
def test_changed_bytes_in_a_log(tmp_path, seed):
    rng = random.Random(seed)
    path = _log(tmp_path).write()
    log = _log(tmp_path)
    for _ in range(CHANGES):
        (path / LOG).write_bytes(_changed(rng, log))
        for words in (
            ["dump", "--records", "--json", "--decode"],
            ["dump", "--records"],
            ["cat", "--json"],
            ["ls", "--json"],
        ):
            answer = call(words[0], path, *words[1:])
            assert answer.status in (0, 1), answer.messages
            assert (answer.status == 0) == (answer.messages == "")
            if "--json" in words:
                assert all(json.loads(line) for line in answer.lines)


@pytest.mark.parametrize(
    "name", ["00000000000000000000.index", "00000000000000000000.snapshot", "meta.properties", "quorum-state"]
)
def test_any_bytes_in_a_sidecar(tmp_path, name):
    rng = random.Random(name)
    for size in (0, 1, 7, 8, 12, 34, 61, 500):
        (tmp_path / name).write_bytes(rng.randbytes(size))
        for words in ([], ["--json"]):
            assert call("dump", tmp_path / name, *words).status in (0, 1)
