"""`kseg export`, and the same as a job for spark-submit."""

from __future__ import annotations

import signal
import sys

import pytest

from kseg.jobs import export as job
from kseg.tables import cells
from tests.cli.calls import call, start
from tests.exporting.lake import append, data_files, make_log, offsets, rows


def test_a_table_for_people_and_json_for_programs(tmp_path):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    answer = call("export", logs, target)
    assert (answer.status, answer.messages) == (0, "")
    assert answer.lines[0].split() == ["TOPIC", "PART", "FROM", "TO", "LOG", "RECORDS"]
    assert answer.lines[1].split()[:4] == ["a", "0", "0", "30"]
    assert answer.lines[2].startswith("run 1: 30 records of 1 partition in 1 files, ")
    append(logs, count=3)
    (report,) = call("export", logs, target, "--json").objects
    assert (report["run"], report["rows"], report["files"], report["dry_run"]) == (2, 3, 1, False)
    assert report["partitions"][0] | {"bytes": 0} == {
        "topic": "a", "partition": 0, "start": 30, "end": 33, "bytes": 0, "rows": 3,
    }  # fmt: skip
    assert call("export", logs, target).lines == ["nothing new to export"]


def test_options_reach_the_export(golden, tmp_path):
    target = tmp_path / "lake"
    answer = call(
        "export", golden / "before", target, "--topics", "tx,plain", "--by", "hour", "--headers", "--isolation",
        "read_committed", "--compression", "zstd", "--compression-level", 1, "--file-bytes", "1m",
        "--row-group-bytes", "64k", "--option", "maxBytesPerTask=100k", "--until", "2023-11-14T22:13:21Z",
    )  # fmt: skip
    assert answer.status == 0
    found = rows(target)
    assert {row["topic"] for row in found} == {"tx", "plain"}
    assert max(row["timestamp"] for row in found if row["topic"] == "plain") < 1_700_000_001_000 + 3_600_000
    assert all("headers" in row and "hour" in row for row in found)
    assert all(name.endswith(".zstd.parquet") for name in data_files(target))


def test_a_pattern_a_time_and_several_paths(golden, tmp_path):
    target = tmp_path / "lake"
    answer = call(
        "export", golden / "before/plain-0", golden / "before/plain-1", target, "--topics-pattern", "^pl",
        "--at", "2023-11-14T22:14:00Z", "--by", "none", "--columns", "partition,offset,timestamp",
    )  # fmt: skip
    assert answer.status == 0
    assert {row["partition"] for row in rows(target)} == {0, 1}
    assert min(row["offset"] for row in rows(target)) > 0


def test_dry_run(golden, tmp_path):
    answer = call("export", golden / "before", tmp_path / "lake", "--dry-run")
    assert answer.status == 0
    assert answer.lines[-1].startswith("20 partitions, ")
    assert max(map(cells, answer.lines)) <= 80
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--topics", "nothing"], "subscribed topics that are not here: nothing: "),
        (["--topics", "a", "--topics-pattern", "a"], "not allowed with argument"),
        (["--by", "week"], "invalid choice: 'week'"),
        (["--file-bytes", "huge"], "'huge' is no size"),
        (["--option", "startingOffsets"], "--option takes NAME=VALUE"),
        (["--option", "failOnDataLoss=false"], "is given already"),
        (["--option", "startingOfsets=earliest"], "did you mean 'startingOffsets'"),
        (["--columns", "colour"], "unknown column 'colour'"),
        (["--compression-level", "3"], "snappy has none"),
        (["--at", "yesterday"], "neither ISO 8601"),
    ],
)
def test_wrong_words_are_one_line_and_make_nothing(tmp_path, words, message):
    logs = make_log(tmp_path / "logs")
    answer = call("export", logs, tmp_path / "lake", *words)
    assert (answer.status, answer.data) == (2, b"")
    assert message in answer.messages
    assert answer.messages.startswith("kseg: ")
    assert answer.messages.count("\n") == 1
    assert not (tmp_path / "lake").exists()


def test_statuses_of_what_can_go_wrong(tmp_path):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    assert call("export", logs).status == 2
    assert call("export", tmp_path / "none", target).status == 2
    assert call("export", logs, logs / "lake").status == 2
    assert call("export", logs, target).status == 0
    log = logs / "a-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[70] ^= 0xFF
    log.write_bytes(data)
    answer = call("export", logs, tmp_path / "other")
    assert (answer.status, answer.data) == (1, b"")
    assert f"kseg: {log}" in answer.messages


@pytest.mark.parametrize("corrupt", ["skip", "column"])
def test_damage_that_is_passed_over_is_told_with_status_1(tmp_path, corrupt):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    log = logs / "a-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[70] ^= 0xFF
    log.write_bytes(data)
    answer = call("export", logs, target, "--corrupt", corrupt)
    assert answer.status == 1
    assert f"damaged: {log}, byte 0" in answer.text
    assert [at for _, _, at in offsets(target)] == [*([0] if corrupt == "column" else []), *range(10, 30)]
    answer = call("export", logs, tmp_path / "lake2", "--corrupt", corrupt, "--json")
    assert (answer.status, answer.objects[0]["damaged_offsets"], answer.objects[0]["rows"]) == (1, 10, 20)


def test_lost_offsets_are_an_error_or_are_counted(tmp_path):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    call("export", logs, target, "--option", 'endingOffsets={"a":{"0":5}}')
    (logs / "log-start-offset-checkpoint").write_text("0\n1\na 0 12\n")
    answer = call("export", logs, target)
    assert (answer.status, "[5, 12)" in answer.messages) == (1, True)
    (report,) = call("export", logs, target, "--allow-data-loss", "--json").objects
    assert (report["lost_offsets"], report["rows"]) == (7, 18)


def test_an_interrupt_is_one_line_and_leaves_nothing(tmp_path):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    code = (
        "import sys, threading, kseg.exporting.write as w, kseg.exporting.job as j\n"
        "from kseg.cli.main import main\n"
        "real = w.export_task\n"
        "def slow(task):\n"
        "    result = real(task)\n"
        "    print('written', flush=True)\n"
        "    threading.Event().wait(60)\n"
        "j.export_task = slow\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", code, "export", str(logs), str(target)]
    process = start(command)
    assert process.stdout.readline() == b"written\n"
    assert call("export", logs, target).status == 3, "another export writes there"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"kseg: interrupted\n")
    assert data_files(target) == []
    assert list((target / "_kseg" / "staging").iterdir()) == []
    assert call("export", logs, target).status == 0
    assert offsets(target) == [("a", 0, i) for i in range(30)]


def test_spark_that_is_not_installed_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "kseg.datasource.session", None)
    answer = call("export", make_log(tmp_path / "logs"), tmp_path / "lake", "--spark", "local[1]")
    assert answer.status == 2
    assert "--spark needs pyspark" in answer.messages


def test_the_job_takes_the_words_of_the_verb(tmp_path, capsys):
    assert job.main([str(tmp_path), str(tmp_path / "lake")]) == 2
    assert capsys.readouterr().err.startswith("kseg: no partitions to read here: ")
