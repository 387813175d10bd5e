"""The verbs recover and truncate, as they are called."""

from __future__ import annotations

import errno
import os
import shutil

import pytest

import kseg
from tests.builders import LogBuilder
from tests.cli.calls import call
from tests.recovery.states import content
from tests.views.support import partition, topic, write_metadata_log


@pytest.fixture
def damaged(tmp_path):
    """A log of three segments whose second one has a flipped bit in its second batch of three."""
    builder = LogBuilder(tmp_path / "data")
    builder.segment().batch().batch().segment().batch().batch().batch().segment().batch()
    path = builder.write()
    kseg.recover(path)
    shutil.rmtree(path / ".kseg")
    log = path / f"{10:020d}.log"
    data = bytearray(log.read_bytes())
    data[len(builder.segments[1].entries[0].data) + 80] ^= 1
    log.write_bytes(data)
    return path


def test_a_plan_is_shown_and_nothing_is_changed(damaged):
    before = content(damaged)
    answer = call("recover", damaged.parent, "--dry-run")
    assert content(damaged) == before
    assert answer.status == 1
    assert "planned" in answer.lines[1]
    assert any("records of offsets 15 to 29 go" in line for line in answer.lines)
    assert all(len(line) <= 80 for line in answer.lines[:2])


def test_recover_undo_and_salvage(damaged):
    before = content(damaged)
    [told] = call("recover", damaged, "--json").objects
    assert (told["status"], told["end_offset"], told["dropped_segments"]) == ("changed", 15, [25])
    assert told["lost"] == [[15, 30]]
    assert kseg.open_log(damaged).end_offset == 15
    answer = call("recover", damaged.parent, "--undo", "--json")
    assert (answer.status, answer.objects[0]["status"]) == (0, "undone")
    assert content(damaged) == before
    [told] = call("recover", damaged, "--salvage", "--json").objects
    assert (told["end_offset"], told["lost"], told["rewritten_segments"]) == (30, [[15, 20]], [10])
    offsets = [offset for batch in kseg.open_log(damaged).read() for offset in batch["offset"].to_pylist()]
    assert offsets == [*range(15), *range(20, 30)]


def test_what_is_destroyed_is_asked_for(damaged):
    before = content(damaged)
    answer = call("recover", damaged, "--as-kafka")
    assert (answer.status, content(damaged)) == (2, before)
    assert "--yes" in answer.messages
    assert call("truncate", damaged, "--to", 3).status == 2
    assert content(damaged) == before
    assert call("recover", damaged, "--as-kafka", "--yes").status == 1
    assert not (damaged / ".kseg").exists()


def test_truncate_and_undo(damaged):
    call("recover", damaged, "--salvage")
    before = content(damaged)
    [told] = call("truncate", damaged, "--to", 20, "--yes", "--json").objects
    assert (told["status"], told["end_offset"]) == ("changed", 20)
    assert kseg.open_log(damaged).end_offset == 15  # nothing of the batch before the hole says where the log ended
    assert call("truncate", damaged, "--undo").status == 0
    assert content(damaged) == before


def test_a_dry_undo_tells_no_end_of_the_log_that_it_does_not_know(damaged):
    call("recover", damaged, "--salvage")
    header, row, *_ = call("recover", damaged, "--undo", "--dry-run").lines
    assert header.split()[:2] == ["PARTITION", "END"]
    assert row.split()[1:] == ["-"] * 5 + ["planned"]
    [told] = call("recover", damaged, "--undo", "--dry-run", "--json").objects
    assert (damaged / ".kseg" / "quarantine" / told["undoes"]).is_dir()


def test_a_cut_that_can_be_taken_back_is_not_called_final(damaged):
    call("recover", damaged, "--salvage")
    assert "undone" not in call("truncate", damaged, "--to", 3).messages
    assert "cannot be undone" in call("truncate", damaged, "--to", 3, "--as-kafka").messages


