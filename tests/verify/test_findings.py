"""Damage of every kind, done to small logs: the code that each gets."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import kseg
from kseg.index.producer import format_columns, format_snapshot, parse_columns, parse_snapshot
from kseg.index.txn import AbortedTxn, TxnIndex
from kseg.verification.kinds import KINDS
from tests.builders import LogBuilder
from tests.reference import batch as v2
from tests.verify.copies import TIME, batch_places, codes, found, rows, small_log

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return small_log(tmp_path)


def files(path: Path, suffix: str) -> list[Path]:
    return sorted(path.glob(f"*{suffix}"))


def all_codes(path: Path, **options: object) -> set[str]:
    return codes(path, None, **options)


def test_every_kind_is_listed_in_the_docs():
    text = (DOCS / "verify.md").read_text()
    for code, kind in KINDS.items():
        assert f"| `{code}` | {kind.severity.value} | {kind.meaning} | {kind.advice} |" in text
    assert text.count("| `KS") == len(KINDS)


# -- batches


def test_a_cut_batch_in_a_sealed_segment(log):
    file = files(log, ".log")[1]
    file.write_bytes(file.read_bytes()[:-5])
    assert "KS103" in codes(log)


def test_rubbish_in_the_middle_is_passed_over_and_the_rest_is_looked_at(log):
    file = files(log, ".log")[1]
    data = bytearray(file.read_bytes())
    (first, size), (second, _), *_ = batch_places(file)
    data[first : first + size] = b"\xff" * size
    data[-1] ^= 1
    file.write_bytes(data)
    assert {"KS101", "KS102"} <= codes(log)
    report = kseg.verify(log)
    assert any(finding.position == first and f"byte {second}" in finding.detail for finding in report.findings)


def test_zeros_behind_the_end_are_no_damage_unless_the_log_was_closed(log):
    file = files(log, ".log")[-1]
    file.write_bytes(file.read_bytes() + bytes(500))
    assert codes(log) == set()
    assert "KS104" in all_codes(log)
    (log.parent / ".kafka_cleanshutdown").touch()
    assert codes(log) == {"KS103"}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"count": 7}, "KS107"),
        ({"count": -1}, "KS107"),
        ({"last_offset_delta": 0}, "KS107"),
        ({"flags": 0x10}, "KS112"),
        ({"producer_id": 5, "producer_epoch": 0, "base_sequence": -1}, "KS112"),
        ({"base_timestamp": TIME + 10**9}, "KS109"),
        ({"leader_epoch": -5}, "KS110"),
    ],
    ids=str,
)
def test_headers_that_contradict_themselves(tmp_path, fields, code):
    builder = LogBuilder(tmp_path).batch(3)
    entry = builder.batches[-1]
    data = bytearray(entry.data)
    places = {
        "count": (57, 4), "last_offset_delta": (23, 4), "flags": (21, 2), "producer_id": (43, 8),
        "producer_epoch": (51, 2), "base_sequence": (53, 4), "base_timestamp": (27, 8), "leader_epoch": (12, 4),
    }  # fmt: skip
    for name, value in fields.items():
        at, size = places[name]
        data[at : at + size] = value.to_bytes(size, "big", signed=True)
    entry.data = v2.repair(bytes(data))
    assert code in all_codes(builder.write())


def test_an_unknown_codec(tmp_path):
    builder = LogBuilder(tmp_path).batch(2).corrupt(22, xor=7, repair=True)
    assert codes(builder.write()) == {"KS108"}


def test_a_control_batch_without_a_type(tmp_path):
    builder = LogBuilder(tmp_path).control("abort", producer_id=3)
    entry = builder.batches[-1]
    at = entry.data.index(b"\x00\x00\x00\x00", 61)
    entry.data = v2.repair(entry.data[:at] + b"\xff\xff" + entry.data[at + 2 :])
    assert "KS111" in codes(builder.write())


def test_a_batch_above_the_limit_is_told_and_passed_over(tmp_path):
    path = tmp_path / "large-0"
    with kseg.create_log(path, clock=lambda: TIME / 1000) as writer:
        writer.append(rows(0, 3))
        writer.append(pa.table({"value": [b"x" * 3_000_000], "timestamp": [TIME]}), batch_bytes=4_000_000)
        writer.append(rows(4, 3))
    assert found(path) == []
    report = kseg.verify(path, max_batch_bytes=2_000_000)
    assert [finding.code for finding in report.of("warning")] == ["KS114"]
    assert report.batches == 2


def test_deep_finds_what_a_checksum_does_not(tmp_path):
    builder = LogBuilder(tmp_path).batch(3, "gzip").corrupt(75, repair=True).batch(3)
    path = builder.write()
    assert codes(path) == set()
    assert codes(path, deep=True) == {"KS121"}


def test_deep_finds_offsets_and_timestamps_of_records(tmp_path):
    builder = LogBuilder(tmp_path).batch(4)
    entry = builder.batches[-1]
    read = v2.read_batch(entry.data)
    assert read.max_timestamp
    changed = bytearray(entry.data)
    changed[35:43] = (read.max_timestamp + 1).to_bytes(8, "big")
    entry.data = v2.repair(bytes(changed))
    path = builder.write()
    assert all_codes(path) == all_codes(path, deep=True) - {"KS123"}
    assert "KS123" in all_codes(path, deep=True)
    second = bytearray(entry.data)
    length = second[61] >> 1
    second[62 + length + 3] = 0  # the second record's offset delta, where the timestamp's takes one byte
    entry.data = v2.repair(bytes(second))
    assert "KS122" in codes(builder.write(), deep=True)


# -- segments and epochs


def test_overlapping_segments(log):
    for file in files(log, ""):
        if file.name.startswith(f"{4:020d}"):
            file.rename(file.with_name(file.name.replace(f"{4:020d}", f"{3:020d}")))
    assert "KS301" in codes(log)


def test_leader_epochs_and_their_checkpoint(log):
    checkpoint = log / "leader-epoch-checkpoint"
    assert checkpoint.read_text().split() == ["0", "2", "0", "0", "3", "4"]
    checkpoint.write_text("0\n2\n0 0\n3 5\n")
    assert codes(log) == {"KS502"}
    checkpoint.write_text("0\n3\n0 0\n3 4\n7 99\n")
    assert codes(log) == set()
    assert "KS504" in all_codes(log)
    checkpoint.write_text("0\n1\nrubbish\n")
    assert codes(log) == {"KS503"}
    checkpoint.unlink()
    assert found(log) == []
    assert "KS505" in all_codes(log)


# -- transactions and producers


def test_a_transaction_index_that_misleads(log):
    (index,) = files(log, ".txnindex")
    (txn,) = TxnIndex.parse(index.read_bytes())
    assert txn == AbortedTxn(9, 5, 7, 8)
    for wrong, code in (
        (AbortedTxn(9, 6, 7, 8), "KS214"),
        (AbortedTxn(9, 4, 7, 8), "KS214"),
        (AbortedTxn(9, 5, 7, 9), "KS214"),
        (AbortedTxn(8, 5, 7, 8), "KS212"),
        (AbortedTxn(9, 5, 6, 8), "KS212"),
    ):
        index.write_bytes(TxnIndex.of([wrong]).to_bytes())
        assert code in codes(log), wrong
    index.write_bytes(b"")
    assert codes(log) == {"KS213"}
    index.unlink()
    assert codes(log) == {"KS213"}
    index.write_bytes(b"\0" * 33)
    assert "KS211" in codes(log)


def test_an_abort_that_reaches_over_segments(tmp_path):
    path = tmp_path / "long-0"
    with kseg.create_log(path, clock=lambda: TIME / 1000) as writer:
        writer.append(rows(0, 2), producer_id=4, transactional=True)
        writer.roll()
        writer.append(rows(2, 2))
        writer.roll()
        writer.append_marker(4, commit=False, timestamp_ms=TIME)
    assert found(path) == []
    (index,) = files(path, ".txnindex")
    index.unlink()
    assert codes(path) == {"KS213"}
    index.write_bytes(TxnIndex.of([AbortedTxn(4, 1, 4, 5)]).to_bytes())
    assert codes(path) == {"KS214"}


def test_snapshots_that_contradict_the_log(log):
    snapshot = log / f"{9:020d}.snapshot"
    data = snapshot.read_bytes()
    entries = parse_snapshot(data)
    assert [entry.producer_id for entry in entries] == [7, 9]
    for column, value in ((1, 5), (2, 77), (3, 3), (3, 7), (3, 50), (4, 3), (7, 4)):
        columns = parse_columns(data)
        columns[column, 0] = value
        snapshot.write_bytes(format_columns(columns))
        assert "KS402" in codes(log), f"field {column} is {value}"
    snapshot.write_bytes(format_snapshot(entries[1:]))
    assert found(log) == [], "a producer that has expired is not in it"
    snapshot.write_bytes(data[:-1])
    assert [line[:5] for line in found(log)] == ["KS401"]
    snapshot.unlink()
    assert found(log) == []
    assert "KS403" in all_codes(log)
    for other in files(log, ".snapshot"):
        other.unlink()
    assert [line[:5] for line in found(log)] == ["KS404"]


def test_a_snapshot_that_forgets_an_open_transaction(tmp_path):
    path = tmp_path / "open-0"
    with kseg.create_log(path, clock=lambda: TIME / 1000) as writer:
        writer.append(rows(0, 2), producer_id=4, transactional=True)
        writer.roll()
        writer.append(rows(2, 2))
    assert all_codes(path) == {"KS410"}
    (path / f"{2:020d}.snapshot").write_bytes(format_snapshot([]))
    assert codes(path) == {"KS402"}


@pytest.mark.parametrize("epochs", [(-5,), (-5, -5), (-1,), (3, -5), (-5, 3), (-2, -1)])
def test_a_snapshot_of_a_negative_epoch_does_not_contradict_the_log(oracle, tmp_path, epochs):
    builder = LogBuilder(tmp_path)
    for sequence, epoch in enumerate(epochs):
        builder.batch(1, producer_id=9, producer_epoch=epoch, base_sequence=sequence).segment()
    path = builder.batch(1).write()
    oracle.load(path)  # writes the snapshots
    assert [parse_snapshot(file.read_bytes())[0].epoch for file in files(path, ".snapshot")][-1] == epochs[-1]
    assert "KS402" not in codes(path)


def test_a_transaction_hangs_where_its_coordinator_does_not_know_it(golden, tmp_path):
    for name in ("__transaction_state-0", "__transaction_state-1", "__cluster_metadata-0"):
        shutil.copytree(golden / "before" / name, tmp_path / name)
    with kseg.create_log(tmp_path / "open-0", clock=lambda: TIME / 1000) as writer:
        writer.append(rows(0, 2), producer_id=4444, transactional=True)
    assert [line[:5] for line in found(tmp_path, topics=["open"])] == ["KS409"]
    assert found(tmp_path / "open-0") == [], "alone, nothing says so"


def test_a_stray_snapshot(log):
    shutil.copy(log / f"{9:020d}.snapshot", log / f"{6:020d}.snapshot")
    assert "KS405" in all_codes(log)


def test_sequences(tmp_path):
    def built(*sequences: tuple[int, int], roll: bool = False) -> Path:
        builder = LogBuilder(tmp_path / f"{len(list(tmp_path.iterdir()))}")
        for i, (epoch, sequence) in enumerate(sequences):
            builder.batch(2, producer_id=5, producer_epoch=epoch, base_sequence=sequence)
            if roll and i == 0:
                builder.segment()
        return builder.write()

    for roll in (False, True):
        same = {"KS204", "KS505"} | ({"KS404"} if roll else set())
        assert all_codes(built((0, 0), (0, 2), (0, 4), roll=roll)) == same
        assert all_codes(built((0, 2**31 - 2), (0, 0), roll=roll)) == same, "sequences wrap"
        assert all_codes(built((0, 0), (1, 0), (1, 2), roll=roll)) == same
        assert all_codes(built((0, 0), (0, 5), roll=roll)) == same | {"KS406"}
        assert all_codes(built((0, 0), (0, 0), roll=roll)) == same | {"KS407"}
        assert all_codes(built((1, 0), (0, 2), roll=roll)) == same | {"KS411"}


def test_data_outside_of_an_open_transaction(tmp_path):
    for roll in (False, True):
        builder = LogBuilder(tmp_path / str(roll)).transaction(2, producer_id=5)
        if roll:
            builder.segment()
        builder.batch(2, producer_id=5, producer_epoch=0, base_sequence=2)
        assert codes(builder.write()) == {"KS408"}


def test_many_findings_of_a_kind_are_counted_not_listed(tmp_path):
    builder = LogBuilder(tmp_path)
    for _ in range(100):
        builder.batch(1).corrupt(-1)
    report = kseg.verify(builder.write())
    damage = report.of("damage")
    assert len(damage) == 20
    assert damage[-1].others == 80
    assert report.counts()["damage"] == 100


def test_a_hopeless_segment_is_given_up(tmp_path):
    builder = LogBuilder(tmp_path)
    for _ in range(210):
        builder.batch(1).raw(b"\xff" * 70)
    assert {"KS101", "KS113"} <= codes(builder.batch(1).write())


def test_options(tmp_path, log):
    with pytest.raises(kseg.OptionError, match="no partitions"):
        kseg.verify(Path(__file__).parent)
    with pytest.raises(kseg.OptionError, match="no partition of other"):
        kseg.verify(tmp_path, topics=["other"])
    with pytest.raises(kseg.OptionError, match="max_batch_bytes"):
        kseg.verify(tmp_path, max_batch_bytes=0)
    assert kseg.verify(tmp_path, topics=["small"]).partitions == 1


def test_nothing_is_changed(log, tmp_path):
    def state() -> dict[str, tuple[bytes, int]]:
        return {str(f): (f.read_bytes(), f.stat().st_mtime_ns) for f in tmp_path.rglob("*") if f.is_file()}

    before = state()
    kseg.verify(tmp_path, deep=True, against=tmp_path)
    assert state() == before


def test_the_report(log, tmp_path):
    file = files(log, ".log")[1]
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    report = kseg.verify(tmp_path)
    assert not report.is_sound
    text = str(report)
    assert "KS102" in text
    assert "1 damaged" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    plain = report.to_dict()
    assert plain["findings"][0]["code"] == "KS102"
    assert plain["findings"][0]["severity"] == "damage"
    assert plain["damage"] == 1
