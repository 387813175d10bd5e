"""Random logs, read by kseg and by Kafka's own classes."""

from __future__ import annotations

import base64
import os
import random
import shutil

import pytest

import kseg
from kseg.index.build import IndexBuilder
from kseg.index.offset import OffsetIndex
from kseg.index.time import TimeIndex
from tests.log.rows import plain_rows
from tests.scale import counts

SETTINGS = [
    {},
    {"codec": "none", "rec": 3},
    {"lat": 1, "codec": "zstd"},
    {"legacy": 0.5},
    {"txn": 0.9, "roll": 0.2, "life": 5},
    {"gap": 0.5, "rec": 40, "codec": "lz4"},
]
SEEDS = range(1000, 1000 + counts(36))
KINDS = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


def _generated(oracle, tmp_path, seed, options):
    directory = tmp_path / "random-0"
    state = oracle.gen(directory, seed, 150, **options)
    return directory, state


def _bytes(text):
    return None if text is None else base64.b64decode(text)


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_state_and_transactions_equal_kafkas(oracle, tmp_path, seed):
    directory, state = _generated(oracle, tmp_path, seed, SETTINGS[seed % len(SETTINGS)])
    log = kseg.open_log(directory)
    assert (log.start_offset, log.end_offset, log.last_stable_offset) == (
        state["logStart"],
        state["logEnd"],
        state["lastStable"],
    )
    assert [[segment.base_offset, segment.size] for segment in log.segments] == state["segments"]
    assert [[epoch, start] for epoch, start in log.leader_epochs()] == state["epochs"]
    expected = [
        (record[0], record[1], KINDS[batch["tsType"]], _bytes(record[2]), _bytes(record[3]),
         [(name, _bytes(value)) for name, value in record[4]])
        for batch in oracle.dump(directory)
        for record in batch["records"]
        if not batch["control"]
    ]  # fmt: skip
    assert plain_rows(log.read()) == expected


@pytest.mark.parametrize("options", [{}, {"legacy": 0.3}, {"lat": 1}], ids=str)
@pytest.mark.parametrize("seed", range(100, 100 + counts(3)))
def test_offsets_for_times_equal_kafkas(oracle, tmp_path, seed, options):
    directory, _ = _generated(oracle, tmp_path, seed, {"roll": 0.1, **options})
    log = kseg.open_log(directory)
    stamps = sorted({row[1] for row in plain_rows(log.read())})
    low, high = max(stamps[0], 0), stamps[-1]
    rng = random.Random(seed)
    targets = [0, low, high, high + 1, *(rng.randint(low - 5, high + 5) for _ in range(80)), *rng.sample(stamps, 20)]
    targets = [max(target, 0) for target in targets]
    copy = shutil.copytree(directory, tmp_path / "copy-0")
    answers = oracle.times(copy, targets)
    for target, answer in zip(targets, answers, strict=True):
        found = log.offset_for_time(target)
        assert (found and tuple(found)) == (answer and tuple(answer)), target


@pytest.mark.parametrize("folder", ["before", "unclean", "cleaned", "expired", "legacy"])
def test_offsets_for_times_of_golden_partitions_equal_kafkas(oracle, golden, tmp_path, folder):
    asked = 0
    for path in sorted((golden / folder).glob("*-[0-9]")):
        if path.name.startswith("__cluster_metadata"):
            continue
        log = kseg.open_log(path)
        stamps = sorted({row[1] for row in plain_rows(log.read(read_past_high_watermark=True)) if row[1] >= 0})
        if not stamps:
            continue
        chosen = random.Random(path.name).sample(stamps, min(len(stamps), 60))
        targets = [0, stamps[-1] + 1, *chosen, *(stamp + 1 for stamp in chosen)]
        answers = oracle.times(shutil.copytree(path, tmp_path / path.name), targets)
        assert [log.offset_for_time(target) for target in targets] == [answer and tuple(answer) for answer in answers]
        asked += len(targets)
    assert asked >= 200


