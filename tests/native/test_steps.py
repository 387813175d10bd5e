"""Both passes of a round straight from a file, against the same passes over what the walk gives."""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kseg
from kseg.compaction import decode, key_reader, pieces, rewrite, scan
from kseg.compaction.keymap import KeptOffsets, KeyMap
from kseg.compaction.markers import settle
from kseg.compaction.pieces import END, Piece
from kseg.compaction.rewrite import Rewriter, Rules
from kseg.compaction.scan import KeyScanner
from kseg.errors import KsegError
from kseg.index.txn import AbortedTxn
from kseg.log.visibility import NONE_ABORTED, AbortedRanges
from kseg.native import table as t
from tests.builders import LogBuilder
from tests.scale import counts

HASH_KEY = np.array([3, 5], np.uint64)
WRITTEN = [t.POSITION, t.SIZE, t.BASE_OFFSET, t.LAST_OFFSET, t.ATTRIBUTES, t.COUNT]


class Entries(list):
    """Keeps the keys that a scan puts."""

    def put(self, entries):
        self.extend(tuple(entry) for entry in entries.tolist())


def outcome(work, *args):
    """What came of it, or the error's own words."""
    try:
        return work(*args)
    except KsegError as error:
        return type(error), str(error)


def cut(segments, borders):
    """Each segment cut at some offsets."""
    found = []
    for segment in segments:
        inside = [border for border in borders if border > segment.base_offset]
        edges = [segment.base_offset, *inside, END]
        found += [Piece(segment, start, end, segment.size) for start, end in itertools.pairwise(edges)]
    return found


def scan_all(segments, borders, aborted, first_offset=0):
    """Keys, transactional batches and what the scanner knows then, for each piece."""
    found = []
    for piece in cut(segments, borders):
        entries = Entries()
        scanner = KeyScanner(aborted, first_offset, entries, HASH_KEY)
        rows = outcome(scanner, piece)
        if isinstance(rows, tuple):
            found.append((None, rows))
        else:
            found.append((sorted(entries), rows.tolist(), scanner.last_offset, scanner.in_order))
    return found


def rewrite_all(segments, borders, aborted, first_offset=0, now_ms=2**62):
    """What is left of each piece: bytes, batches, counts."""
    keymap = KeyMap(1 << 15, HASH_KEY)
    scanner = KeyScanner(aborted, first_offset, keymap, HASH_KEY)
    for piece in cut(segments, []):
        if isinstance(outcome(scanner, piece), tuple):
            return None
    kept = KeptOffsets.of(keymap, first_offset, max(scanner.last_offset + 1, first_offset))
    transactions = replace(settle([], []), aborted=aborted)
    rules = Rules(now_ms, scanner.last_offset + 1, now_ms + 100, 0, transactions, np.empty((3, 0), np.int64))
    rewriter = Rewriter(rules, kept)
    found = []
    for piece in cut(segments, borders):
        done = rewriter.rewrite(piece)
        tables = [table[WRITTEN].tolist() for table in done.tables]
        found.append((b"".join(part.tobytes() for part in done.data), tables, done.counts.tolist(), done.bytes_read))
    return found


def assert_same(builder, borders=(), aborted=NONE_ABORTED, first_offset=0):
    """Straight from the file comes what the walk gives."""
    log = builder.write()
    near, far = kseg.open_log(log).segments, kseg.open_log(log, drop_page_cache=True).segments
    found = scan_all(near, borders, aborted, first_offset)
    assert found == scan_all(far, borders, aborted, first_offset)
    left = rewrite_all(near, borders, aborted, first_offset)
    assert left == rewrite_all(far, borders, aborted, first_offset)
    return found, left


@pytest.fixture
def no_walk(monkeypatch):
    """Nothing may be left to the walk."""

    def walk_nothing(*args, **options):
        for _ in pieces.walk_piece(*args, **options):
            pytest.fail("left to the walk")
            yield

    monkeypatch.setattr(scan, "walk_piece", walk_nothing)
    monkeypatch.setattr(rewrite, "walk_piece", walk_nothing)


def large(offset):
    return b"%d" % (offset % 5), b"%d" % offset * 900, ()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_nothing_of_a_usual_log_is_left_to_the_walk(codec, tmp_path, no_walk, monkeypatch):
    builder = LogBuilder(tmp_path).batch(7, codec).append_time(3, codec).empty(2).skip(4).batch(30, codec)
    builder.transaction(3, producer_id=4, codec=codec).control("abort", producer_id=4).tombstone(b"key")
    builder.legacy(3, magic=1, codec=codec if codec != "zstd" else "none").batch(2, codec)
    near = kseg.open_log(builder.write()).segments
    found, left = scan_all(near, [], NONE_ABORTED), rewrite_all(near, [], NONE_ABORTED)
    monkeypatch.undo()
    assert (found, left) == assert_same(builder)
    assert len(found[0][0]) > 40
    assert left[0][0]


