"""`kseg cat`."""

from __future__ import annotations

import struct

import pyarrow.parquet as pq
import pytest

from kseg.cli.common import parse_time
from tests.builders import LogBuilder
from tests.cli.calls import call


def expected_rows(golden, topic, partition, *, committed):
    rows = pq.read_table(golden / "before.parquet").to_pylist()
    wanted = [row for row in rows if (row["topic"], row["partition"]) == (topic, partition)]
    return [row for row in wanted if row["committed"] or not committed]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("name", ["plain-1", "tx-1", "rd-lz4-0", "append-time-0"])
def test_json_has_what_a_consumer_read(golden, name, isolation):
    topic, _, partition = name.rpartition("-")
    formats = [word for part in ("key", "value", "header") for word in (f"--{part}-format", "hex")]
    answer = call("cat", golden / "before" / name, "--json", "--isolation", isolation, *formats)
    assert (answer.status, answer.messages) == (0, "")
    expected = expected_rows(golden, topic, int(partition), committed=isolation == "read_committed")
    assert [list(row) for row in answer.objects[:1]] == [
        ["topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers"]
    ]
    hexed = [
        {
            "topic": topic,
            "partition": int(partition),
            "offset": row["offset"],
            "timestamp": row["timestamp_ms"],
            "timestampType": row["timestampType"],
            "key": None if row["key"] is None else row["key"].hex(),
            "value": None if row["value"] is None else row["value"].hex(),
            "headers": [
                {"key": item["key"], "value": None if item["value"] is None else item["value"].hex()}
                for item in row["headers"] or ()
            ],
        }
        for row in expected
    ]
    assert answer.objects == hexed


def test_partitions_come_in_order_and_n_counts_all_of_them(golden):
    answer = call("cat", golden / "before", "--topic", "plain", "-n", 1484, "--format", "%p %o\\n")
    assert answer.lines == [f"0 {offset}" for offset in range(1482)] + ["1 0", "1 1"]
    one = call("cat", golden / "before", "--topic", "plain", "--partition", 1, "-n", 1, "--format", "%{topic}/%p\\n")
    assert one.lines == ["plain/1"]
    assert call("cat", golden / "before", "--topic", "plain", "-n", 0).data == b""


def test_ranges_of_offsets(golden):
    path = golden / "before" / "retained-0"

    def offsets(*words):
        return [int(line) for line in call("cat", path, "--format", "%o\\n", *words).lines]

    assert offsets("--from", 4379, "--to", 4383) == [4379, 4380, 4381, 4382]
    assert offsets("--to", 2923) == [2921, 2922]
    assert offsets("--from", -2) == [5998, 5999]
    assert offsets("--from", 6000) == []
    assert offsets("--from", 2**62) == []


def test_from_a_time_on(golden):
    path = golden / "before" / "retained-0"
    first = call("cat", path, "--at", "2023-11-14T23:50:40Z", "-n", 1, "--json").objects
    assert first[0]["timestamp"] == 1700005840000
    assert call("cat", path, "--at", 1700005840000, "-n", 1, "--json").objects == first
    assert call("cat", path, "--at", "2030-01-01").data == b""


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("1700000000123", 1700000000123),
        ("2023-11-14T22:13:20.123Z", 1700000000123),
        ("2023-11-14T23:13:20.123+01:00", 1700000000123),
        ("2023-11-14 22:13:20", 1700000000000),
        ("2023-11-14", 1699920000000),
    ],
)
def test_times(text, ms):
    assert parse_time(text) == ms


@pytest.fixture
def small(tmp_path):
    log = LogBuilder(tmp_path).segment()
    log.record(b"\x00\x01", struct.pack(">q", -5), headers=[(b"h", b"1"), (b"n", None)], producer_id=7, base_sequence=4)
    log.record(None, b'{"a": [1, "\\u00e9"]}')
    log.record("clé".encode(), None)
    return log.write()


@pytest.mark.parametrize(
    ("template", "lines"),
    [
        ("%t-%p %o|%k{hex}|%V\\n", ["orders-0 0|0001|8", "orders-0 1||20", "orders-0 2|636cc3a9|-1"]),
        ("%K %H [%h] %x/%q\\n", ["2 2 [h=1,n=] 7/4", "-1 0 [] -1/-1", "4 0 [] -1/-1"]),
        ("%{offset}%%\\t\\x41\\\\%T\\n", [f"{i}%\tA\\{1700000000005 + 5 * i}" for i in range(3)]),
        ("%o %T{iso} %e %y\\n", [f"{i} 2023-11-14T22:13:20.0{5 + 5 * i:02d}Z 0 -1" for i in range(3)]),
        ("é%o\\n", ["é0", "é1", "é2"]),
    ],
)
def test_templates(small, template, lines):
    answer = call("cat", small, "--format", template)
    assert answer.messages == ""
    assert answer.lines == lines


def test_raw_values_are_the_bytes_themselves(small):
    assert call("cat", small, "--format", "raw").data == struct.pack(">q", -5) + b"\n" + b'{"a": [1, "\\u00e9"]}\n\n'
    assert call("cat", small, "--format", "%k{raw};").data == b"\x00\x01;;" + "clé;".encode()


