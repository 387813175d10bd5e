"""`kseg dump` of every kind of file, and of damaged ones."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest

from tests.builders import LogBuilder
from tests.cli.calls import call
from tests.faults.memory import MIB, bounded_growth

LOG = "00000000000000000000.log"


@pytest.mark.parametrize(
    ("name", "count", "first"),
    [
        ("plain-0/00000000000000000000.index", 392 // 8, None),
        ("tx-0/00000000000000000031.timeindex", 228 // 12, {"timestamp": 1794787875760, "offset": 33}),
        (
            "tx-0/00000000000000000031.txnindex",
            510 // 34,
            {"producerId": 1, "firstOffset": 34, "lastOffset": 57, "lastStableOffset": 36},
        ),
        (
            "tx-0/00000000000000000031.snapshot",
            3,
            {
                "producerId": 1,
                "epoch": 0,
                "lastSequence": 4,
                "lastOffset": 23,
                "offsetDelta": 0,
                "timestamp": 1700000000000,
                "coordinatorEpoch": -1,
                "txnFirstOffset": 2,
            },
        ),
        ("replication-offset-checkpoint", 24, {"topic": "__transaction_state", "partition": 0, "offset": 445}),
        ("recovery-point-offset-checkpoint", 24, None),
        ("log-start-offset-checkpoint", 0, None),
        ("plain-0/leader-epoch-checkpoint", 1, {"epoch": 0, "startOffset": 0}),
        ("plain-0/partition.metadata", 1, {"version": 0, "topicId": "HIrGFHuGT-6Py5E8IkMkIg"}),
        ("meta.properties", 1, None),
        (".kafka_cleanshutdown", 1, {"version": 0, "brokerEpoch": 12}),
        ("__cluster_metadata-0/quorum-state", 1, None),
        ("bootstrap.checkpoint", 3, None),
        ("retained-0/00000000000000001461.index.deleted", 576 // 8, {"offset": 1500, "position": 14285}),
    ],
)
def test_any_file_is_known_by_its_name(golden, name, count, first):
    answer = call("dump", golden / "before" / name, "--json")
    assert (answer.status, answer.messages) == (0, "")
    assert len(answer.objects) == count
    assert first is None or answer.objects[0] == first
    people = call("dump", golden / "before" / name)
    assert (people.status, people.messages) == (0, "")
    assert max(map(len, people.lines), default=0) <= 80


@pytest.mark.parametrize("state", [".deleted", ".swap", ".cleaned"])
def test_a_log_file_is_read_whatever_its_state(golden, tmp_path, state):
    source = golden / "before" / "retained-0" / "00000000000000001461.log.deleted"
    shutil.copy(source, tmp_path / f"00000000000000001461.log{state}")
    answer = call("dump", tmp_path / f"00000000000000001461.log{state}", "--json")
    assert (answer.status, answer.messages) == (0, "")
    assert {batch["segment"] for batch in answer.objects} == {1461}
    assert answer.objects[-1]["position"] + answer.objects[-1]["size"] == source.stat().st_size
    assert answer.objects[-1]["last"] == 2920


def test_a_batch_is_told_with_all_its_header_fields(tmp_path):
    path = (
        LogBuilder(tmp_path).segment(40).transaction(2, producer_id=9, producer_epoch=3).control("abort", producer_id=9)
    )
    first, second = call("dump", path.write(), "--json").objects
    assert (first["position"], first["count"], first["valid"], first["txn"]) == (0, 2, True, True)
    assert (second["position"], second["control"], second["marker"]) == (first["size"], True, 0)
    text = call("dump", path.path, "--records").text
    assert "offsets 40..41  at byte 0" in text
    assert "producer 9 epoch 3 sequence 0" in text
    assert '{"type": "ABORT"' in text


def test_internal_records_are_decoded_for_people_and_on_request(golden):
    path = golden / "before" / "__consumer_offsets-0"
    assert '"group":' in call("dump", path, "--records").text
    plain = call("dump", path, "--records", "--json").objects
    decoded = call("dump", path, "--records", "--json", "--decode").objects
    assert all("decoded" not in batch for batch in plain)
    assert [batch | {"records": None} for batch in plain] == [
        {name: value for name, value in batch.items() if name != "decoded"} | {"records": None} for batch in decoded
    ]
    kinds = {record["type"] for batch in decoded for record in batch["decoded"]}
    assert {"GroupMetadata", "OffsetCommit"} <= kinds
    assert all(len(batch["decoded"]) == len(batch["records"]) for batch in decoded)
    metadata = call("dump", golden / "before" / "bootstrap.checkpoint", "--records").text
    assert "SNAPSHOT_HEADER" in metadata
    assert "FeatureLevelRecord" in metadata


def test_a_wrong_checksum_hides_its_batch_only(tmp_path):
    log = LogBuilder(tmp_path).segment().batch(3).batch(3).corrupt(70).batch(3).corrupt(80).batch(2)
    path = log.write()
    answer = call("dump", path, "--records", "--json")
    assert answer.status == 1
    assert [batch["base"] for batch in answer.objects] == [0, 9]
    first, second = answer.messages.splitlines()
    assert first.startswith(f"kseg: {path / LOG}, byte ")
    assert "offset 3: checksum" in first
    assert second == f"kseg: {path / LOG}: 1 more batches are damaged"
    headers = call("dump", path, "--json")
    assert [batch["valid"] for batch in headers.objects] == [True, False, False, True]
    assert headers.status == 1
    text = call("dump", path)
    assert text.text.count("DAMAGED") == 2


def test_records_that_break_the_format_hide_their_batch_only(tmp_path):
    log = LogBuilder(tmp_path).segment().batch(3).empty(2).batch(3).corrupt(61, repair=True).batch(3, codec="lz4")
    log.corrupt(66, repair=True).legacy(3, codec="gzip").empty(1)
    answer = call("dump", log.write(), "--records", "--json")
    assert answer.status == 1
    assert [(batch["base"], len(batch["records"])) for batch in answer.objects] == [(0, 3), (3, 0), (11, 3), (14, 0)]
    assert answer.messages.count("\n") == 2
    assert call("dump", log.path, "--json").status == 0, "headers alone are sound"


def test_what_is_no_batch_ends_the_file_and_not_the_dump(tmp_path):
    log = LogBuilder(tmp_path).segment().batch(3).torn(bytes(100)).segment(10).batch(2)
    answer = call("dump", log.write(), "--records", "--json")
    assert [batch["base"] for batch in answer.objects] == [0, 10]
    assert answer.status == 1
    assert "no batch starts here" in answer.messages


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("00000000000000000000.index", b"\0\0\0\5\0\0\0\7\0\0\0\1\0\0\0\1", "does not follow"),
        ("00000000000000000000.timeindex", bytes(5), "no multiple of 12"),
        ("00000000000000000000.txnindex", b"\1" * 34, "version 257"),
        ("00000000000000000000.snapshot", b"\0\1" + bytes(8), "checksum"),
        ("leader-epoch-checkpoint", b"0\n2\n0 0\n", "2 entries expected"),
        ("recovery-point-offset-checkpoint", b"x", "is no number"),
        ("partition.metadata", b"version: 0", "malformed"),
        ("meta.properties", b"version=7", "version 7"),
        ("quorum-state", b"[" * 5000, "not JSON"),
        ("quorum-state", b"[]", "not a JSON object"),
    ],
)
def test_a_damaged_sidecar_is_one_line_and_status_1(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    answer = call("dump", tmp_path / name, "--json")
    assert answer.status == 1
    assert answer.messages.startswith(f"kseg: {tmp_path / name}")
    assert message in answer.messages
    assert answer.messages.count("\n") == 1


def test_what_is_sound_of_a_damaged_index_is_shown_first(tmp_path):
    (tmp_path / "00000000000000000100.index").write_bytes(b"\0\0\0\5\0\0\0\7\0\0\0\1\0\0\0\1")
    answer = call("dump", tmp_path / "00000000000000000100.index", "--json")
    assert answer.objects == [{"offset": 105, "position": 7}]


def test_the_marker_may_hold_anything(tmp_path):
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b"")
    assert call("dump", tmp_path / ".kafka_cleanshutdown", "--json").objects == [{"content": ""}]


def test_files_of_a_tier_are_known_too(golden, tmp_path):
    source = golden / "before" / "tx-0"
    stem = "00000000000000000031-3rIomxiUSFOPxLUKM4mYgQ"
    for kind in ("log", "index", "txnindex", "snapshot"):
        shutil.copy(source / f"00000000000000000031.{kind}", tmp_path / f"{stem}.{kind}")
        given = call("dump", tmp_path / f"{stem}.{kind}", "--json")
        assert given.objects == call("dump", source / f"00000000000000000031.{kind}", "--json").objects
    (tmp_path / f"{stem}.leader_epoch_checkpoint").write_bytes(b"0\n1\n4 20\n")
    answer = call("dump", tmp_path / f"{stem}.leader_epoch_checkpoint", "--json")
    assert answer.objects == [{"epoch": 4, "startOffset": 20}]


def test_files_of_a_brokers_index_cache_are_known_too(golden):
    for path in (golden / "tiered" / "local" / "remote-log-index-cache").iterdir():
        answer = call("dump", path, "--json")
        assert answer.status == 0
        assert answer.objects or not path.stat().st_size
        assert all(row.get("offset", 1 << 62) >= int(path.name.split("_")[0]) for row in answer.objects)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_entries_above_the_greatest_offset_are_damage(tmp_path, suffix):
    path = tmp_path / f"{2**63 - 1:020d}{suffix}"
    path.write_bytes(bytes(3) + b"\x05" + bytes(3) + b"\x07" + bytes(3) + b"\x08")
    answer = call("dump", path, "--json")
    assert (answer.status, answer.data) == (1, b"")


@pytest.mark.parametrize(
    "name", ["notes.txt", "orders-0", "00000000000000000000-x.log", f"{'9' * 20}-{'A' * 22}.index"]
)
def test_unknown_files_and_empty_directories_are_refused(tmp_path, name):
    if "." in name:
        (tmp_path / name).write_bytes(b"")
    else:
        (tmp_path / name).mkdir()
    answer = call("dump", tmp_path / name)
    assert (answer.status, answer.data) == (2, b"")
    assert answer.messages.count("\n") == 1


def test_what_a_stranger_wrote_does_not_steer_the_terminal(tmp_path):
    path = LogBuilder(tmp_path).segment().record(b"\x1b[31m", b"a\nb", headers=[(b"\x1b", b"\x00\xff")]).write()
    for answer in (call("dump", path, "--records"), call("cat", path, "--headers")):
        assert "\x1b" not in answer.text
        assert "\\x1b[31m" in answer.text
    assert len(call("cat", path).lines) == 1
    assert json.loads(call("cat", path, "--json").text)["value"] == "a\nb"


ABSURD = ("0.index", "0.timeindex", "0.txnindex", "0.snapshot", "leader-epoch-checkpoint", "partition.metadata",
          "meta.properties", "recovery-point-offset-checkpoint", "quorum-state", ".kafka_cleanshutdown")  # fmt: skip


@pytest.mark.parametrize("name", ABSURD)
def test_a_file_of_absurd_size_was_read_whole(tmp_path, name):
    path = tmp_path / (f"{0:020d}{name[1:]}" if name[0] == "0" else name)
    with path.open("wb") as file:
        file.truncate(6 << 30)
    with bounded_growth(400 * MIB):
        answer = call("dump", path)
    assert (answer.status, answer.data) == (1, b"")
    assert "6442450944 bytes are too many for such a file" in answer.messages


def test_a_pipe_with_the_name_of_a_segment_blocked_the_dump(tmp_path):
    os.mkfifo(tmp_path / LOG)
    answer = call("dump", tmp_path / LOG)
    assert (answer.status, answer.data) == (2, b"")
    assert "no such file" in answer.messages


def test_a_long_index_is_shown_without_holding_it_as_text(tmp_path):
    """An index of the size that brokers allow, 10 MiB, took 800 MB to be shown."""
    count = (10 << 20) // 8
    entries = np.stack([np.arange(1, count + 1), np.arange(1, count + 1) * 1600], axis=1).astype(">i4")
    path = tmp_path / f"{0:020d}.index"
    path.write_bytes(entries.tobytes())
    with bounded_growth(250 * MIB):
        answer = call("dump", path)
    lines = answer.lines
    assert (len(lines), lines[0].split()) == (count + 1, ["OFFSET", "POSITION"])
    assert lines[-1].split() == [str(count), str(count * 1600)]


@pytest.mark.parametrize("suffix", [".part", ".deleted"])
def test_metadata_snapshots_that_are_incomplete_or_given_up_are_shown(golden, tmp_path, suffix):
    source = golden / "before" / "bootstrap.checkpoint"
    name = f"{500:020d}-{1:010d}.checkpoint"
    for target in (name, name + suffix):
        shutil.copy(source, tmp_path / target)
    whole, other = (call("dump", tmp_path / target, "--records", "--json") for target in (name, name + suffix))
    assert (other.status, other.messages) == (0, "")
    assert other.data == whole.data != b""
