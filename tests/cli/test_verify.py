"""`kseg verify` on the command line."""

from __future__ import annotations

import shutil

from tests.cli.calls import call


def test_sound_logs_end_with_0(golden):
    answer = call("verify", golden / "unclean", "--deep")
    assert answer.status == 0
    assert "0 damaged, 0 warnings" in answer.text
    assert all(len(line) <= 80 for line in answer.lines)


def test_damage_ends_with_1_and_is_told(golden, tmp_path):
    shutil.copytree(golden / "before" / "plain-0", tmp_path / "plain-0")
    file = tmp_path / "plain-0" / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[1000] ^= 1
    file.write_bytes(data)
    answer = call("verify", tmp_path)
    assert answer.status == 1
    assert "KS102" in answer.text
    assert all(len(line) <= 80 for line in answer.lines)
    *findings, summary = call("verify", tmp_path, "--json", "--quiet").objects
    assert [finding["code"] for finding in findings] == ["KS102"]
    assert (findings[0]["path"], findings[0]["severity"]) == (str(file), "damage")
    assert (summary["type"], summary["sound"], summary["damage"]) == ("summary", False, 1)
    answer = call("verify", golden / "before" / "plain-0", "--against", tmp_path / "plain-0", "--json")
    assert "KS907" in [line.get("code") for line in answer.objects]


def test_wrong_calls_end_with_2(tmp_path):
    assert call("verify", tmp_path).status == 2
    assert call("verify", tmp_path / "nothing").status == 2
    assert call("verify", tmp_path, "--workers", "x").status == 2