def test_formats_of_values(small):
    first = call("cat", small, "-n", 1, "--json", "--value-format", "int64", "--key-format", "base64").objects[0]
    assert (first["key"], first["value"]) == ("AAE=", -5)
    second = call("cat", small, "--from", 1, "-n", 1, "--json", "--value-format", "json").objects[0]
    assert (second["key"], second["value"]) == (None, {"a": [1, "é"]})
    third = call("cat", small, "--from", 2, "--json").objects[0]
    assert (third["key"], third["value"], third["headers"]) == ("clé", None, [])


@pytest.mark.parametrize("name", ["int64", "json", "uuid", "double"])
def test_a_value_of_another_format_is_told_with_its_offset(tmp_path, name):
    path = LogBuilder(tmp_path).segment().record(b"k", b"123456789").record(b"k", b"[NaN" + b"[" * 5000).write()
    answer = call("cat", path, "--value-format", name, "--json")
    assert answer.status == 2
    assert answer.messages.startswith("kseg: offset ")
    assert f"the value is not {name}" in answer.messages
    assert answer.messages.count("\n") == 1


def test_lines_for_people(small):
    answer = call("cat", small, "--headers")
    assert answer.lines[1] == 'orders-0  1  2023-11-14T22:13:20.010Z  null  {"a": [1, "\\u00e9"]}'
    assert answer.lines[2] == "orders-0  2  2023-11-14T22:13:20.015Z  clé  null"
    assert answer.lines[0].endswith("  h=1  n=null")
    assert call("cat", small, "--format", "hex").lines[2].split() == [
        "orders-0",
        "2",
        "2023-11-14T22:13:20.015Z",
        "636cc3a9",
        "null",
    ]


def test_what_is_behind_the_high_watermark_is_withheld_and_said(small):
    checkpoint = small.parent / "replication-offset-checkpoint"
    checkpoint.write_text("0\n1\norders 0 2\n")
    answer = call("cat", small, "--format", "%o\\n")
    assert answer.lines == ["0", "1"]
    assert answer.messages == (
        f"kseg: {small}: offsets 2 to 2 are behind the high watermark; --read-past-high-watermark shows them\n"
    )
    assert answer.status == 0
    assert call("cat", small, "--format", "%o\\n", "--read-past-high-watermark").lines == ["0", "1", "2"]


def test_the_last_committed_records_past_the_high_watermark_were_counted_from_it(tmp_path):
    path = LogBuilder(tmp_path).segment().batch(10).write()
    (tmp_path / "replication-offset-checkpoint").write_text(f"0\n1\n{path.name.replace('-', ' ')} 5\n")
    words = ("cat", path, "--format", "%o\\n", "--isolation", "read_committed", "--read-past-high-watermark")
    assert call(*words, "--from", "-2").lines == ["8", "9"]
    assert call(*words, "--at", "2030-01-01").lines == []


def test_damage_ends_the_output_behind_what_is_sound(tmp_path):
    path = LogBuilder(tmp_path).segment().batch(3).batch(3).corrupt(70).batch(3).write()
    answer = call("cat", path, "--format", "%o\\n")
    assert answer.lines == ["0", "1", "2"]
    assert answer.status == 1
    assert "checksum" in answer.messages
    assert answer.messages.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--format", "%z"],
        ["--format", "%o{hex}"],
        ["--format", "%v{int7}"],
        ["--format", "%"],
        ["--format", "\\q"],
        ["--format", "%{nothing}"],
        ["--format", "text"],
        ["--format", "hex", "--json"],
        ["--at", "yesterday"],
        ["--at", "99999999999999999999"],
        ["--at", "1969-01-01"],
        ["--from", "x"],
        ["--from", "1", "--at", "1"],
        ["-n", "-1"],
        ["--value-format", "xml"],
        ["--isolation", "none"],
        ["--partition", "7"],
        ["--topic", "x"],
        ["--bogus"],
    ],
)
def test_wrong_calls(small, words):
    answer = call("cat", small, *words)
    assert (answer.status, answer.data) == (2, b"")
    assert answer.messages.startswith("kseg: ")
    assert answer.messages.count("\n") == 1


def test_corrupt_skip_goes_on_and_says_so_by_its_status(tmp_path):
    path = LogBuilder(tmp_path).batch(3).batch(3).corrupt(70).batch(3).write()
    stopped, passed = call("cat", path, "--json"), call("cat", path, "--json", "--corrupt", "skip")
    assert [row["offset"] for row in stopped.objects] == [0, 1, 2]
    assert [row["offset"] for row in passed.objects] == [0, 1, 2, 6, 7, 8]
    assert (stopped.status, passed.status) == (1, 1)


def test_a_partition_that_is_not_there_was_told_as_a_bare_number(golden):
    path = golden / "before" / "plain-0"
    answer = call("cat", path, "--partition", 7)
    assert (answer.status, answer.data) == (2, b"")
    assert answer.messages == f"kseg: no partition 7 in {path}; 'kseg ls' lists what there is\n"
