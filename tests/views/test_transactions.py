"""The view of transactions: coordinators and logs side by side."""

from __future__ import annotations

import shutil

import pytest

import kseg
from kseg.views.transaction_log import TransactionLog
from tests.views.support import NOW, coordinator_record, create, metadata, partition, record_table, rows_of, write

MARKER_BYTES = 78
TOPIC = "__transaction_state"
STATES = {"Empty": 0, "Ongoing": 1, "PrepareCommit": 2, "PrepareAbort": 3, "CompleteCommit": 4, "CompleteAbort": 5}


def entry(state, *, name="tx", producer=5, epoch=0, partitions=(("orders", [0]),), **fields):
    value = {
        "producerId": producer,
        "producerEpoch": epoch,
        "transactionTimeoutMs": 60_000,
        "transactionStatus": STATES[state],
        "transactionPartitions": [{"topic": topic, "partitionIds": ids} for topic, ids in partitions],
        "transactionLastUpdateTimestampMs": NOW,
        "transactionStartTimestampMs": -1 if state == "Empty" else NOW,
    }
    return coordinator_record("TransactionLog", {"transactionalId": name}, value | fields, 1)


def open_transaction(root, *, producer=5, epoch=0):
    with create(root, "orders-0") as writer:
        writer.append(record_table("orders", [(b"k", b"v")] * 3))
        rows = record_table("orders", [(b"k", b"v")] * 2)
        writer.append(rows, producer_id=producer, producer_epoch=epoch, transactional=True)


def of_partition(root):
    (row,) = [row for row in rows_of("transactions", kseg.open_dir(root)) if row["topic"] == "orders"]
    return row


def test_golden_coordinators(golden):
    rows = [row for row in rows_of("transactions", kseg.open_dir(golden / "before")) if row["topic"] is None]
    assert {row["transactionalId"]: row["state"] for row in rows} == {
        "ccompact-tx1-0": "CompleteCommit",
        "ccompact-tx1-1": "CompleteCommit",
        "t1-0": "CompleteAbort",
        "t1-1": "CompleteCommit",
        "t1-2": "CompleteAbort",
    }


def test_golden_markers(golden):
    logs = kseg.open_dir(golden / "before")
    rows = [row for row in rows_of("transactions", logs) if row["topic"] is not None]
    assert {row["topic"] for row in rows} == {"tx", "compact-tx"}
    assert all(row["transactionalId"] for row in rows)
    for log in (log for log in logs if log.topic in ("tx", "compact-tx")):
        kinds = [header.marker_type for header in log.batches() if header.is_control]
        here = [row for row in rows if (row["topic"], row["partition"]) == (log.topic, log.partition)]
        assert sum(row["committed"] for row in here) == kinds.count(1)
        assert sum(row["aborted"] for row in here) == kinds.count(0)
        # Each abort of these logs ended data, so the transaction indexes know it too.
        assert sum(row["aborted"] for row in here) == len(log.aborted_transactions(0, log.end_offset))
        opened = {found.producer_id: found.first_offset for found in log.open_transactions()}
        assert {row["producerId"]: row["firstOffset"] for row in here if row["isOpen"]} == opened


def test_a_transaction_that_its_coordinator_has_ended_is_hanging(golden, tmp_path):
    # A real log without its last batch: the marker by which the coordinator ended a transaction that ran too long.
    shutil.copytree(golden / "before" / "tx-0", tmp_path / "tx-0")
    file = tmp_path / "tx-0" / "00000000000000000031.log"
    file.write_bytes(file.read_bytes()[:-MARKER_BYTES])
    (tmp_path / "tx-0" / "00000000000000000434.snapshot").unlink()  # it was taken behind the marker
    coordinator = [log for log in kseg.open_dir(golden / "before") if log.topic.startswith("__")]
    log = kseg.open_log(tmp_path / "tx-0")
    (found,) = [row for row in rows_of("transactions", [*coordinator, log]) if row["isOpen"]]
    (expected,) = log.open_transactions()
    assert (found["transactionalId"], found["producerId"]) == ("t1-0", expected.producer_id)
    assert (found["firstOffset"], found["logProducerEpoch"]) == (expected.first_offset, expected.producer_epoch)
    assert found["lastTimestamp"].timestamp() * 1000 == pytest.approx(expected.last_timestamp)
    assert (expected.first_offset, found["hanging"]) == (402, True)


