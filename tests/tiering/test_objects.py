"""Objects of a tier: on a local disk, in memory through fsspec, and on a real S3 server."""

from __future__ import annotations

import itertools

import pytest

import kseg
from kseg import durable
from kseg.errors import OptionError, StorageError
from kseg.tiering.objects import Digest, RetryPolicy, Tally, check_remote, open_tier

_numbers = itertools.count()
QUICK = RetryPolicy(first_pause_s=0.0)


@pytest.fixture(params=["local", "memory", pytest.param("s3", marks=pytest.mark.s3)])
def tier(request, tmp_path):
    if request.param == "s3":
        return open_tier(_with_prefix(request.getfixturevalue("s3").bucket("tier")), retry=QUICK)
    uri = str(tmp_path / "tier") if request.param == "local" else f"memory://tier-{next(_numbers)}/a"
    return open_tier(uri, retry=QUICK)


def _with_prefix(uri):
    return uri.replace("?", "/some/prefix?")


def test_put_list_read_and_delete(tier):
    assert tier.list() == []
    big = [bytes([number]) * (1 << 20) for number in range(12)]  # more than one part of an upload
    tally = Tally(lambda: big)
    assert tier.put("t-x/0/b.log", tally) == 12 << 20
    assert tally.digest == tier.digest("t-x/0/b.log") == Digest().add(b"".join(big))
    tier.put_bytes("t-x/0/a.index", b"")
    tier.put_bytes("t-y/1/c", b"0123456789")
    assert [(found.key, found.size) for found in tier.list()] == [
        ("t-x/0/a.index", 0),
        ("t-x/0/b.log", 12 << 20),
        ("t-y/1/c", 10),
    ]
    assert [found.key for found in tier.list("t-y/1")] == ["t-y/1/c"]
    assert tier.list("no/such") == []
    assert tier.read("t-y/1/c") == b"0123456789"
    assert tier.read("t-y/1/c", 3, 4) == b"3456"
    with pytest.raises(StorageError, match="10 bytes, 12 were expected"):
        tier.read("t-y/1/c", 8, 4)
    tier.put_bytes("t-y/1/c", b"new")
    assert tier.read("t-y/1/c") == b"new"
    for found in tier.list():
        tier.delete(found.key)
    tier.delete("t-y/1/c")
    assert tier.list() == []
    assert tier.stat("t-y/1/c") is None


def test_small_objects_are_put_together(tier):
    assert tier.put_together({"t/a": b"12", "t/b": b"", "t/c": b"345"}) == 5
    assert [(found.key, found.size) for found in tier.list()] == [("t/a", 2), ("t/b", 0), ("t/c", 3)]


def test_the_last_of_objects_that_are_put_together_appears_after_the_others_are_durable(tmp_path, monkeypatch):
    done = []
    changes = {name: getattr(durable, name) for name in ("fsync_file", "fsync_dir", "rename")}
    for name in changes:

        def noted(*args, name=name):
            done.append(name)
            changes[name](*args)

        monkeypatch.setattr(durable, name, noted)
    tier = open_tier(str(tmp_path))
    tier.put_together({"a": b"1", "b": b"2", "c": b"3"})
    assert done == [*["fsync_file"] * 3, *["rename"] * 2, "fsync_dir", "rename", "fsync_dir"]


def test_the_stores_clock_leaves_nothing(tier):
    tier.put_bytes("x", b"1")
    if tier.stat("x").mtime_ms < 0:  # fsspec's memory tells no times
        with pytest.raises(StorageError, match="does not tell when"):
            tier.now_ms()
        return
    assert abs(tier.now_ms() - tier.stat("x").mtime_ms) < 60_000
    assert [found.key for found in tier.list()] == ["x"]


@pytest.mark.parametrize(
    "uri",
    [
        "s3://me:hidden@bucket/x",
        "s3://hidden@bucket",
        "s3://bucket/x?secret_key=hidden",
        "https://me:hidden@account/x",
        "https://account/x?sig=hidden",
        "s3://bucket/x?X-Amz-Signature=hidden",
    ],
)
def test_credentials_in_a_uri_are_refused_and_not_shown(uri):
    with pytest.raises(OptionError, match="credentials") as caught:
        check_remote(uri)
    assert "hidden" not in str(caught.value)
    with pytest.raises(OptionError, match="credentials") as caught:
        kseg.open_dir(uri)
    assert "hidden" not in str(caught.value)
    assert check_remote("abfs://container@account/x")
