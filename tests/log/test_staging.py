"""The folder of a run, which is gone at its end whoever still writes there."""

from __future__ import annotations

import pytest

from kseg import durable
from kseg.log.staging import has_leftovers, remove_leftovers, staging


def test_folders_in_the_folder_of_a_run_go_with_it(tmp_path):
    with staging(tmp_path) as folder:
        (folder / "attempt" / "deeper").mkdir(parents=True)
        (folder / "attempt" / "file").write_bytes(b"x")
    assert list(tmp_path.iterdir()) == []


def test_an_attempt_that_still_wrote_ended_a_run_that_was_done(tmp_path, monkeypatch):
    unlink, refused = durable.unlink, []

    def write_more(path, *, missing_ok=False):
        unlink(path, missing_ok=missing_ok)
        try:
            (folder / "more").write_bytes(b"x")
        except FileNotFoundError:
            refused.append(path)

    with staging(tmp_path) as folder:
        (folder / "file").write_bytes(b"x")
        monkeypatch.setattr(durable, "unlink", write_more)
    assert len(refused) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_being_removed_when_a_run_died_is_a_leftover(tmp_path):
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt), staging(tmp_path):
        patch.setattr(durable, "remove_dir", interrupted)
    assert has_leftovers(tmp_path)
    with staging(tmp_path):
        assert len(list((tmp_path / ".kseg").iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def interrupted(_):
    raise KeyboardInterrupt


def test_a_link_in_the_folder_of_a_run_led_out_of_it(tmp_path):
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "kept").write_bytes(b"theirs")
    work = tmp_path / "a-0" / ".kseg" / "work-1"
    (work / "erased-1").mkdir(parents=True)
    (work / "erased-1" / "part").write_bytes(b"ours")
    (work / "link").symlink_to(tmp_path / "others")
    remove_leftovers(tmp_path / "a-0")
    assert not (tmp_path / "a-0" / ".kseg").exists()
    assert (tmp_path / "others" / "kept").read_bytes() == b"theirs"
