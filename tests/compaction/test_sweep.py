"""Logs that are read from their end and decompressed once: the same files as by two passes, whatever is in them."""

from __future__ import annotations

import gc
import random
import shutil
import struct
import threading
import weakref

import numpy as np
import pyarrow as pa
import pytest

import kseg
from kseg.compaction import CleanerConfig, compact, keymap, local, strategy, sweep
from kseg.compaction.keymap import KeyMap
from kseg.compaction.rewrite import Rewriter
from kseg.compaction.strategy import KeyPlan
from tests.builders import LogBuilder
from tests.compaction.rounds import GrowingLog, Setup
from tests.scale import counts
from tests.verify.copies import batch_places

CONFIG = CleanerConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, index_interval_bytes=0)
NOW = 1_800_000_000_000
WAYS = {"one thread": 1, "three threads": 3}


def content(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def indexed(path):
    """The log with an index entry for each batch, so that it can be cut anywhere."""
    for file in path.glob("*.log"):
        data, entries = file.read_bytes(), b""
        for position, _ in batch_places(file):
            (base,) = struct.unpack_from(">q", data, position)
            if position:
                entries += struct.pack(">ii", base - int(file.stem), position)
        file.with_suffix(".index").write_bytes(entries)
    return path


@pytest.fixture
def put_aside(monkeypatch):
    """Pieces of a few batches each; gives how many were put aside, sweep by sweep."""
    sweeps = []

    class Watched(sweep.Sweep):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.number = len(sweeps)
            sweeps.append(0)

        def _rewrite(self, *args):
            super()._rewrite(*args)
            sweeps[self.number] = max(sweeps[self.number], len(self.aside))

    monkeypatch.setattr(sweep, "Sweep", Watched)
    monkeypatch.setattr(sweep, "MOST_PIECE_BYTES", 600)
    monkeypatch.setattr(local, "MIN_PIECE_BYTES", 1)
    return sweeps


def both_ways(path, monkeypatch, **options):
    """Compact a copy by two passes; gives what was said of both."""
    copy = shutil.copytree(path.parent, path.parent.with_name("copy"))
    said = []
    for directory, is_swept in ((path, True), (copy / path.name, False)):
        with monkeypatch.context() as patch:
            patch.setattr(KeyPlan, "is_swept", is_swept)
            (done,) = compact(directory, now_ms=NOW, **{"config": CONFIG, **options}).partitions
        told = done.to_dict()
        said.append({key: told[key] for key in told if key not in ("seconds", "bytes_per_second", "path")})
    assert content(path.parent) == content(copy)
    shutil.rmtree(copy)
    return said


def random_log(root, seed):
    """Some of all that a log may hold."""
    rng = random.Random(seed)
    builder = LogBuilder(root)
    for _ in range(rng.randrange(2, 5)):
        builder.segment()
        for _ in range(rng.randrange(3, 40)):
            codec = rng.choice(["lz4", "zstd", "gzip", "snappy", "lz4", "none"])
            kind = rng.random()
            if kind < 0.75:
                keys = [b"k%d" % rng.randrange(25) for _ in range(rng.randrange(1, 9))]

                def make(index, keys=keys):
                    return keys[index % len(keys)], None if index % 11 == 5 else b"v%d" % index * 9, ()

                builder.batch(builder.make(len(keys), step=rng.choice([1, 1, 1, 3]), content=make), codec)
            elif kind < 0.80:
                builder.record(None, b"no key", codec=codec)
            elif kind < 0.85:
                builder.append_time(3, codec)
            elif kind < 0.90:
                builder.empty(2)
            elif kind < 0.95:
                builder.skip(rng.randrange(1, 400))
            elif seed % 2:
                builder.transaction(2, producer_id=rng.randrange(3), codec=codec)
            else:
                builder.legacy(2)
    return indexed(builder.segment().record(b"end", b"end").write())


@pytest.mark.parametrize("threads", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("seed", range(counts(12)))
def test_the_same_files_as_by_two_passes(tmp_path, monkeypatch, put_aside, seed, threads):
    path = random_log(tmp_path / "data", seed)
    rng = random.Random(seed)
    first_dirty = rng.choice([None, 0, rng.randrange(120)])
    swept, twice = both_ways(path, monkeypatch, workers=threads, first_dirty=first_dirty)
    assert swept == twice
    assert len(put_aside) == (swept["skipped"] is None)


@pytest.mark.oracle
@pytest.mark.parametrize("seed", range(400, 400 + counts(6)))
def test_small_pieces_leave_the_same_batches_as_the_cleaner(oracle, tmp_path, monkeypatch, put_aside, seed):
    monkeypatch.setattr(KeyPlan, "is_swept", True)  # with transactions too
    setup = Setup(seed)
    log = GrowingLog(oracle, tmp_path, setup)
    for step in log.steps():
        config = setup.config(step.number, strategy="memory")
        (done,) = compact(
            log.ours, config=config, now_ms=step.now_ms, first_dirty=step.first_dirty, workers=3
        ).partitions
        assert done.error is None
        if done.skipped is None:
            answer = oracle.clean(log.theirs, step.first_dirty, step.now_ms, **setup.oracle_options(step.number))
            ours, theirs = ([b | {"segment": None} for b in oracle.dump(path)] for path in (log.ours, log.theirs))
            assert ours == theirs, f"round {step.number}"
            log.first_dirty = answer["endOffset"]

    assert put_aside


def compressed_log(root, *, batches=200, codec="zstd", keys=30):
    rng = random.Random(batches)
    builder = LogBuilder(root)
    for number in range(batches):
        if number % 70 == 0:
            builder.segment()
        builder.record(b"k%d" % rng.randrange(keys), b"%d" % number * 20, codec=codec)
    return indexed(builder.segment().record(b"end", b"end").write())


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd"])
def test_a_compressed_log_is_swept_and_nothing_is_read_twice(tmp_path, put_aside, monkeypatch, codec):
    path = compressed_log(tmp_path / "data", codec=codec)

    def read_again(*_):
        pytest.fail("a piece was read again")

    monkeypatch.setattr(Rewriter, "rewrite", read_again)
    (done,) = compact(path, config=CONFIG, now_ms=NOW, workers=2).partitions
    assert (done.error, done.strategy, done.keys) == (None, "memory", 30)
    assert done.records_after == 30
    (pieces,) = put_aside
    assert pieces > 20


@pytest.mark.parametrize("batch", [0, 1, 69, 70, 120, 199])
@pytest.mark.parametrize("threads", WAYS.values(), ids=WAYS)
def test_damage_anywhere_ends_the_sweep_and_leaves_the_log(tmp_path, put_aside, batch, threads):
    path = compressed_log(tmp_path / "data")
    file = sorted(path.glob("*.log"))[batch // 70]
    position = [entry.position for entry in kseg.open_log(path).batches()][batch]
    data = bytearray(file.read_bytes())
    data[position + 30] ^= 1  # a time: planning, which decompresses some records, does not mind
    file.write_bytes(data)
    before = content(path)
    (done,) = compact(path, config=CONFIG, now_ms=NOW, workers=threads).partitions
    assert f"byte {position}" in done.error
    assert content(path) == before
    assert len(put_aside) == 1


@pytest.mark.parametrize("threads", WAYS.values(), ids=WAYS)
def test_more_keys_than_were_foreseen_end_a_sweep_but_not_the_round(tmp_path, put_aside, monkeypatch, threads):
    """The map grows; where it may not, a larger one is begun with."""
    path = compressed_log(tmp_path / "data", keys=150)
    again = shutil.copytree(path.parent, tmp_path / "again") / path.name
    monkeypatch.setattr(keymap, "MIN_SLOTS", 64)
    monkeypatch.setattr(strategy, "sample_keys", lambda *_: strategy.Sample(200, 1, is_plain=False))
    swept, twice = both_ways(path, monkeypatch, workers=threads)
    assert swept == twice
    assert swept["keys"] > 64
    assert len(put_aside) == 1

    def grow(*_):
        raise keymap.KeyMapFull

    monkeypatch.setattr(KeyMap, "_grow", grow)
    (done,) = compact(again, config=CONFIG, now_ms=NOW, workers=threads).partitions
    assert (done.error, done.strategy) == (None, "memory")
    assert content(again) == content(path)
    assert len(put_aside) == 2  # the largest map leaves no room


def test_records_that_share_an_offset_are_told_apart_by_their_keys(tmp_path, put_aside, monkeypatch):
    path = compressed_log(tmp_path / "data")
    builder = LogBuilder(tmp_path / "shared")
    builder.batch([*builder.make(3), *builder.make(3)], "zstd")
    shared = builder.segment().record(b"end", b"end").write()
    for log in (path, shared):
        swept, twice = both_ways(log, monkeypatch)
        assert swept == twice


@pytest.mark.parametrize("told_keys", [1, None, 10**9], ids=["few keys expected", "by the sample", "many expected"])
def test_where_little_may_be_put_aside_the_pieces_with_least_left_have_the_room(tmp_path, monkeypatch, told_keys):
    """Of the last pieces of this log everything is left, of the first ones next to nothing."""
    path = tmp_path / "data" / "orders-0"
    rng = np.random.default_rng(5)
    with kseg.create_log(path, config=kseg.LogConfig(segment_bytes=1 << 20)) as writer:
        for number in range(40):
            names = np.arange(1000) if number < 30 else number * 1000 + np.arange(1000)
            table = pa.table({"key": [b"%d" % i for i in names], "value": [rng.bytes(60) for _ in names]})
            writer.append(table, codec="lz4")
        writer.roll()
        writer.append(pa.table({"key": [b"end"], "value": [b"end"]}))
    size = sum(file.stat().st_size for file in path.glob("*.log"))
    left, sweeps = {}, []

    class Narrow(sweep.Sweep):
        def __init__(self, *args, room, expected, **options):
            wanted = expected if told_keys is None else float(told_keys)
            super().__init__(*args, room=lambda: size // 8, expected=wanted, **options)
            sweeps.append(self)

        def __call__(self, number):
            rows = super().__call__(number)
            with self._changed:
                held = list(self.aside.values())
            left[self._pieces[number].start] = sum(data.nbytes for done in held for data in done.data)
            return rows

        def stop(self):
            super().stop()
            self.put_aside = [piece in self.aside for piece in self._pieces[::-1]]

    monkeypatch.setattr(sweep, "Sweep", Narrow)
    monkeypatch.setattr(sweep, "MOST_PIECE_BYTES", 64 << 10)
    swept, twice = both_ways(path, monkeypatch, workers=2)
    assert swept == twice
    assert max(left.values()) <= size // 8
    (aside,) = (one.put_aside for one in sweeps)
    assert all(aside[: len(aside) // 2])
    in_the_making = 0 if told_keys == 10**9 else 1  # by the other thread, when it turned out that there is more
    assert sum(aside[-6:]) <= in_the_making


def test_who_waits_for_a_piece_that_is_never_begun_is_let_go(tmp_path):
    path = compressed_log(tmp_path / "data")
    keys = KeyMap(1 << 15, np.zeros(2, np.uint64))
    scanner = local.KeyScanner(local.AbortedRanges.of([]), 0, keys, keys.hash_key)
    pieces = local.cut_pieces(kseg.open_log(path).segments[:-1], 0, 600)
    swept = sweep.Sweep(scanner, keys, pieces, 0, None, lambda: 0, 0.0, local.Means())
    waiting = threading.Thread(target=swept, args=(3,), daemon=True)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    swept.stop()
    waiting.join(30)
    assert not waiting.is_alive()


def test_what_lies_aside_makes_room_for_a_map_that_grows(tmp_path, monkeypatch):
    """The map may double again and again, when most of the log lies aside already."""
    path = tmp_path / "data" / "orders-0"
    rng = np.random.default_rng(7)
    with kseg.create_log(path, config=kseg.LogConfig(segment_bytes=1 << 20)) as writer:
        for number in range(60):
            count, size = (40, 1400) if number >= 20 else (4000, 8)
            names = [b"key %d" % i for i in range(number * 4000, number * 4000 + count)]
            values = [rng.bytes(size) for _ in names]
            writer.append(pa.table({"key": names, "value": values}), codec="lz4")
        writer.roll()
        writer.append(pa.table({"key": [b"end"], "value": [b"end"]}))
    monkeypatch.setattr(keymap, "MIN_SLOTS", 64)
    monkeypatch.setattr(strategy, "sample_keys", lambda *_: strategy.Sample(100_000, 5, is_plain=False))
    monkeypatch.setattr(sweep, "MOST_PIECE_BYTES", 32 << 10)
    budget, most, sweeps = 6 << 20, [], []

    class Watched(sweep.Sweep):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            sweeps.append(self)

    def new_slots(count):  # a table of the map, beside the one it takes the place of
        if sweeps and not sweeps[-1]._is_stopped:
            most.append(sweeps[-1]._used + sweeps[-1]._keys.size + count * 24)
        return np.zeros((count, 3), np.int64)

    monkeypatch.setattr(sweep, "Sweep", Watched)
    monkeypatch.setattr(keymap, "new_slots", new_slots)
    swept, twice = both_ways(path, monkeypatch, memory_budget=budget, workers=2)
    assert swept == twice
    assert swept["strategy"] == "memory"
    assert len(most) > 5
    assert max(most) <= budget


def test_a_sweep_whose_map_was_too_small_holds_nothing(tmp_path, monkeypatch, put_aside):
    path = compressed_log(tmp_path / "data", keys=150)
    sweeps = []

    class Watched(sweep.Sweep):
        def __init__(self, *args, **options):
            assert not any(ref() for ref in sweeps)
            super().__init__(*args, **options)
            sweeps.append(weakref.ref(self))

    def grow(*_):
        raise keymap.KeyMapFull

    monkeypatch.setattr(sweep, "Sweep", Watched)
    monkeypatch.setattr(keymap, "MIN_SLOTS", 64)
    monkeypatch.setattr(strategy, "sample_keys", lambda *_: strategy.Sample(200, 1, is_plain=False))
    monkeypatch.setattr(KeyMap, "_grow", grow)
    gc.disable()
    try:
        (done,) = compact(path, config=CONFIG, now_ms=NOW, workers=2).partitions
        assert (done.error, len(sweeps)) == (None, 1)
        assert sweeps[0]() is None
    finally:
        gc.enable()


def test_pieces_of_tiny_records_are_small():
    """Memory of a thread goes with the number of records of a piece."""
    assert sweep.piece_bytes(1.0, 300.0) == sweep.MOST_PIECE_BYTES
    assert sweep.piece_bytes(4.0, 300.0) == sweep.ARENA_BYTES // 4
    assert sweep.piece_bytes(2.0, 7.0) == 7 * sweep.PIECE_RECORDS
    assert sweep.piece_bytes(1000.0, 0.1) == sweep.MIN_PIECE_BYTES
