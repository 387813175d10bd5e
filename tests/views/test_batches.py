"""The view of batches says what their headers say."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime

import pytest

import kseg
from kseg.errors import DataLossError, TruncatedError
from kseg.internal import control_records
from kseg.types import Codec
from kseg.views import batches
from tests.builders import LogBuilder
from tests.views.support import create, record_table, rows_of


def expected(log):
    """The rows by the objects of `Log.batches`, which the batches of `log` are compared with one by one."""
    rows = []
    bases = [segment.base_offset for segment in log.segments]
    for header in log.batches():
        kind = header.marker_type
        rows.append(
            {
                "topic": log.topic,
                "partition": log.partition,
                "segment": max(base for base in bases if base <= header.last_offset),
                "position": header.position,
                "size": header.size,
                "baseOffset": header.base_offset,
                "lastOffset": header.last_offset,
                "count": header.count,
                "magic": header.magic,
                "codec": header.codec.label,
                "leaderEpoch": header.leader_epoch,
                "producerId": header.producer_id,
                "producerEpoch": header.producer_epoch,
                "baseSequence": header.base_sequence,
                "timestampType": int(header.timestamp_type),
                "baseTimestamp": time_of(header.base_timestamp),
                "maxTimestamp": time_of(header.max_timestamp),
                "deleteHorizon": time_of(header.delete_horizon_ms),
                "isTransactional": header.is_transactional,
                "isControl": header.is_control,
                "markerType": None if kind is None else control_records.TYPES[kind][0],
                "crc": header.crc,
            }
        )
    return rows


def time_of(ms):
    if ms is None or ms < 0:
        return None
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)


@pytest.mark.parametrize("folder", ["before", "cleaned", "expired", "legacy"])
def test_rows_are_the_headers(golden, folder):
    logs = kseg.open_dir(golden / folder)
    rows = rows_of("batches", logs)
    assert rows == [row for log in logs for row in expected(log)]
    assert rows


def test_golden_has_each_kind_of_batch(golden):
    rows = [row for name in ("before", "cleaned", "legacy") for row in rows_of("batches", kseg.open_dir(golden / name))]
    assert {row["codec"] for row in rows} == {codec.label for codec in Codec}
    assert {"ABORT", "COMMIT", "LEADER_CHANGE", None} <= {row["markerType"] for row in rows}
    assert {row["magic"] for row in rows} == {0, 1, 2}
    assert any(row["deleteHorizon"] for row in rows)
    assert any(row["count"] is None for row in rows)


def test_a_unit_is_cut_at_segments(golden):
    logs = [kseg.open_log(golden / "before" / "multi-segment-0")]
    units = batches.plan(logs, unit_bytes=1)
    assert [len(unit.pieces) for unit in units] == [1] * len(logs[0].segments)
    assert sum(batch.num_rows for unit in units for batch in unit.read()) == len(expected(logs[0]))


def test_deleted_records_have_no_rows(tmp_path):
    with create(tmp_path, "orders-0") as writer:
        for i in range(4):
            writer.append(record_table("orders", [(b"k", b"%d" % i)]))
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 2\n", encoding="utf-8")
    assert [row["baseOffset"] for row in rows_of("batches", kseg.open_dir(tmp_path))] == [2, 3]


def test_an_unknown_codec_is_shown(tmp_path):
    # Byte 22 is the lower byte of the attributes.
    LogBuilder(tmp_path).segment().batch().corrupt(byte=22, xor=0x06, repair=True).write()
    assert [row["codec"] for row in rows_of("batches", kseg.open_dir(tmp_path))] == ["unknown-6"]


def test_times_that_do_not_fit_are_null(tmp_path):
    with create(tmp_path, "orders-0") as writer:
        table = record_table("orders", [(b"k", b"v")])
        writer.append(table.append_column("timestamp", [[2**62]]))
    (row,) = rows_of("batches", kseg.open_dir(tmp_path))
    assert row["maxTimestamp"] is None


TORN = (5).to_bytes(8, "big") + (1000).to_bytes(4, "big") + b"\0\0\0\0\2"


def test_a_torn_tail_is_left_out_and_a_torn_middle_is_damage(tmp_path):
    for name, tail in (("a", TORN), ("b", b"\0" * 100)):
        LogBuilder(tmp_path / name).segment().batch().torn(tail).write()
        assert len(rows_of("batches", [kseg.open_log(tmp_path / name / "orders-0")])) == 1
    LogBuilder(tmp_path / "c").segment().batch().torn(TORN).segment().batch().write()
    with pytest.raises(TruncatedError):
        rows_of("batches", [kseg.open_log(tmp_path / "c" / "orders-0")])


@pytest.mark.parametrize("replaced", [True, False])
def test_a_segment_that_changed_since_planning_is_refused(golden, tmp_path, replaced):
    directory = shutil.copytree(golden / "before" / "plain-0", tmp_path / "plain-0")
    file = directory / "00000000000000000000.log"
    (unit,) = batches.plan([kseg.open_log(directory)])
    if replaced:
        shutil.copy(file, tmp_path / "other")
        (tmp_path / "other").replace(file)
    else:
        file.unlink()
    with pytest.raises(DataLossError, match="load it again"):
        list(unit.read())


def test_bytes_appended_since_planning_are_not_read(tmp_path):
    table = record_table("orders", [(b"k", b"v")])
    with create(tmp_path, "orders-0") as writer:
        writer.append(table)
    (unit,) = batches.plan([kseg.open_log(tmp_path / "orders-0")])
    with kseg.append_to(tmp_path / "orders-0") as writer:
        writer.append(table)
    assert sum(batch.num_rows for batch in unit.read()) == 1
