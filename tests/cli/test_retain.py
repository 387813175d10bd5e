"""`kseg retain`: the question, the table, the JSON and the exit statuses."""

from __future__ import annotations

import io

import pytest

from kseg.cli.main import main
from tests.cli.calls import call, unreadable
from tests.log.written import START, bases
from tests.retention.test_job import make_log
from tests.tiering.cluster import make_cluster

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


@pytest.mark.parametrize("tiered", [False, True])
def test_a_directory_that_cannot_be_read_is_told(tmp_path, monkeypatch, tiered):
    """It was passed over, with status 0."""
    folder = tmp_path / "data"
    topic, more = "orders", ()
    if tiered:
        topic, more = "a", ("--remote", tmp_path / "tier", "--archive", "--local-retention-ms", 0)
        assert call("offload", make_cluster(folder), tmp_path / "tier", "--topics", topic, "--archive").status == 0
    else:
        make_log(folder)
    locked = [folder / f"{topic}-1", folder / "others-0"]
    with unreadable(monkeypatch, *locked):
        answer = call("retain", folder, "--topics", topic, *FLAGS, *more, "--dry-run")
        assert answer.status == 1, answer.messages
        assert [line for line in answer.lines if "denied" in line] == [f"failed: {locked[0]}: permission denied"]
        answer = call("retain", folder, "--topics", topic, *FLAGS, *more, "--dry-run", "--json")
        assert answer.objects[-1]["summary"]["unread"] == [f"{locked[0]}: permission denied"]
    assert call("retain", folder, "--topics", topic, *FLAGS, *more, "--dry-run").status == 0


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


# -- tiers -------------------------------------------------------------------------------------------------------------

TIERED = ("--topics", "a", "--now", START + 3_600_000, "--cleanup-policy", "delete")
EXPIRED = ("--retention-ms", 3_600_000 - 10)


@pytest.fixture
def tiered(tmp_path):
    """A log directory, and the tier that has a part of it."""
    folder, tier = make_cluster(tmp_path / "data"), tmp_path / "tier"
    given = ("--remote-storage-enable", "true", "--remote-metadata-partitions", 1)
    assert call("offload", folder, tier, "--layout", "plain", "--topics", "a", *given).status == 0
    return folder, tier


def test_a_tier(tiered):
    folder, tier = tiered
    given = (*TIERED, *EXPIRED, "--remote-storage-enable", "true", "--remote-metadata-partitions", 1)
    answer = call("retain", folder, "--remote", tier, *given, "--local-retention-ms", "-1", "--dry-run")
    assert (answer.status, bases(folder / "a-0")) == (0, [0, 10, 20, 30])
    assert answer.lines[0].split()[:7] == ["TOPIC", "PART", "BASE", "NEXT", "SIZE", "TIER", "RULE"]
    assert [line.split()[-3:-1] for line in answer.lines[1:3]] == [["remote", "time"], ["local", "start"]]
    assert answer.lines[3].startswith("1 remote segment of 1 partition would be retired")
    answer = call("retain", folder, "--remote", tier, *given, "--local-retention-ms", "-1", "--yes", "--json")
    partition, summary = answer.objects
    assert (answer.status, partition["start_offset"], bases(folder / "a-0")) == (0, 10, [10, 20, 30])
    assert (summary["summary"]["remote_segments"], summary["summary"]["waiting_segments"]) == (1, 1)
    answer = call("retain", folder, "--remote", tier, *given, "--local-retention-ms", "-1", "--yes", "--grace-ms", 0)
    assert answer.lines[-1].startswith("objects of 1 segment deleted")
    assert not list(tier.rglob(f"{0:020d}-*"))


def test_an_archive_alone(tmp_path):
    folder, tier = make_cluster(tmp_path / "data"), tmp_path / "tier"
    call("offload", folder, tier, "--topics", "a", "--archive")
    answer = call("retain", tier, "--archive", *TIERED, *EXPIRED, "--yes", "--grace-ms", 0)
    assert (answer.status, answer.lines[-1].split(",")[0]) == (0, "objects of 1 segment deleted")
    assert not list(tier.rglob(f"{0:020d}-*"))
    assert call("retain", folder, "--archive", *TIERED, *EXPIRED, "--yes").status == 2  # a log directory is no tier
    assert call("retain", tier, "--archive", "--topics", "a", "--yes").status == 2  # nobody knows its settings


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_nothing_of_a_tier_goes_where_nobody_can_be_asked(tiered, more, monkeypatch):
    folder, tier = tiered
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    given = (*TIERED, *EXPIRED, "--remote-storage-enable", "true", "--remote-metadata-partitions", 1)
    assert call("retain", folder, "--remote", tier, *given, *more).status == 2
    assert bases(folder / "a-0") == [0, 10, 20, 30]
    assert not list(tier.rglob(".kseg-*"))