@pytest.mark.parametrize("seed", range(150, 150 + counts(3)))
def test_a_time_index_that_was_cut_off_leads_where_it_leads_kafka(oracle, tmp_path, seed):
    directory, state = _generated(oracle, tmp_path, seed, {"roll": 0.1})
    for path in sorted(directory.glob("*.timeindex"))[:-1]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 24 * 12 or 12])
    log = kseg.open_log(directory)
    stamps = sorted({row[1] for row in plain_rows(log.read())})
    copy = shutil.copytree(directory, tmp_path / "copy-0")
    answers = oracle.times(copy, stamps[::5], clean=True, recoveryPoint=state["logEnd"])
    assert [log.offset_for_time(stamp) for stamp in stamps[::5]] == [answer and tuple(answer) for answer in answers]


@pytest.mark.parametrize("seed", range(2000, 2000 + counts(36)))
def test_rebuilt_indexes_answer_every_lookup_as_kafkas_do(oracle, tmp_path, seed):
    directory, _ = _generated(oracle, tmp_path, seed, {"roll": 0.02, **SETTINGS[seed % len(SETTINGS)]})
    for sidecar in [*directory.glob("*.index"), *directory.glob("*.timeindex")]:
        sidecar.unlink()
    rebuilt = {segment.base_offset: _rebuild(segment) for segment in kseg.open_log(directory).segments}
    oracle.load(directory)
    for segment in kseg.open_log(directory).segments:
        offsets, times = rebuilt[segment.base_offset]
        theirs = OffsetIndex.parse((directory / f"{segment.base_offset:020d}.index").read_bytes(), segment.base_offset)
        their_times = TimeIndex.parse(
            (directory / f"{segment.base_offset:020d}.timeindex").read_bytes(), segment.base_offset
        )
        for offset in range(segment.base_offset, segment.next_offset + 1):
            assert offsets.lookup(offset) == theirs.lookup(offset)
        for timestamp in {*times.timestamps.tolist(), *their_times.timestamps.tolist()}:
            for target in (timestamp - 1, timestamp, timestamp + 1):
                assert times.lookup(target) == their_times.lookup(target)


def _rebuild(segment):
    builder = IndexBuilder(segment.base_offset, 256)
    with segment.open() as file:
        for chunk in segment.walk(file):
            builder.add(chunk.table, chunk.rows)
    builder.finish()
    return builder.offset_index, builder.time_index


@pytest.mark.parametrize("seed", range(300, 300 + counts(4)))
def test_committed_rows_without_any_sidecar_equal_those_with_them(oracle, tmp_path, seed):
    directory, _ = _generated(oracle, tmp_path, seed, {"txn": 0.9, "roll": 0.2})
    log = kseg.open_log(directory)
    with_sidecars = plain_rows(log.read(isolation="read_committed"))
    bare = tmp_path / "bare-0"
    bare.mkdir()
    for path in directory.glob("*.log"):
        shutil.copy(path, bare)
    assert plain_rows(kseg.open_log(bare).read(isolation="read_committed")) == with_sidecars
    assert len(with_sidecars) < len(plain_rows(log.read()))


def _committed(batches, end):
    """Offsets that read_committed shows of batches up to `end`, and where it stops, by the markers alone."""
    undecided, hidden, unstable = {}, set(), [end]
    for batch in batches:
        if batch["control"]:
            first, offsets = undecided.pop(batch["pid"], (end, []))
            is_abort = _bytes(batch["records"][0][2])[2:] == bytes(2)
            hidden.update(offsets if is_abort else ())
            unstable.append(first if batch["last"] >= end else end)  # decided, but not for who cannot see the marker
        elif batch["txn"]:
            _, offsets = undecided.setdefault(batch["pid"], (batch["base"], []))
            offsets += [record[0] for record in batch["records"]]
    stable = min([*unstable, *(first for first, _ in undecided.values())])
    seen = [record[0] for batch in batches if not batch["control"] for record in batch["records"]]
    return [offset for offset in seen if offset < stable and offset not in hidden], stable


