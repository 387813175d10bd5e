"""Producer state rebuilt from batches."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kseg
from kseg.errors import LogError
from kseg.index.epoch import LeaderEpochs
from kseg.index.producer import parse_snapshot
from kseg.index.txn import TxnIndex
from kseg.log.producers import OpenTransaction, ProducerState
from kseg.native import table as columns
from kseg.native.table import CONTROL_BIT, TRANSACTIONAL_BIT
from tests.index.twins import ProducerTwin, make_table, table_of
from tests.scale import counts

DATA, TXN, MARKER = 0, TRANSACTIONAL_BIT, TRANSACTIONAL_BIT | CONTROL_BIT


@st.composite
def logs(draw):
    """Batches of a few producers with markers, holes, epoch bumps and wrapping sequences, in offset order."""
    offset, rows = 0, []
    for _ in range(draw(st.integers(0, 60))):
        kind = draw(st.sampled_from([DATA, TXN, TXN, TXN, MARKER, MARKER]))
        delta = 0 if kind == MARKER else draw(st.integers(0, 9))
        rows.append(
            {
                "base_offset": offset,
                "last_offset": offset + delta,
                "attributes": kind,
                "producer_id": draw(st.sampled_from([-1, 1, 2, 3, 7, 2**40])),
                "producer_epoch": draw(st.sampled_from([0, 0, 0, 1])),
                "base_sequence": -1 if kind == MARKER else draw(st.sampled_from([0, 5, 2**31 - 3, -7, -(2**31)])),
                "max_timestamp": draw(st.integers(-1, 100)),
                "marker_type": draw(st.sampled_from([0, 1, 0, 1, -1, 5])) if kind == MARKER else -1,
                "marker_timestamp": draw(st.integers(-1, 100)) if kind == MARKER else -1,
                "coordinator_epoch": draw(st.integers(0, 3)) if kind == MARKER else -1,
            }
        )
        offset += delta + 1 + draw(st.sampled_from([0, 0, 0, 4]))
    return rows


@given(logs(), st.data())
def test_state_equals_the_twin_however_the_rows_come(rows, data):
    table = make_table(rows)
    state, twin = ProducerState(), ProducerTwin()
    at = 0
    while at < len(rows):
        count = data.draw(st.integers(1, len(rows) - at))
        state.add(table, count, first_row=at, strict=False)
        at += count
        if data.draw(st.booleans()):  # through a snapshot nothing of the state is lost
            again = ProducerState.from_snapshot(state.to_snapshot_bytes(), state.end_offset)
            assert again.entries() == state.entries()
            assert again.open_transactions() == state.open_transactions()
    for row in range(len(rows)):
        twin.add(table, row)
    assert state.entries() == twin.entries()
    assert state.aborted == twin.aborted
    assert state.end_offset == (rows[-1]["last_offset"] + 1 if rows else 0)
    firsts = sorted((e.txn_first_offset, e.producer_id) for e in twin.entries() if e.txn_first_offset >= 0)
    assert [(t.first_offset, t.producer_id) for t in state.open_transactions()] == firsts
    for mark in {0, 5, 50, state.end_offset}:
        assert state.first_unstable_offset(mark) == twin.first_unstable(mark)
    mark = data.draw(st.integers(0, state.end_offset))
    expected = [twin.first_unstable(later) for later in range(mark, state.end_offset + 1)]
    state.forget_completed(mark)
    assert [state.first_unstable_offset(later) for later in range(mark, state.end_offset + 1)] == expected


def test_expiry_spares_open_transactions():
    batch = {"producer_epoch": 0, "base_sequence": 0, "max_timestamp": 1000}
    rows = [
        {"base_offset": 0, "last_offset": 0, "producer_id": 1, "attributes": DATA, **batch},
        {"base_offset": 1, "last_offset": 1, "producer_id": 2, "attributes": TXN, **batch},
        {"base_offset": 2, "last_offset": 2, "producer_id": 3, "attributes": DATA, **batch, "max_timestamp": 1001},
    ]
    state = ProducerState()
    state.add(make_table(rows), 3)
    state.expire(1500, 500)
    assert [entry.producer_id for entry in state.entries()] == [2, 3]
    assert state.open_transactions() == [OpenTransaction(1, 2, 0, 1000)]
    state.expire(1501, 500)
    assert [entry.producer_id for entry in state.entries()] == [2]


def test_a_write_outside_of_the_open_transaction_is_told():
    batch = {"producer_epoch": 0, "base_sequence": 0, "producer_id": 9}
    rows = [
        {"base_offset": 0, "last_offset": 0, "attributes": TXN, **batch},
        {"base_offset": 1, "last_offset": 4, "attributes": DATA, **batch},
    ]
    state = ProducerState()
    with pytest.raises(LogError, match="offset 1: producer 9 wrote outside of its open transaction"):
        state.add(make_table(rows), 2)
    assert state.end_offset == 5


@pytest.mark.parametrize(
    ("first", "delta", "expected"),
    [(0, 0, 0), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 9, 6), (-7, 3, -4), (5, -1, -(2**31) + 4)],
)
def test_the_last_sequence_is_that_of_kafkas_increment(first, delta, expected):
    batch = {"attributes": DATA, "producer_id": 3, "producer_epoch": 0, "base_sequence": first}
    state = ProducerState()
    state.add(make_table([batch | {"base_offset": 10, "last_offset": 10 + delta}]), 1)
    assert state.entries()[0].last_sequence == expected


def test_many_open_transactions_take_no_time():
    """Each marker asks for the earliest other open transaction; a search from the start would be quadratic."""
    count = counts(100_000)
    rows = make_table([{}] * (2 * count))
    for half, (kind, marker) in enumerate([(TXN, -1), (MARKER, 0)]):
        part = slice(half * count, (half + 1) * count)
        rows[columns.PRODUCER_ID, part] = range(count)
        rows[columns.PRODUCER_EPOCH, part] = 0
        rows[columns.ATTRIBUTES, part] = kind
        rows[columns.MARKER_TYPE, part] = marker
        rows[columns.BASE_OFFSET, part] = range(half * count, (half + 1) * count)
    rows[columns.LAST_OFFSET] = rows[columns.BASE_OFFSET]
    state = ProducerState()
    state.add(rows, 2 * count)
    aborted = state.aborted
    assert len(aborted) == count
    assert aborted[0].last_stable_offset == 1
    assert aborted[-1].last_stable_offset == 2 * count


def test_golden_logs_rebuild_to_the_brokers_own_snapshots(golden):
    compared = 0
    for directory in sorted((golden / "before").glob("*-*")):
        final = sorted(directory.glob("*.snapshot"))
        logs = sorted(directory.glob("*.log"))
        if not final or not logs or int(logs[0].stem) > 0 or directory.name.startswith("__"):
            continue
        state = ProducerState()
        for path in logs:
            snapshot = path.with_suffix(".snapshot")
            if snapshot.exists():
                assert set(parse_snapshot(snapshot.read_bytes())) == set(state.entries())
            table, rows = table_of(path)
            state.add(table, rows)
            index = path.with_suffix(".txnindex")
            expected = list(TxnIndex.parse(index.read_bytes())) if index.exists() else []
            assert list(state.take_aborted()) == expected
        assert state.end_offset == int(final[-1].stem)
        assert set(parse_snapshot(final[-1].read_bytes())) == set(state.entries())
        again = ProducerState.from_snapshot(final[-1].read_bytes(), state.end_offset)
        assert again.entries() == state.entries()
        compared += 1
    assert compared > 10


@pytest.mark.parametrize("seed", range(counts(6)))
def test_rebuilt_state_equals_kafkas_own_recovery(oracle, tmp_path, seed):
    directory = tmp_path / "t-0"
    oracle.gen(directory, 300 + seed, 300, txn=0.7, life=10 if seed % 2 else 40, legacy=0.2 if seed % 6 == 5 else 0)
    copy = tmp_path / "copy" / "t-0"
    shutil.copytree(directory, copy)
    for sidecar in [*copy.glob("*index"), *copy.glob("*.snapshot"), *copy.glob("leader-epoch*")]:
        sidecar.unlink()
    loaded = oracle.load(copy)
    state, epochs = ProducerState(), LeaderEpochs()
    for path in sorted(copy.glob("*.log")):
        table, rows = table_of(path)
        state.add(table, rows)
        epochs = epochs.assign_batches(table, rows)
        index = path.with_suffix(".txnindex")
        assert state.take_aborted().to_bytes() == (index.read_bytes() if index.exists() else b"")
    assert state.end_offset == loaded["logEnd"]
    unstable = state.first_unstable_offset(state.end_offset)
    assert loaded["lastStable"] == (state.end_offset if unstable is None else unstable)
    snapshot = copy / f"{state.end_offset:020d}.snapshot"
    assert set(parse_snapshot(snapshot.read_bytes())) == set(state.entries())
    assert [list(entry) for entry in epochs.entries] == loaded["epochs"]


@given(logs())
def test_one_producer_is_found_as_in_the_list_and_a_copy_of_some_goes_on_alike(rows):
    half = len(rows) // 2
    table = make_table(rows)
    whole = ProducerState()
    whole.add(table, half, strict=False)
    listed = {entry.producer_id: entry for entry in whole.entries()}
    for producer_id in (-1, 0, 1, 2, 3, 7, 8, 2**40, 2**62):
        assert whole.find(producer_id) == listed.get(producer_id)
    later = table[columns.PRODUCER_ID, half : len(rows)]
    some = whole.only(later)
    assert some.entries() == [entry for entry in whole.entries() if entry.producer_id in later]
    outcomes = []
    for state in (some, whole):
        try:
            state.add(table, len(rows) - half, first_row=half)
            outcomes.append(None)
        except LogError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]
    assert some.entries() == [entry for entry in whole.entries() if entry.producer_id in later]


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data[:5], lambda data: b"", lambda data: data[:-9] + bytes(9)]
)
def test_a_torn_snapshot_is_passed_over(golden, tmp_path, damage):
    path = shutil.copytree(golden / "before" / "tx-0", tmp_path / "tx-0")
    whole = kseg.open_log(path)
    expected = whole.producers(), whole.last_stable_offset, whole.aborted_transactions(0, 434)
    newest = path / f"{434:020d}.snapshot"
    newest.write_bytes(damage(newest.read_bytes()))
    log = kseg.open_log(path)
    assert (log.producers(), log.last_stable_offset, log.aborted_transactions(0, 434)) == expected


@pytest.mark.parametrize("snapshots", [True, False])
def test_a_log_that_starts_at_its_end_knows_no_producers(oracle, tmp_path, snapshots):
    """The snapshot at the log end was believed; a broker that starts deletes those up to the log start."""
    directory = tmp_path / "data" / "t-0"
    end = oracle.gen(directory, 900, 80, txn=0.6)["logEnd"]
    if not snapshots:
        for path in directory.glob("*.snapshot"):
            path.unlink()
    (tmp_path / "data" / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {end}\n")
    copy = shutil.copytree(directory, tmp_path / "copy" / "t-0")
    loaded = oracle.load(copy, logStart=end, recoveryPoint=end, clean="true")
    log = kseg.open_log(directory)
    assert log.producers() == loaded["producers"] == []
    assert log.last_stable_offset == loaded["lastStable"] == end
    with kseg.append_to(directory) as writer:
        writer.append(pa.table({"value": [b"v"]}), producer_id=1, base_sequence=77)
    assert [entry.producer_id for entry in kseg.open_log(directory).producers()] == [1]
