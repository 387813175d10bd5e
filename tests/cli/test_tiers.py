"""`--remote` and `--remote-keys` of ls, cat and dump, and buckets as their path."""

from __future__ import annotations

import shutil

import pytest

from tests.cli.calls import call


@pytest.fixture
def tree(golden):
    return golden / "aiven/compressed"


@pytest.fixture
def encrypted(golden, tmp_path):
    shutil.copy(golden / "aiven/encrypted/keys/private.pem", tmp_path / "private.pem")
    (tmp_path / "private.pem").chmod(0o600)
    return golden / "aiven/encrypted", tmp_path / "private.pem"


def test_ls_shows_both_tiers(tree):
    answer = call("ls", tree / "local", "--remote", tree / "remote", "--topic", "tiered", "--segments", "--json")
    assert (answer.status, answer.messages) == (0, "")
    assert [(row["baseOffset"], row["tier"]) for row in answer.objects] == [
        (0, "remote"), (2001, "remote"), (4051, "remote"), (6101, "remote"), (8151, "local"),
    ]  # fmt: skip


def test_ls_of_a_bucket(tree, golden):
    rows = {row["topic"]: row for row in call("ls", tree / "remote", "--json").objects}
    assert {topic: (row["startOffset"], row["endOffset"]) for topic, row in rows.items()} == {
        "tiered": (0, 8151),
        "tiered-tx": (0, 2988),
    }
    plain = call("ls", golden / "tiered/remote/kafka-tiered-storage", "--json").objects
    assert [row["endOffset"] for row in plain] == [13151, 2927]


def test_cat_reads_over_the_border_of_the_tiers(tree):
    both = (tree / "local", "--remote", tree / "remote")
    answer = call("cat", *both, "--topic", "tiered", "--from", 8150, "-n", 2, "--json")
    assert [row["offset"] for row in answer.objects] == [8150, 8151]


def test_dump_shows_the_batches_of_both_tiers(tree):
    answer = call("dump", tree / "local/tiered-0", "--remote", tree / "remote", "--json")
    assert answer.status == 0
    segments = dict.fromkeys(row["segment"] for row in answer.objects)
    assert list(segments) == [0, 2001, 4051, 6101, 8151]
    assert answer.objects[-1]["last"] == 8599


def test_dump_of_one_file_of_a_bucket(tree, encrypted):
    folder = next((tree / "remote/some/prefix").glob("tiered-hug*")) / "0"
    log = next(folder.glob("00000000000000002001-*.log"))
    assert call("dump", log, "--json").objects[0]["base"] == 2001
    assert call("dump", log.with_suffix(".timeindex"), "--json").status == 0
    assert len(call("dump", folder, "--json").objects) == len(
        call("dump", tree / "local/tiered-0", "--remote", tree / "remote", "--json").objects
    ) - len(call("dump", tree / "local/tiered-0", "--json").objects)
    root, key = encrypted
    log = next((root / "remote").glob("tiered-tx-*/0/00000000000000000060-*.log"))
    answer = call("dump", log, "--remote-keys", f"key1={key}", "--json")
    assert (answer.status, answer.objects[0]["base"]) == (0, 60)


def test_keys(encrypted):
    root, key = encrypted
    wrong = call("ls", root / "remote", "--json")
    assert wrong.status == 2
    assert "encrypted with key 'key1'; keys given: none" in wrong.messages
    assert call("ls", root / "remote", "--remote-keys", f"key1={key}").status == 0
    assert call("cat", root / "remote", "--topic", "tiered", "-n", 1, "--remote-keys", f"key1={key}").status == 0
    other = key.with_name("other.pem")
    shutil.copy(key, other)
    other.chmod(0o644)
    refused = call("ls", root / "remote", "--remote-keys", f"key1={other}")
    assert refused.status == 2
    assert "others than its owner can read the key file" in refused.messages
    assert call("ls", root / "remote", "--remote-keys", f"key1={other}", "--allow-shared-keys").status == 0
    assert call("ls", root / "remote", "--remote-keys", "topsecret").status == 2
    assert "topsecret" not in call("ls", root / "remote", "--remote-keys", "topsecret").messages