@pytest.mark.parametrize("seed", range(400, 400 + counts(8)))
def test_committed_rows_are_those_that_the_markers_tell(oracle, tmp_path, seed):
    rng = random.Random(seed)
    options = {"txn": rng.choice([0.5, 0.9, 1]), "roll": rng.choice([0, 0.05, 0.3]), "life": rng.choice([2, 8, 40])}
    directory, state = _generated(oracle, tmp_path, seed, {**options, "rec": rng.choice([1, 5])})
    batches = oracle.dump(directory)
    for sidecar in [*directory.glob("*.index"), *directory.glob("*.snapshot")]:
        if rng.random() < 0.3:
            sidecar.unlink()
    for end in (state["logEnd"], *(rng.choice(batches)["last"] + 1 for _ in range(4))):
        (tmp_path / "replication-offset-checkpoint").write_text(f"0\n1\nrandom 0 {end}\n")
        log = kseg.open_log(directory)
        expected, stable = _committed(batches, end)
        assert log.last_stable_offset == stable
        assert [row[0] for row in plain_rows(log.read(isolation="read_committed"))] == expected
        first = rng.randrange(end)
        some = plain_rows(log.read(first, first + 40, isolation="read_committed"))
        assert [row[0] for row in some] == [offset for offset in expected if first <= offset < first + 40]


def test_what_is_undecided_from_before_the_log_start_begins_with_the_batch_there(oracle, tmp_path):
    """The last stable offset of a log that starts inside a batch, in a hole or at a batch: not the log start itself."""
    source = tmp_path / "random-0"
    state = oracle.gen(source, 0, 40, roll=0.15, txn=0.9, gap=0.3)
    starts = random.Random(1).sample(range(state["lastStable"], state["logEnd"] + 1), counts(15))
    kinds = set()
    for start in sorted({*starts, state["lastStable"] + 1, state["logEnd"]}):
        place = tmp_path / str(start)
        directory = place / "ours" / source.name
        shutil.copytree(source, directory)
        (directory.parent / "log-start-offset-checkpoint").write_text(f"0\n1\nrandom 0 {start}\n")
        (directory.parent / ".kafka_cleanshutdown").write_bytes(b"")
        shutil.copytree(source, place / "kafkas" / source.name)
        loaded = oracle.load(place / "kafkas" / source.name, logStart=start, clean=True)
        log = kseg.open_log(directory)
        assert (log.start_offset, log.last_stable_offset) == (start, loaded["lastStable"])
        kinds.add((log.last_stable_offset > start) - (log.last_stable_offset < start))
        assert plain_rows(log.read(isolation="read_committed")) == []
    assert kinds == {-1, 0, 1}


@pytest.mark.parametrize("seed", range(500, 500 + counts(4)))
def test_aborts_whose_markers_a_crash_took_were_still_listed(oracle, tmp_path, seed):
    """The transaction index outlived the tail of the log; a broker that starts rebuilds it without them."""
    directory, _ = _generated(oracle, tmp_path, seed, {"txn": 0.9, "roll": 0, "life": 2, "rec": 2})
    log = kseg.open_log(directory)
    marker = log.aborted_transactions(0, log.end_offset)[-1].last_offset
    batch = next(log.batches(marker))
    os.truncate(directory / f"{0:020d}.log", batch.position + 40)
    log = kseg.open_log(directory)
    ours = log.end_offset, log.last_stable_offset, log.aborted_transactions(0, marker + 1)
    oracle.load(directory)
    log = kseg.open_log(directory)
    assert ours == (log.end_offset, log.last_stable_offset, log.aborted_transactions(0, marker + 1))