def test_batches_lie_across_the_ends_of_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(decode, "BUFFER_BYTES", 16 << 10)
    builder = LogBuilder(tmp_path)
    for i in range(14):
        builder.batch(builder.make(3, content=large), "lz4" if i % 4 == 3 else "none")
    assert_same(builder, [5, 20])


def test_a_batch_that_no_step_can_hold_is_left_to_the_walk(tmp_path, monkeypatch):
    monkeypatch.setattr(decode, "BUFFER_BYTES", 8 << 10)
    monkeypatch.setattr(decode, "ARENA_BYTES", 8 << 10)
    builder = LogBuilder(tmp_path).batch(3)
    builder.batch(builder.make(2, content=lambda offset: (b"k", b"v" * 5000, ()))).batch(4)
    builder.batch(builder.make(2, content=lambda offset: (b"z", b"v" * 5000, ())), "zstd").batch(4)
    (found,), _ = assert_same(builder)
    assert found[2:] == (builder.next_offset - 1, True)


def test_entries_are_put_where_there_is_no_room_for_more(tmp_path, monkeypatch):
    monkeypatch.setattr(key_reader, "ROOM_ENTRIES", 10)
    monkeypatch.setattr(scan, "ROOM_ENTRIES", 10)
    builder = LogBuilder(tmp_path).batch(7).batch(4, "lz4").batch(12).batch(9).batch(1).transaction(3, producer_id=4)
    assert_same(builder.control("commit", producer_id=4).batch(2))


def test_what_is_written_is_handed_over_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(rewrite, "OUT_BYTES", 300)
    builder = LogBuilder(tmp_path)
    for i in range(20):
        builder.batch(2 + i % 3, ["none", "snappy", "gzip"][i % 3])
    assert_same(builder, [7])


@pytest.mark.parametrize("repair", [False, True], ids=["checksum", "records"])
def test_damage_is_told_as_the_walk_tells_it(repair, tmp_path):
    builder = LogBuilder(tmp_path).batch(4).transaction(3, producer_id=9).batch(3).corrupt(61, repair=repair).batch(2)
    (found,), _ = assert_same(builder)
    assert found[0] is None
    assert f"byte {sum(len(entry.data) for entry in builder.batches[:2])}, offset 7" in found[1][1]


def test_a_torn_tail_is_told_as_the_walk_tells_it(tmp_path):
    builder = LogBuilder(tmp_path).batch(4).segment().batch(3)
    builder.segments[0].tail = builder.batches[0].data[:30]
    (first, second), _ = assert_same(builder)
    assert first[0] is None
    assert len(second[0]) == 3


@st.composite
def built_logs(draw):
    """Steps of a builder."""
    codec = st.sampled_from(["none", "none", "lz4", "zstd", "snappy", "gzip"])
    made = []
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["batch", "batch", "large", "append_time", "txn", "legacy", "empty", "tombstone"]))
        made.append((kind, draw(st.integers(1, 6)), draw(codec), draw(st.integers(0, 2))))
    return made


def build(root, steps):
    builder, aborted = LogBuilder(root), []
    for number, (kind, count, codec, hole) in enumerate(steps):
        builder.skip(hole)
        first = builder.next_offset
        if kind == "batch":
            builder.batch(count, codec)
        elif kind == "large":
            builder.batch(builder.make(count, content=large), codec)
        elif kind == "append_time":
            builder.append_time(count, codec)
        elif kind == "legacy":
            builder.legacy(count, magic=number % 2, codec="gzip" if codec == "zstd" else codec)
        elif kind == "empty":
            builder.empty(count)
        elif kind == "tombstone":
            builder.tombstone(b"%d" % count)
        else:
            builder.transaction(count, producer_id=number, codec=codec)
            builder.control("abort" if count % 2 else "commit", producer_id=number)
            if count % 2:
                aborted.append(AbortedTxn(number, first, builder.next_offset - 1, first))
    return builder, AbortedRanges.of(aborted)


@settings(max_examples=counts(60))
@given(
    built_logs(),
    st.lists(st.integers(1, 40), max_size=2, unique=True),
    st.integers(0, 12),
    st.sampled_from([2 << 10, 16 << 10, 2 << 20]),
    st.sampled_from([1, 2, 5, 100]),
)
def test_straight_from_a_file_comes_what_the_walk_gives(steps, borders, first_offset, buffer_bytes, table_rows):
    with (
        tempfile.TemporaryDirectory() as root,
        mock.patch.object(decode, "BUFFER_BYTES", buffer_bytes),
        mock.patch.object(decode, "TABLE_ROWS", table_rows),
    ):
        builder, aborted = build(Path(root), steps)
        assert_same(builder, sorted(borders), aborted, first_offset)
