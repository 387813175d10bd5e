"""The harness itself: the oracle answers, a broker starts, serves and stops."""

from __future__ import annotations

import pytest

from tests.kafka.broker import dump_log_segments
from tests.kafka.oracle import Found, OracleError, _parse_found


def test_oracle_generates_what_it_dumps_and_loads(oracle, tmp_path):
    log = tmp_path / "t-0"
    made = oracle.gen(log, 7, 40, codec="lz4", roll=0.1)
    batches = oracle.dump(log)
    assert made == oracle.load(log)
    assert len(batches) == 40
    assert {batch["codec"] for batch in batches if not batch["control"]} == {"lz4"}
    assert batches[-1]["last"] + 1 == made["logEnd"]


def test_oracle_finds_offsets_for_times(oracle, tmp_path):
    log = tmp_path / "t-0"
    oracle.gen(log, 7, 40, roll=0.1)
    stamps = [(record[1], record[0]) for batch in oracle.dump(log) for record in batch["records"]]
    target = stamps[len(stamps) // 2][0]
    first = next((stamp, offset) for stamp, offset in stamps if stamp >= target)
    found, none = oracle.times(log, [target, 1_900_000_000_000])
    assert found[:2] == first
    assert none is None


def test_oracle_cleans_at_the_given_clock(oracle, tmp_path):
    log = tmp_path / "t-0"
    oracle.gen(log, 7, 80, roll=0.1)
    before = oracle.dump(log)
    wanted = oracle.cleanable(log, None, 1_700_000_600_000)
    done = oracle.clean(log, wanted["firstDirty"], 1_700_000_600_000)
    assert done["endOffset"] == wanted["firstUncleanable"] > 0
    assert sum(len(b["records"]) for b in oracle.dump(log)) < sum(len(b["records"]) for b in before)


def test_oracle_error_is_raised_and_the_next_command_still_answered(oracle, tmp_path):
    with pytest.raises(OracleError, match="NullPointerException"):
        oracle.dump(tmp_path / "absent")
    assert oracle.gen(tmp_path / "t-0", 1, 1)["logStart"] == 0


def test_times_answers_are_parsed_with_and_without_epoch():
    text = "Optional[TimestampAndOffset(timestamp=-1, offset=3, leaderEpoch=Optional{})]"
    assert _parse_found(text.format("[4]")) == Found(-1, 3, 4)
    assert _parse_found(text.format(".empty")) == Found(-1, 3, None)
    assert _parse_found("Optional.empty") is None


def test_broker_serves_both_isolation_levels(broker):
    broker.create_topic("harness-tx", config={"compression.type": "zstd"})
    rows = [{"key": b"k", "value": None, "headers": [("h", None)]}, {"key": None, "value": b""}]
    broker.produce("harness-tx", rows)
    producer = broker.producer(**{"transactional.id": "harness"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("harness-tx", b"aborted")
    producer.flush()
    producer.abort_transaction()
    assert [(row.key, row.value, row.headers) for row in broker.consume("harness-tx", committed=True)] == [
        (b"k", None, [("h", None)]),
        (None, b"", []),
    ]
    assert [row.value for row in broker.consume("harness-tx")] == [None, b"", b"aborted"]
    assert broker.consume("harness-tx")[0].timestamp_type == 0


def test_broker_keeps_its_data_over_a_stop_and_a_kill(broker_factory):
    broker = broker_factory(**{"log.index.interval.bytes": 128})
    with broker:
        broker.create_topic("kept", partitions=2)
        broker.produce("kept", [{"value": b"%d" % i, "timestamp": 1000 + i} for i in range(50)], partition=1)
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()
    files = sorted(broker.partition_dir("kept", 1).glob("*.log"))
    assert "| offset: 49 " in dump_log_segments(files, "--deep-iteration")
    broker.start()
    broker.produce("kept", [{"value": b"more"}], partition=1)
    broker.kill()
    with broker:
        assert [row.value for row in broker.consume("kept", 1, start=49)] == [b"49", b"more"]
