"""`verify` on tiers: healthy ones are, a tier is compared with a disk in both directions, differences are told."""

from __future__ import annotations

import shutil

import pytest

import kseg
from kseg.errors import OptionError
from kseg.tiering import restore
from tests.cli.calls import call
from tests.reference import batch as v2
from tests.tiering.conftest import TREES

TOPICS = ("tiered", "tiered-tx")


@pytest.fixture(scope="module", params=TREES)
def tier(request, golden, golden_keys, tmp_path_factory):
    """A golden tier, its keys, and a log directory in which all of it is back on disk."""
    tree, keys = golden / request.param, golden_keys if "encrypted" in request.param else None
    whole = tmp_path_factory.mktemp("whole") / "data"
    shutil.copytree(tree / "local", whole)
    assert restore(str(tree / "remote"), whole, metadata=tree / "local", keys=keys).segments == 9
    return tree, keys, whole


def differences(path, against, keys=None):
    report = kseg.verify(path, against=against, keys=keys, topics=TOPICS, workers=1)
    return [(found.code, found.topic, found.offset) for found in report.findings if found.code.startswith("KS9")]


def test_golden_tiers_are_healthy(tier):
    tree, keys, _ = tier
    report = kseg.verify(tree / "remote", keys=keys, deep=True)
    assert (report.partitions, report.segments) == (2, 9)
    assert {found.severity for found in report.findings} <= {"info"}


def test_a_tier_and_a_disk_with_the_same_records(tier):
    tree, keys, whole = tier
    remote = tree / "remote"
    ends = [kseg.open_log(whole / f"{topic}-0", remote=remote, keys=keys).end_offset for topic in TOPICS]
    codes = differences(whole, remote, keys)
    assert [code for code, *_ in codes] == ["KS904", "KS904"]  # the disk goes on behind the tier
    assert [code for code, *_ in differences(remote, whole, keys)] == ["KS904", "KS904"]
    assert all(offset < end for (_, _, offset), end in zip(codes, ends, strict=True))


def test_a_disk_that_has_another_record_than_the_tier(tier, tmp_path):
    tree, keys, whole = tier
    damaged = shutil.copytree(whole, tmp_path / "damaged")
    path = sorted((damaged / "tiered-0").glob("*.log"))[1]
    data = path.read_bytes()
    position, size = v2.walk(data)[0][3]
    batch = bytearray(data[position : position + size])
    offset = v2.read_header(bytes(batch)).base_offset
    batch[34] ^= 1  # the first timestamp, by which all are told
    path.write_bytes(data[:position] + v2.repair(bytes(batch)) + data[position + size :])
    for pair in ((damaged, tree / "remote"), (tree / "remote", damaged)):
        found = [one for one in differences(*pair, keys) if one[0] == "KS901"]
        assert found == [("KS901", "tiered", offset)]


def test_a_damaged_object_is_told_and_the_status_is_1(tier, tmp_path):
    tree, keys, whole = tier
    remote = shutil.copytree(tree / "remote", tmp_path / "remote")
    path = sorted(path for path in remote.rglob("*.log") if "-tx" not in str(path.parent))[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    words = [] if keys is None else ["--remote-keys", f"key1={keys['key1']}"]
    answer = call("verify", whole, "--against", remote, "--topics", "tiered", "--json", *words)
    assert answer.status == 1
    assert "KS907" in [line.get("code") for line in answer.objects]
    assert call("verify", remote, "--topics", "tiered", *words).status == 1


def test_the_disk_behind_its_tier_has_nothing_in_common_with_it(tier):
    """Sound, but whoever wanted a comparison has to know that there was none."""
    tree, keys, _ = tier
    found = differences(tree / "local", tree / "remote", keys)
    assert [code for code, *_ in found] == ["KS904", "KS908"] * 2


def test_internal_topics_are_in_no_tier(tier):
    tree, keys, whole = tier
    report = kseg.verify(whole, against=tree / "remote", keys=keys)
    assert "KS905" not in report.counts()


def test_offsets_that_neither_has(golden, tmp_path):
    remote = shutil.copytree(golden / "tiered/remote", tmp_path / "remote")
    for path in remote.rglob("*"):
        if path.is_file() and path.name.startswith(f"{9851:020d}"):
            path.unlink()
    report = kseg.verify(golden / "tiered/local/tiered-0", against=remote)
    [told] = [found for found in report.findings if found.code == "KS908"]
    assert "offsets 9851 to 13150 are in neither" in told.detail


def test_an_encrypted_tier_without_its_key_is_no_damage(tier):
    tree, keys, whole = tier
    if keys is None:
        return
    with pytest.raises(OptionError, match="key1"):
        kseg.verify(whole, against=tree / "remote", topics=TOPICS)
    with pytest.raises(OptionError, match="key1"):
        kseg.verify(tree / "remote")
    answer = call("verify", tree / "remote", "--against", whole)
    assert answer.status == 2
    assert "key1" in answer.messages


def test_one_partition_with_a_tier_of_many(golden):
    tree = golden / "aiven/plain"
    found = differences(tree / "local/tiered-0", tree / "remote")
    assert {topic for _, topic, _ in found} == {"tiered"}
    [own] = (tree / "remote").glob("tiered-tx-*/0")
    assert {code for code, *_ in differences(own, tree / "local")} == {"KS904", "KS908"}
