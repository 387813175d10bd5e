"""The command line as a program: help, widths, pipes, statuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import kseg
from kseg.cli.main import VERBS, exit_status
from kseg.errors import (
    IndexFileError,
    LockedError,
    LogError,
    OffsetOutOfRangeError,
    OptionError,
    StorageError,
    TruncatedError,
)
from kseg.tables import Column, cells, clip, format_size, format_table, format_time, visible
from tests.builders import LogBuilder
from tests.cli.calls import Answer, call, run, start


def test_version_and_help():
    assert call("--version").text == f"kseg {kseg.__version__}\n"
    top = call("--help")
    assert top.status == 0
    assert all(f"    {verb}" in top.text for verb in VERBS)
    for verb in VERBS:
        text = call(verb, "--help").text
        assert f"kseg {verb} /" in text or f"kseg {verb} s3://" in text, "an example"
        assert "exit status:" in text
        assert "--json" in text


def test_help_needs_no_kernels():
    code = (
        "import sys, kseg.cli.main as m; m.main(['--help']); sys.exit(not {'numba', 'pyarrow'}.isdisjoint(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("argv", [[], ["nothing"], ["ls"], ["ls", "a", "b"], ["--nothing"], ["dump", "x", "--decode"]])
def test_wrong_arguments_are_one_line_and_status_2(argv):
    answer = call(*argv)
    assert (answer.status, answer.data) == (2, b"")
    assert answer.messages.startswith("kseg: ")
    assert answer.messages.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (TruncatedError("x"), 1),
        (IndexFileError("x"), 1),
        (LogError("x"), 1),
        (OptionError("x"), 2),
        (StorageError("x"), 2),
        (OffsetOutOfRangeError("x"), 2),
        (LockedError("x"), 3),
    ],
)
def test_statuses(error, status):
    assert exit_status(error) == status


@pytest.mark.parametrize("words", [["ls"], ["ls", "--segments"]])
@pytest.mark.parametrize("columns", [80, 60, 200])
def test_tables_fit_the_terminal(golden, monkeypatch, words, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    answer = call(words[0], golden / "before", *words[1:])
    assert answer.status == 0
    assert max(map(cells, answer.lines)) <= columns
    assert "\x1b" not in answer.text


def test_dumps_fit_the_terminal(golden, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("__cluster_metadata-0", "plain-0", "tx-0"):
        answer = call("dump", golden / "before" / name, "--records")
        assert answer.status == 0
        assert max(map(cells, answer.lines)) <= 80


def test_an_ascii_terminal_gets_utf8_all_the_same(golden):
    answer = run(
        "cat", golden / "before/plain-0", "-n", 20, env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    )
    assert answer.status == 0
    assert "日本" in answer.text


def test_a_closed_pipe_is_quiet(golden):
    command = [sys.executable, "-m", "kseg", "cat", str(golden / "before"), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    messages = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 141
    assert messages == b""


@pytest.mark.parametrize("words", [["ls"], ["dump", "--records"]], ids=str)
def test_a_full_disk_under_stdout_is_one_line_and_not_damage(golden, words):
    command = [sys.executable, "-m", "kseg", words[0], str(golden / "before/plain-0"), *words[1:]]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "kseg: cannot write the output: No space left on device\n")


@pytest.mark.parametrize(("name", "closed", "status"), [("plain-0", ">&-", 0), ("nothing-0", "2>&-", 2)])
def test_a_closed_stdout_or_stderr_is_quiet(golden, name, closed, status):
    path = golden / "before" / name
    command = ["sh", "-c", f'"{sys.executable}" -m kseg ls "{path}" {closed}']
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


def test_an_interrupt_is_one_line(golden):
    command = [sys.executable, "-m", "kseg", "dump", str(golden / "before" / "multi-segment-0"), "--records"]
    process = start(command)
    assert process.stdout.read(1)  # it waits for somebody to read the rest, which is more than a pipe holds
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"kseg: interrupted\n")


def test_an_empty_directory(tmp_path):
    (tmp_path.with_name("keys")).write_text("somebody")
    needed = {
        "export": [tmp_path.with_name("target")],
        "repack": ["--codec", "zstd"],
        "erase": ["--keys", tmp_path.with_name("keys")],
        "truncate": ["--to", "5"],
        "offload": [tmp_path.with_name("target"), "--archive"],
    }
    for verb in VERBS.keys() - {"restore", "fsck", "rewrap"}:  # of a tier and not of a log directory
        answer = call(verb, tmp_path, *needed.get(verb, []))
        assert (answer.status, answer.data) == (2, b""), verb
        assert answer.messages.startswith("kseg: no "), verb


@pytest.fixture
def open_path():
    """A folder that everybody can reach; pytest's own are of this user alone."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def run_as_nobody(closed, *calls):
    """Calls while `closed` may not be read.

    Root may read everything, so the program gives its rights up once a call before has loaded what it needs.
    """
    lines = [
        "import json, os, sys",
        "from tests.cli.calls import call",
        "calls = json.loads(sys.argv[1])",
        "for words in calls: call(*words)",
        "if os.geteuid() == 0: os.setgid(65534); os.setuid(65534)",
        "answers = [call(*words) for words in calls]",
        "print(json.dumps([[answer.status, answer.text, answer.messages] for answer in answers]))",
    ]
    words = json.dumps([[str(word) for word in call] for call in calls])
    mode = closed.stat().st_mode
    closed.chmod(0)
    try:
        done = subprocess.run(
            [sys.executable, "-c", "\n".join(lines), words], capture_output=True, text=True, check=True
        )
    finally:
        closed.chmod(mode)
    return [Answer(status, text.encode(), messages) for status, text, messages in json.loads(done.stdout)]


