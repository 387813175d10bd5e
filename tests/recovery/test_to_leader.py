"""A replica is cut back to its leader: which epochs count, and what is no leader."""

from __future__ import annotations

import pytest

import kseg
from tests.cli.calls import call
from tests.log.written import clock, numbered

EPOCHS = "leader-epoch-checkpoint"
TOPIC_ID = "A" * 21 + "g"


def replica(log_dir, *terms, clean=False):
    """A replica of a-0: for each (leader epoch, records) what that leader wrote, in batches of five."""
    log_dir.mkdir()
    with kseg.create_log(log_dir / "a-0", clock=clock, topic_id=TOPIC_ID) as log:
        for epoch, count in terms:
            log.append(numbered(count), leader_epoch=epoch, batch_records=5)
    if clean:
        (log_dir / ".kafka_cleanshutdown").write_bytes(b"{}")
    return log_dir / "a-0"


@pytest.fixture
def follower(tmp_path):
    return replica(tmp_path / "follower", (0, 20), (1, 10))


@pytest.fixture
def leader(tmp_path):
    return replica(tmp_path / "leader", (0, 25), (2, 15))


def high_watermark(directory, offset):
    (directory.parent / "replication-offset-checkpoint").write_text(f"0\n1\na 0 {offset}\n")


@pytest.mark.parametrize("epochs", [b"0\n1\n0 0\n", b"0\n0\n", b"nonsense", None])
def test_a_replica_that_crashed_is_compared_by_the_epochs_that_its_batches_have(follower, leader, epochs):
    """A broker has recovered them when it asks its leader; by the file alone, offsets 20 to 24 would stay."""
    (follower / EPOCHS).write_bytes(epochs) if epochs is not None else (follower / EPOCHS).unlink()
    high_watermark(follower, 30)
    report = kseg.truncate(follower, to_leader=leader)
    assert report.partitions[0].end_offset == 20
    assert [tuple(entry) for entry in kseg.open_log(follower).leader_epochs()] == [(0, 0)]


@pytest.mark.parametrize("epochs", [b"0\n1\n0 0\n", b"0\n0\n", b"nonsense", None])
def test_a_leader_that_crashed_is_asked_by_the_epochs_that_its_batches_have(tmp_path, epochs):
    follower = replica(tmp_path / "follower", (0, 30))
    leader = replica(tmp_path / "leader", (0, 20), (2, 20))
    (leader / EPOCHS).write_bytes(epochs) if epochs is not None else (leader / EPOCHS).unlink()
    high_watermark(follower, 30)
    before = {path.name: path.read_bytes() for path in leader.parent.rglob("*") if path.is_file()}
    assert kseg.truncate(follower, to_leader=leader).partitions[0].end_offset == 20
    assert {path.name: path.read_bytes() for path in leader.parent.rglob("*") if path.is_file()} == before


def test_a_leader_that_has_written_nothing_yet(tmp_path, follower):
    """Its own epoch begins at its end, where a broker that starts forgets it, and gets a new one."""
    leader = replica(tmp_path / "leader", (0, 25))
    (leader / EPOCHS).write_text("0\n2\n0 0\n2 25\n")
    assert kseg.truncate(follower, to_leader=leader).partitions[0].end_offset == 20


def test_a_leader_that_is_behind_in_epochs_has_another_term_before_it(tmp_path):
    """As after an unclean election: its next epoch is above all, whatever this replica has seen; the report tells."""
    follower = replica(tmp_path / "follower", (0, 20), (2, 10), (3, 5))
    leader = replica(tmp_path / "leader", (0, 20), (2, 5))
    high_watermark(follower, 35)
    [one] = kseg.truncate(follower, to_leader=leader).partitions
    assert one.end_offset == 25
    assert any("epoch 3" in note for note in one.notes)


def test_a_replica_without_epochs_falls_to_its_high_watermark(tmp_path, leader):
    follower = replica(tmp_path / "follower", (0, 20), (1, 10), clean=True)
    (follower / EPOCHS).unlink()
    with pytest.raises(kseg.LogError, match="do not tell where the logs part"):
        kseg.truncate(follower, to_leader=leader)
    high_watermark(follower, 10)
    [one] = kseg.truncate(follower, to_leader=leader).partitions
    assert (one.end_offset, one.lost) == (10, ((10, 30),))
    assert any("high watermark" in note for note in one.notes)


@pytest.mark.parametrize("records", [0, 15])
def test_without_epochs_nothing_stays_behind_the_end_of_the_leader(tmp_path, follower, records):
    """A broker that fetches from its high watermark is told that the leader ends before it, and cuts again."""
    leader = replica(tmp_path / "leader", (0, records), clean=True)
    (leader / EPOCHS).unlink(missing_ok=True)
    high_watermark(follower, 30)
    [one] = kseg.truncate(follower, to_leader=leader).partitions
    assert one.end_offset == records
    assert any(f"leader's end {records}" in note for note in one.notes)


def test_a_log_is_not_its_own_leader(follower, tmp_path):
    (tmp_path / "link").symlink_to(follower.parent)
    for same in (follower, tmp_path / "link" / "a-0"):
        with pytest.raises(kseg.OptionError, match="itself"):
            kseg.truncate(follower, to_leader=same)


def test_a_leader_by_uri_or_by_its_log_directory(follower, leader):
    for place in (f"file://{leader}", leader.parent):
        assert kseg.truncate(follower, to_leader=place, dry_run=True).partitions[0].end_offset == 20


def test_what_is_no_leader_is_a_wrong_argument(follower, leader, tmp_path):
    (tmp_path / "empty").mkdir()
    replica(tmp_path / "other", (0, 5)).rename(tmp_path / "other" / "b-0")
    for wrong in ("missing", "empty", "other/b-0", "other", f"leader/a-0/{0:020d}.log"):
        done = call("truncate", follower, "--to-leader", tmp_path / wrong, "--yes")
        assert (done.status, done.messages.count("\n")) == (2, 1), (wrong, done.messages)
        assert wrong.split("/", maxsplit=1)[0] in done.messages
    done = call("truncate", follower, "--to-leader", "s3://bucket/a-0", "--yes")
    assert done.status == 2
    assert "local directory" in done.messages
    assert kseg.open_log(follower).end_offset == 30
