"""`kseg retain`: the question, the table, the JSON and the exit statuses."""

from __future__ import annotations

import io

import pytest

from kseg.cli.main import main
from tests.cli.calls import call
from tests.log.written import START, bases
from tests.retention.test_job import make_log

FLAGS = ("--cleanup-policy", "delete", "--retention-ms", "10", "--now", START + 30)


def test_a_dry_run_shows_what_would_go(tmp_path):
    directory = make_log(tmp_path)
    answer = call("retain", directory, *FLAGS, "--dry-run")
    assert answer.status == 0
    assert answer.lines[0].split() == ["TOPIC", "PART", "BASE", "NEXT", "SIZE", "RULE", "LARGEST", "TIMESTAMP"]
    assert [line.split()[:4] for line in answer.lines[1:3]] == [["orders", "0", "0", "10"], ["orders", "0", "10", "20"]]
    assert answer.lines[3].startswith("2 segments would go in 1 partition")
    assert bases(directory) == [0, 10, 20, 30]


def test_json(tmp_path):
    make_log(tmp_path)
    answer = call("retain", tmp_path, "--topics", "orders", *FLAGS, "--json", "--yes")
    partition, summary = answer.objects
    assert (partition["topic"], partition["start_offset"]) == ("orders", 20)
    assert [segment["rule"] for segment in partition["deleted"]] == ["time", "time"]
    assert (summary["summary"]["segments"], summary["summary"]["dry_run"]) == (2, False)


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_nothing_goes_where_nobody_can_be_asked(tmp_path, more, monkeypatch):
    directory = make_log(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    answer = call("retain", directory, *FLAGS, *more)
    assert (answer.status, bases(directory)) == (2, [0, 10, 20, 30])
    assert "--yes" in answer.messages


@pytest.mark.parametrize(("reply", "left"), [("y\n", [20, 30]), ("n\n", [0, 10, 20, 30]), ("", [0, 10, 20, 30])])
def test_the_question(tmp_path, reply, left, monkeypatch):
    directory = make_log(tmp_path)

    class Terminal:
        def isatty(self):
            return True

        def readline(self):
            return reply

    monkeypatch.setattr("sys.stdin", Terminal())
    answer = call("retain", directory, *FLAGS)
    assert (answer.status, bases(directory)) == (0, left)
    assert "Delete 2 segments" in answer.messages


def test_statuses(tmp_path):
    directory = make_log(tmp_path)
    assert call("retain", directory, "--retention-ms", "10", "--dry-run").status == 2
    assert call("retain", tmp_path, *FLAGS, "--dry-run").status == 2
    assert call("retain", directory, "--retention-ms", "soon", "--dry-run").status == 2
    assert call("retain", directory, "--topics", "a,,b", "--dry-run").status == 2
    log = directory / f"{30:020d}.log"
    data = log.read_bytes()
    log.write_bytes(data[:16] + b"\x09" + data[17:] + data)  # a magic that is none, and a sound batch behind it
    assert call("retain", directory, *FLAGS, "--dry-run").status == 1
    assert main(["retain", "--help"]) == 0