def test_no_permission(open_path):
    path = LogBuilder(open_path).segment().batch(3).write()
    [answer] = run_as_nobody(path, ["ls", path])
    assert (answer.status, answer.messages) == (2, f"kseg: {path}: permission denied\n")


@pytest.mark.parametrize("closed", ["beta-0", f"beta-0/{0:020d}.log"], ids=["directory", "file"])
def test_a_partition_that_may_not_be_read_does_not_look_sound_or_damaged(open_path, closed):
    for topic in ("alpha", "beta"):
        LogBuilder(open_path, topic).segment().batch(3).write()
    listed, printed, other = run_as_nobody(
        open_path / closed,
        ["ls", open_path],
        ["cat", open_path, "--format", "raw"],
        ["ls", open_path, "--topic", "alpha"],
    )
    message = f"kseg: {open_path / closed}: permission denied\n"
    assert (listed.status, listed.messages) == (printed.status, printed.messages) == (2, message)
    assert "damaged" not in listed.text
    assert len(printed.lines) == 3
    assert (other.status, other.messages) == (0, "")


def test_sizes_times_and_text():
    assert [format_size(size) for size in (0, 1023, 1024, 1536, 5 << 30, 1 << 60)] == [
        "0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 GiB", "1024.0 PiB",
    ]  # fmt: skip
    assert [format_time(ts) for ts in (-1, -5, 0, 1700000000123, 2**62)] == [
        "-", "-5", "1970-01-01T00:00:00.000Z", "2023-11-14T22:13:20.123Z", str(2**62),
    ]  # fmt: skip
    assert visible("a\n\x00é\u200b\udcff\\") == "a\\n\\x00é\\u200b\\xff\\\\"
    assert clip("日本語", 5) == "日本…"
    assert clip("abc", 3) == "abc"


def test_a_table_cuts_text_then_leaves_columns_out():
    columns = [Column("NAME", at_least=6), Column("N", right=True), Column("ID", at_least=4, droppable=1)]
    rows = [("a-long-name", 12345, "0123456789"), ("b", 1, None)]
    assert format_table(columns, rows, 80) == [
        "NAME             N  ID",
        "a-long-name  12345  0123456789",
        "b                1  -",
    ]
    assert format_table(columns, rows, 24)[1] == "a-long-name  12345  012…"
    assert format_table(columns, rows, 20)[1] == "a-long…  12345  012…"
    assert format_table(columns, rows, 14)[1] == "a-long…  12345"
    assert format_table(columns, rows, 9) == ["N…      N", "a…  12345", "b       1"]


def test_a_table_that_is_too_narrow_cut_numbers():
    columns = [Column("NAME", at_least=6), Column("N", right=True), Column("ID", at_least=4, droppable=1)]
    assert format_table(columns, [("a-long-name", 12345, "0")], 5)[1] == "a…  12345"