@pytest.mark.parametrize(
    ("told", "hanging"),
    [
        ([entry("Ongoing")], False),
        ([entry("Ongoing", epoch=1)], True),
        ([entry("Ongoing", partitions=(("orders", [1]),))], True),
        ([entry("PrepareCommit", epoch=1)], False),
        ([entry("PrepareAbort")], False),
        ([entry("CompleteCommit", partitions=())], True),
        ([entry("CompleteAbort")], True),
        ([entry("Empty", transactionPartitions=None)], True),
        ([entry("Ongoing", producer=6, previousProducerId=5)], True),
        ([entry("Ongoing", name="other", producer=9)], True),
        ([entry("Ongoing"), coordinator_record("TransactionLog", {"transactionalId": "tx"}, None)], True),
        ([], True),
    ],
)
def test_which_open_transactions_hang(tmp_path, told, hanging):
    open_transaction(tmp_path)
    write(tmp_path, TOPIC, told)
    row = of_partition(tmp_path)
    assert (row["isOpen"], row["firstOffset"], row["hanging"]) == (True, 3, hanging)
    assert (row["committed"], row["aborted"]) == (0, 0)


def test_nothing_is_said_of_what_is_not_here(tmp_path):
    open_transaction(tmp_path)
    assert of_partition(tmp_path)["hanging"] is None
    write(tmp_path, TOPIC, [], partition=1)  # partition 0 is on another disk
    assert of_partition(tmp_path)["hanging"] is None


def test_the_metadata_log_says_how_many_partitions_there_are(tmp_path):
    open_transaction(tmp_path)
    write(tmp_path, TOPIC, [])
    topic_id = "AAAAAAAAAAAAAAAAAAAAew"
    parts = [partition("orders", number, topicId=topic_id) for number in (0, 1)]
    write(tmp_path, "__cluster_metadata", [metadata("TopicRecord", name=TOPIC, topicId=topic_id), *parts])
    assert of_partition(tmp_path)["hanging"] is None


def test_a_coordinators_row(tmp_path):
    write(tmp_path, TOPIC, [entry("Ongoing"), entry("Empty", name="idle", producer=7, transactionPartitions=None)])
    idle, running = rows_of("transactions", kseg.open_dir(tmp_path))
    assert (idle["transactionalId"], idle["state"], idle["start"], idle["partitions"]) == ("idle", "Empty", None, [])
    assert (running["producerId"], running["producerEpoch"], running["timeoutMs"]) == (5, 0, 60_000)
    assert running["partitions"] == [{"topic": "orders", "partition": 0}]
    assert running["start"].timestamp() * 1000 == running["lastUpdate"].timestamp() * 1000 == NOW
    assert (running["isOpen"], running["hanging"], running["committed"]) == (None, None, None)


def test_ended_transactions_are_counted(tmp_path):
    with create(tmp_path, "orders-0") as writer:
        for commit in (True, True, False):
            writer.append(record_table("orders", [(b"k", b"v")]), producer_id=5, transactional=True)
            writer.append_marker(5, commit=commit)
    row = of_partition(tmp_path)
    assert (row["committed"], row["aborted"], row["isOpen"], row["hanging"]) == (2, 1, False, False)
    assert (row["transactionalId"], row["producerId"], row["firstOffset"]) == (None, 5, None)


def test_records_of_unknown_versions_leave_it_open_what_they_say(tmp_path):
    open_transaction(tmp_path)
    write(tmp_path, TOPIC, [(b"\x00\x00\x00\x02tx", b"\x00\x63?")])
    assert not TransactionLog.load(kseg.open_dir(tmp_path)).is_complete
    assert of_partition(tmp_path)["hanging"] is None
