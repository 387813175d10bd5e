"""`kseg ls`."""

from __future__ import annotations

import json
import shutil

import pytest

from kseg.tables import format_time
from tests.builders import LogBuilder
from tests.cli.calls import call, run


def test_golden_partitions_and_their_ends(golden):
    ends = json.loads((golden / "before.parquet.ends.json").read_text())
    answer = call("ls", golden / "before", "--json")
    assert (answer.status, answer.messages) == (0, "")
    found = {f"{row['topic']}-{row['partition']}": row for row in answer.objects}
    assert list(answer.objects[0]) == [
        "topic", "partition", "topicId", "segments", "size", "startOffset", "endOffset", "highWatermark",
        "lastStableOffset", "path",
    ]  # fmt: skip
    for name, (start, end) in ends.items():
        # a producer's abort at its end came after the ends were noted
        assert found[name]["startOffset"] == start
        assert end <= found[name]["endOffset"] <= end + 1
    assert found["retained-0"]["segments"] == 3
    assert found["plain-0"]["topicId"] == "HIrGFHuGT-6Py5E8IkMkIg"
    assert found["plain-0"]["size"] == (golden / "before/plain-0/00000000000000000000.log").stat().st_size


def test_a_topic_and_its_segments(golden):
    answer = call("ls", golden / "before", "--topic", "retained", "--segments", "--json")
    assert [(row["baseOffset"], row["nextOffset"], row["tier"]) for row in answer.objects] == [
        (2921, 4381, "local"),
        (4381, 5841, "local"),
        (5841, 6000, "local"),
    ]
    text = call("ls", golden / "before", "--topic", "retained", "--segments")
    assert text.lines[0].split() == ["TOPIC", "PART", "BASE", "NEXT", "SIZE", "MAX", "TIMESTAMP", "TIER"]
    assert text.lines[3].split()[:4] == ["retained", "0", "5841", "6000"]
    assert text.lines[3].split()[-2:] == ["2023-11-14T23:53:19.000Z", "local"]


def test_a_partition_a_tree_and_a_copy_without_a_name(golden, tmp_path):
    assert len(call("ls", golden / "before/plain-0", "--json").objects) == 1
    shutil.copytree(golden / "before/plain-0", tmp_path / "disk1" / "plain-0")
    shutil.copytree(golden / "before/plain-1", tmp_path / "disk2" / "plain-1")
    assert [row["partition"] for row in call("ls", tmp_path, "--json").objects] == [0, 1]
    assert len(call("ls", f"file://{tmp_path}", "--json").objects) == 2
    shutil.copytree(golden / "before/plain-0", tmp_path / "copy" / "backup")
    assert [row["endOffset"] for row in call("ls", tmp_path / "copy" / "backup", "--json").objects] == [1482]


def test_nothing_there_is_a_wrong_call(tmp_path):
    answer = call("ls", tmp_path)
    assert (answer.status, answer.data, answer.messages) == (2, b"", f"kseg: no partitions in {tmp_path}\n")
    answer = call("ls", tmp_path / "missing")
    assert (answer.status, answer.data) == (2, b"")
    assert answer.messages == f"kseg: {tmp_path / 'missing'}: no such file or directory\n"


def test_an_unknown_topic_is_a_wrong_call(golden):
    answer = call("ls", golden / "before", "--topic", "order")
    assert answer.status == 2
    assert answer.messages == f"kseg: no order in {golden / 'before'}; 'kseg ls' lists what there is\n"


def test_a_damaged_partition_does_not_hide_the_others(tmp_path):
    LogBuilder(tmp_path, "alpha").segment().batch(3).write()
    LogBuilder(tmp_path, "beta").segment().batch(3).torn(bytes(100)).segment(9).batch(1).write()
    (tmp_path / "beta-0" / f"{9:020d}.log").rename(tmp_path / "beta-0" / "spare")
    with (tmp_path / "beta-0" / f"{0:020d}.log").open("ab") as file:  # a sound batch behind the zeros: damage
        file.write((tmp_path / "beta-0" / "spare").read_bytes())
    LogBuilder(tmp_path, "gamma").segment().batch(3).write()
    answer = call("ls", tmp_path, "--json")
    assert answer.status == 1
    assert [row["topic"] for row in answer.objects] == ["alpha", "beta", "gamma"]
    assert answer.objects[1]["error"] in answer.messages
    assert answer.messages.count("\n") == 1
    text = call("ls", tmp_path)
    assert text.status == 1
    assert "damaged" in text.lines[2]
    assert len(text.lines) == 4


@pytest.mark.parametrize("arguments", [(), ("--segments",)])
def test_numbers_of_a_long_topic_were_cut(tmp_path, monkeypatch, arguments):
    offset, topic = 123_456_789_012, "a-topic-with-a-name-that-is-longer-than-most-topics-have"
    LogBuilder(tmp_path, topic).segment(offset).batch(3).write()
    time = format_time(call("ls", tmp_path, "--segments", "--json").objects[0]["maxTimestamp"])
    wanted = [str(offset), str(offset + 3)] + ([time] if arguments else [str(offset + 3)] * 2)
    monkeypatch.setenv("COLUMNS", "80")
    narrow = call("ls", tmp_path, *arguments)
    assert max(map(len, narrow.lines)) <= 80
    assert [word for word in narrow.lines[1].split() if word in wanted] == wanted
    assert narrow.lines[1].startswith("a-to")
    monkeypatch.setenv("COLUMNS", "20")
    assert [word for word in call("ls", tmp_path, *arguments).lines[1].split() if word in wanted] == wanted


def test_what_goes_into_a_pipe_was_cut_at_80_columns(tmp_path, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    topic = "a-topic-with-a-name-that-is-longer-than-most-topics-have"
    directory = LogBuilder(tmp_path, topic).segment(123_456_789_012).batch(3).write()
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: HIrGFHuGT-6Py5E8IkMkIg\n")
    for answer in (call("ls", tmp_path), run("ls", tmp_path)):
        assert answer.lines[1].split()[0] == topic
        assert answer.lines[1].split()[-1] == "HIrGFHuGT-6Py5E8IkMkIg"
    assert run("ls", tmp_path, "--segments").lines[1].split()[-1] == "local"
