"""`kseg offload`, `restore` and `fsck`: arguments, tables, JSON, questions and exit statuses."""

from __future__ import annotations

import io

import pytest

from tests.cli.calls import call, unreadable
from tests.log.written import START, bases
from tests.tiering.cluster import make_cluster, rows

NOW = START + 3_600_000


@pytest.fixture
def folder(tmp_path):
    return make_cluster(tmp_path / "data")


@pytest.fixture
def flags():
    given = ("--remote-storage-enable", "true", "--remote-metadata-partitions", 1, "--local-retention-ms", 0)
    return ("--topics", "a", "--now", NOW, *given)


@pytest.mark.parametrize("layout", ["plain", "chunked"])
def test_there_and_back(tmp_path, folder, flags, layout):
    whole = rows(folder / "a-0")
    tier = tmp_path / "tier"
    answer = call("offload", folder, tier, "--layout", layout, *flags, "--delete-local", "--yes")
    assert (answer.status, len(answer.lines)) == (0, 5)
    assert answer.lines[-1].startswith("3 segments of 1 partition copied")
    assert bases(folder / "a-0") == [30]
    answer = call("fsck", tier, "--metadata", folder, "--remote-metadata-partitions", 1, "--deep")
    assert (answer.status, answer.lines[-1].split(";")[1]) == (0, " 0 findings")
    answer = call("restore", tier, folder, "--topic", "a", "--metadata", folder, "--json")
    partition, summary = answer.objects
    assert [segment["base_offset"] for segment in partition["segments"]] == [0, 10, 20]
    assert (answer.status, summary["summary"]["segments"]) == (0, 3)
    assert rows(folder / "a-0") == whole


def test_json_of_an_offload(tmp_path, folder, flags):
    answer = call("offload", folder, tmp_path / "tier", *flags, "--json")
    partition, summary = answer.objects
    assert (partition["topic"], partition["error"], len(partition["segments"])) == ("a", None, 3)
    assert summary["summary"]["layout"] == "chunked"


def test_a_directory_that_cannot_be_read_is_told(tmp_path, folder, flags, monkeypatch):
    """It was passed over, with status 0."""
    locked = folder / "a-1"
    with unreadable(monkeypatch, locked, folder / "others-0"):
        answer = call("offload", folder, tmp_path / "tier", *flags)
    assert answer.status == 1
    assert [line for line in answer.lines if "denied" in line] == [f"failed: {locked}: permission denied"]
    assert "3 segments of 1 partition copied" in answer.text
    assert call("offload", folder, tmp_path / "tier", *flags).status == 0


def test_local_files_stay_where_nobody_can_be_asked(tmp_path, folder, flags, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    answer = call("offload", folder, tmp_path / "tier", *flags, "--delete-local")
    assert answer.status == 2
    assert bases(folder / "a-0") == [0, 10, 20, 30]
    assert not (tmp_path / "tier").exists()


def test_what_is_refused_is_status_2(tmp_path, folder):
    answer = call("offload", folder, tmp_path / "tier", "--topics", "a")
    assert answer.status == 2
    assert "remote.storage.enable is not known" in answer.lines[-1]


def test_findings_are_status_1_and_orphans_are_not(tmp_path, folder, flags):
    tier = tmp_path / "tier"
    call("offload", folder, tier, *flags)
    (manifest,) = tier.rglob(f"{20:020d}-*.rsm-manifest")
    data = manifest.read_bytes()
    manifest.unlink()
    answer = call("fsck", tier)
    assert (answer.status, answer.lines[1].split()[0]) == (0, "orphan")
    manifest.write_bytes(data[:-20])
    answer = call("fsck", tier, "--json")
    assert (answer.status, answer.objects[0]["kind"]) == (1, "damage")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("restore", "tier", "new"), "say which topic, or --all"),
        (("restore", "tier", "new", "--all", "--topic", "a"), "say which topic, or --all"),
        (("fsck", "tier", "--remote-keys=-----BEGIN PRIVATE KEY-----"), "never keys themselves"),
        (("fsck", "tier", "--delete-orphans", "--yes"), "cannot be told from an upload under way"),
        (("offload", "data", "s3://me:hidden@bucket", "--archive", "--topics", "a"), "holds credentials"),
        (("offload", "data", "tier", "--archive", "--layout", "plain", "--encrypt", "k=f"), "knows no encryption"),
    ],
)
def test_wrong_calls(tmp_path, folder, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    answer = call(*words)
    assert answer.status == 2
    assert said in answer.messages
    assert "hidden" not in answer.messages
    assert "BEGIN" not in answer.messages