@pytest.mark.parametrize(
    "words",
    [
        ("recover", "--salvage", "--as-kafka", "--yes"),
        ("recover", "--run", "x"),
        ("truncate", "--yes"),
        ("truncate", "--to", "-3"),
        ("truncate", "--to", "3", "--to-leader", "x", "--yes"),
        ("recover", "--salvage", "--metadata", "."),
    ],
)
def test_wrong_calls(damaged, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = content(damaged)
    assert call(words[0], damaged, *words[1:]).status == 2
    assert content(damaged) == before


def test_a_held_directory_is_status_3(damaged):
    call("recover", damaged, "--salvage")
    with kseg.append_to(damaged):
        assert call("recover", damaged).status == 3
        assert call("truncate", damaged, "--to", 3, "--yes").status == 3


def test_a_clean_directory_is_left_alone_and_says_so(damaged):
    call("recover", damaged, "--salvage")
    shutil.rmtree(damaged / ".kseg")
    (damaged.parent / ".kafka_cleanshutdown").write_bytes(b"{}")
    before = content(damaged)
    [told] = call("recover", damaged.parent, "--json").objects
    assert (told["clean"], told["status"], told["checked_segments"]) == (True, "unchanged", 0)
    assert content(damaged) == before
    answer = call("recover", damaged.parent)
    assert "clean" in answer.lines[1]
    assert "nothing was checked" in answer.messages
    [told] = call("recover", damaged.parent, "--all", "--json").objects
    assert (told["clean"], told["checked_segments"]) == (False, 3)
    assert (damaged.parent / ".kafka_cleanshutdown").read_bytes() == b"{}"


def test_one_broken_partition_does_not_stop_the_others(damaged):
    other = LogBuilder(damaged.parent, "other").segment().batch().batch().corrupt(byte=3).batch().write()
    answer = call("recover", damaged.parent, "--json")
    by_topic = {told["topic"]: told for told in answer.objects}
    assert answer.status == 1
    assert by_topic["orders"]["status"] == "changed"
    assert by_topic["other"]["status"] == "failed"
    assert "--salvage" in by_topic["other"]["error"]
    assert call("recover", other, "--salvage").status == 1


def test_one_of_several_replicas_is_not_changed_by_accident(damaged, tmp_path):
    write_metadata_log(tmp_path / "meta", [topic("orders"), partition("orders", 0, replicas=(1, 2))])
    before = content(damaged)
    asked = ("--metadata", tmp_path / "meta")
    for words in (("recover", "--salvage"), ("truncate", "--to", 5, "--yes")):
        answer = call(words[0], damaged, *words[1:], *asked)
        assert answer.status == 2
        assert "--this-replica-only" in answer.messages
    assert content(damaged) == before
    [told] = call("truncate", damaged, "--to", 5, "--yes", *asked, "--this-replica-only", "--json").objects
    assert any("brokers 1, 2" in note for note in told["notes"])


def test_one_replica_needs_no_word(damaged, tmp_path):
    write_metadata_log(tmp_path / "meta", [topic("orders"), partition("orders", 0, replicas=(1,))])
    [told] = call("recover", damaged, "--salvage", "--metadata", tmp_path / "meta", "--json").objects
    assert (told["status"], told["notes"]) == ("changed", [])


def test_a_full_disk_changes_nothing(damaged, monkeypatch):
    """What is kept does not fit: the log and the marker stay as they are, and the next run starts anew."""
    (damaged.parent / ".kafka_cleanshutdown").write_bytes(b"{}")
    before = content(damaged)

    def full(*_):
        raise kseg.StorageError("no space left on the device")

    with monkeypatch.context() as patch:
        patch.setattr("kseg.durable.write_all", full)
        assert call("recover", damaged, "--all").status == 2
    assert content(damaged) == before
    assert (damaged.parent / ".kafka_cleanshutdown").exists()
    assert call("recover", damaged, "--all").status == 1
    assert len(list((damaged / ".kseg" / "quarantine").iterdir())) == 1


def test_words_that_have_no_meaning_together(damaged):
    before = content(damaged)
    for words in (
        ("recover", "--undo", "--salvage"),
        ("recover", "--undo", "--as-kafka"),
        ("recover", "--run", "1"),
        ("recover", "--as-kafka", "--salvage", "--yes"),
        ("truncate", "--undo", "--to", 5),
        ("truncate", "--to", 5, "--to-leader", damaged),
    ):
        assert call(words[0], damaged, *words[1:]).status == 2, words
    assert call("recover", damaged, "--undo").status == 2  # there is nothing to undo
    assert content(damaged) == before


def test_a_directory_of_another_name_says_so(damaged):
    renamed = damaged.rename(damaged.with_name("orders-0.old"))
    answer = call("recover", renamed)
    assert answer.status == 2
    assert "its name is no partition's" in answer.messages


def test_a_disk_that_is_full_says_what_to_do(damaged, monkeypatch):
    def full(*_):
        error = kseg.StorageError("no space left on the device")
        error.errno = errno.ENOSPC
        raise error

    monkeypatch.setattr("kseg.durable.write_all", full)
    answer = call("recover", damaged, "--all")
    assert answer.status == 2
    assert "--as-kafka" in answer.messages
    assert not (damaged / ".kseg").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")
def test_what_root_repairs_still_belongs_to_the_broker(damaged):
    """Else a broker that is not root could not open its own log again."""
    for path in (damaged.parent, *damaged.parent.rglob("*")):
        os.chown(path, 12345, 54321)
    (damaged.parent / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 30\n")
    os.chown(damaged.parent / "recovery-point-offset-checkpoint", 12345, 54321)
    assert call("recover", damaged, "--all").status == 1
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in damaged.parent.rglob("*")}
    assert owners == {(12345, 54321)}
    assert (damaged.parent / ".lock").exists()
    assert call("recover", damaged, "--undo").status == 0
    assert {path.stat().st_uid for path in damaged.parent.rglob("*")} == {12345}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root could be led astray")
def test_root_follows_no_link_of_the_brokers(damaged, tmp_path):
    (tmp_path / "secret").write_bytes(b"root's")
    os.chown(damaged.parent, 12345, 54321)
    (damaged / f"{10:020d}.index.tmp").symlink_to(tmp_path / "secret")
    assert call("recover", damaged, "--all").status == 1
    (damaged.parent / ".lock").unlink()
    (damaged.parent / ".lock").symlink_to(tmp_path / "secret")
    assert call("recover", damaged, "--all").status == 2
    assert (tmp_path / "secret").read_bytes() == b"root's"
    assert (tmp_path / "secret").stat().st_uid == 0
