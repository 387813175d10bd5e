"""The view of topics: what the metadata log says of partitions, beside what is in the directories."""

from __future__ import annotations

import kseg
from tests.views.support import BROKER_DIR, TOPIC_IDS, change, config, partition, rows_of, topic, write

TOPIC = "__cluster_metadata"


def rows_by_partition(root):
    return {(row["topic"], row["partition"]): row for row in rows_of("topics", kseg.open_dir(root))}


def test_golden_topics_are_the_directories(golden):
    logs = {(log.topic, log.partition): log for log in kseg.open_dir(golden / "before") if log.topic != TOPIC}
    rows = rows_by_partition(golden / "before")
    assert rows.keys() == logs.keys()
    for place, row in rows.items():
        assert row["topicId"] == logs[place].topic_id
        assert row["replicas"] == [1]
        assert row["leaderEpoch"] >= logs[place].latest_epoch
        # The only broker was shut down before the copy was taken.
        assert (row["leader"], row["isr"], row["elr"], row["offline"]) == (None, [], [1], True)
        assert (row["underReplicated"], row["underMinIsr"], row["minInsyncReplicas"]) == (True, True, 1)
    assert dict(rows["compact-plain", 0]["configs"])["cleanup.policy"] == "compact"


def test_flags(tmp_path):
    records = [
        config("broker", "", "min.insync.replicas", "2"),
        config("topic", "bills", "min.insync.replicas", "5"),
        topic("orders"),
        *(partition("orders", number) for number in range(3)),
        change("orders", 1, isr=[1, 2]),
        change("orders", 2, isr=[1], leader=1),
        topic("bills"),
        partition("bills", replicas=(1,)),
    ]
    write(tmp_path, TOPIC, records)
    rows = rows_by_partition(tmp_path)
    flags = {place: (row["underReplicated"], row["underMinIsr"], row["offline"]) for place, row in rows.items()}
    assert flags == {
        ("orders", 0): (False, False, False),
        ("orders", 1): (True, False, False),
        ("orders", 2): (True, True, False),
        ("bills", 0): (False, False, False),  # five of one replica cannot be asked for
    }
    assert (rows["orders", 2]["leader"], rows["orders", 2]["leaderEpoch"], rows["orders", 2]["partitionEpoch"]) == (
        1,
        1,
        1,
    )


def test_every_column(tmp_path):
    assigned = {"removingReplicas": [2], "addingReplicas": [3], "isr": [1, 2], "leaderEpoch": 4, "partitionEpoch": 6}
    elr = {"eligibleLeaderReplicas": [3], "lastKnownElr": [2]}
    write(tmp_path, TOPIC, [topic("orders"), partition("orders", 7, **assigned, **elr)])
    assert rows_of("topics", kseg.open_dir(tmp_path)) == [
        {
            "topic": "orders",
            "topicId": TOPIC_IDS["orders"],
            "partition": 7,
            "leader": 1,
            "leaderEpoch": 4,
            "partitionEpoch": 6,
            "replicas": [1, 2, 3],
            "isr": [1, 2],
            "elr": [3],
            "lastKnownElr": [2],
            "removing": [2],
            "adding": [3],
            "directories": [BROKER_DIR] * 3,
            "underReplicated": False,
            "underMinIsr": None,
            "offline": False,
            "minInsyncReplicas": None,
            "configs": [],
        }
    ]


def test_secrets_are_redacted(tmp_path):
    secret = config("topic", "orders", "ssl.keystore.password", "hunter2")
    write(tmp_path, TOPIC, [topic("orders"), partition("orders"), secret, config("topic", "orders", "a", "b")])
    (row,) = rows_of("topics", kseg.open_dir(tmp_path))
    assert row["configs"] == [("a", "b"), ("ssl.keystore.password", "<redacted>")]


def test_the_replica_that_knows_most_is_read(tmp_path):
    write(tmp_path / "a", TOPIC, [topic("orders"), partition("orders")])
    write(tmp_path / "b", TOPIC, [topic("orders"), partition("orders"), change("orders", isr=[1])])
    for disk in ("a", "b"):
        shared_id = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
        (tmp_path / disk / f"{TOPIC}-0" / "partition.metadata").write_text(shared_id, encoding="utf-8")
    (row,) = rows_of("topics", kseg.open_dir(tmp_path))
    assert row["isr"] == [1]
