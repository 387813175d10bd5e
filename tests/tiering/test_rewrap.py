"""Key rotation: the data keys of an encrypted tier wrapped anew, by its manifests alone, whatever fails."""

from __future__ import annotations

import base64
import functools
import json
import os
import re
import shutil

import pytest
from Crypto.Cipher import PKCS1_OAEP
from Crypto.Hash import SHA3_512
from Crypto.PublicKey import RSA

import kseg
from kseg.errors import OptionError, StorageError
from kseg.tiering import crypto, fsck, rewrap
from kseg.tiering import objects as tier_objects
from kseg.tiering.crypto import KeyRing
from kseg.tiering.fsck_report import Kind
from kseg.tiering.manifest import SegmentManifest
from kseg.tiering.objects import RetryPolicy
from kseg.tiering.rewrap_report import Status
from tests.cli.calls import call
from tests.faults.disk import each_fault
from tests.faults.forgetful import each_crash
from tests.faults.store import at, failing
from tests.tiering.cluster import QUICK, make_cluster, run

ONCE = RetryPolicy(1)
SUFFIX = ".kseg-old"


@pytest.fixture(scope="module")
def keys(golden_keys, tmp_path_factory):
    """The golden tier's private key, and a new one, by their ids."""
    new = tmp_path_factory.mktemp("new") / "private2.pem"
    new.write_bytes(RSA.generate(2048).export_key(pkcs=8))
    new.chmod(0o600)
    return {**golden_keys, "new": new}


@pytest.fixture
def tier(golden, tmp_path):
    return shutil.copytree(golden / "aiven" / "encrypted" / "remote", tmp_path / "tier")


def files(tier):
    return {path.relative_to(tier).as_posix(): path.read_bytes() for path in sorted(tier.rglob("*")) if path.is_file()}


def manifests(tier):
    return sorted(tier.rglob("*.rsm-manifest"))


def key_ids(tier):
    return [SegmentManifest.parse(path.read_bytes()).encryption.key_id for path in manifests(tier)]


def data_keys(tier, keys):
    """Each segment's cipher; a manifest that nobody can unwrap raises."""
    ring = KeyRing(keys)
    return [ring.unwrap(SegmentManifest.parse(path.read_bytes()).encryption) for path in manifests(tier)]


def read(tier, keys):
    return sum(batch.num_rows for log in kseg.open_dir(tier, keys=keys) for batch in log.read())


def test_only_the_data_keys_change(tier, keys, golden):
    before, ciphers = files(tier), data_keys(tier, keys)
    report = rewrap(str(tier), keys=keys, to="new")
    assert (report.rewrapped, report.failed) == (len(ciphers), 0)
    after = files(tier)
    assert after.keys() == before.keys()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {name for name in before if name.endswith(".rsm-manifest")}
    form = re.compile(rb'"dataKey":"([a-z0-9]+):([A-Za-z0-9+/]+=*)"')
    for name in changed:
        assert form.sub(b"", after[name]) == form.sub(b"", before[name])
        assert form.search(after[name])[1] == b"new"
    assert data_keys(tier, {"new": keys["new"]}) == ciphers
    assert read(tier, {"new": keys["new"]}) == read(golden / "aiven" / "encrypted" / "remote", keys) > 8000
    with pytest.raises(OptionError, match="encrypted with key 'new'"):
        read(tier, {"key1": keys["key1"]})


def test_the_wrapping_is_the_plugins(tier, keys):
    """RSA-OAEP with SHA3-512, also for the mask: unwrapped here without kseg."""
    old = {path: json.loads(path.read_bytes())["encryption"]["dataKey"].partition(":")[2] for path in manifests(tier)}
    rewrap(str(tier), keys=keys, to="new")

    def unwrapped(key_id, text):
        return PKCS1_OAEP.new(RSA.import_key(keys[key_id].read_bytes()), SHA3_512).decrypt(base64.b64decode(text))

    for path in manifests(tier):
        key_id, _, text = json.loads(path.read_bytes())["encryption"]["dataKey"].partition(":")
        assert key_id == "new"
        assert unwrapped("new", text) == unwrapped("key1", old[path])


def test_a_second_run_and_a_dry_run_change_nothing(tier, keys):
    before = files(tier)
    report = rewrap(str(tier), keys=keys, to="new", dry_run=True)
    assert (report.rewrapped, files(tier)) == (len(manifests(tier)), before)
    rewrap(str(tier), keys=keys, to="new")
    after = files(tier)
    report = rewrap(str(tier), keys={"new": keys["new"]}, to="new")
    assert {found.status for found in report.segments} == {Status.CURRENT}
    assert (report.rewrapped, files(tier)) == (0, after)
    rewrap(str(tier), keys=keys, to="key1")  # and back
    assert set(key_ids(tier)) == {"key1"}


def test_what_cannot_be_unwrapped_is_reported_and_left_alone(tier, keys):
    """Another pair's key in one manifest, garbage in a second: the others are done."""
    foreign, broken, *others = manifests(tier)
    text = foreign.read_text()
    foreign.write_text(text.replace('"dataKey":"key1:', '"dataKey":"lost:'))
    broken.write_bytes(b"{")
    before = foreign.read_bytes()
    report = rewrap(str(tier), keys=keys, to="new")
    assert (report.rewrapped, report.failed) == (len(others), 2)
    errors = [found for found in report.segments if found.error is not None]
    assert ("key 'lost'" in errors[0].error, errors[0].is_damage) == (True, False)
    assert ("no JSON" in errors[1].error, errors[1].is_damage) == (True, True)
    assert (foreign.read_bytes(), broken.read_bytes()) == (before, b"{")
    assert not list(tier.rglob(f"*{SUFFIX}"))


def test_a_mistaken_address_is_no_rotation(tier, keys, tmp_path):
    """Whoever took it for one would throw the old key away."""
    for place, topics in ((tmp_path / "elsewhere", None), (tier, ["orders"]), (tier / "tiere", None)):
        with pytest.raises(OptionError, match="holds no manifest"):
            rewrap(str(place), keys=keys, to="new", topics=topics)


def test_one_topic_only(tier, keys):
    report = rewrap(str(tier), keys=keys, to="new", topics=["tiered"])
    assert {found.topic for found in report.segments} == {"tiered"}
    assert set(key_ids(tier)) == {"key1", "new"}


def test_segments_that_are_not_encrypted(golden, tmp_path, keys):
    tier = shutil.copytree(golden / "aiven" / "compressed" / "remote", tmp_path / "plain")
    before = files(tier)
    report = rewrap(str(tier), keys=keys, to="new")
    assert {found.status for found in report.segments} == {Status.PLAIN}
    assert files(tier) == before


def test_the_new_key_has_to_be_a_private_one(tier, keys, tmp_path, golden):
    public = golden / "aiven" / "encrypted" / "keys" / "public.pem"
    with pytest.raises(OptionError, match="a public key alone could not prove"):
        rewrap(str(tier), keys={**keys, "new": public}, to="new", allow_shared_keys=True)
    with pytest.raises(OptionError, match="no key 'other' was given"):
        rewrap(str(tier), keys=keys, to="other")
    shared = shutil.copy(keys["new"], tmp_path / "shared.pem")
    os.chmod(shared, 0o644)  # noqa: PTH101
    with pytest.raises(OptionError, match="others than its owner"):
        rewrap(str(tier), keys={**keys, "new": shared}, to="new")
    short = tmp_path / "short.pem"
    short.write_bytes(RSA.generate(1024).export_key(pkcs=8))
    short.chmod(0o600)
    with pytest.raises(OptionError, match="too short"):
        rewrap(str(tier), keys={**keys, "new": short}, to="new")
    assert set(key_ids(tier)) == {"key1"}


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"dataKey":', '"dataKey" :\n '),
        lambda text: text.replace("/", "\\/"),
        lambda text: text[:-2] + ',"dataKey":"x"}}',  # inside remoteLogSegmentMetadata
        lambda text: text + "\n",
    ],
)  # fmt: skip
def test_manifests_of_other_writers_keep_their_form(tier, keys, change):
    (path, *_) = manifests(tier)
    text = change(path.read_text())
    path.write_text(text)
    cipher = data_keys(tier, keys)[0]
    report = rewrap(str(tier), keys=keys, to="new")
    assert report.failed == 0
    after = path.read_text()
    token = re.compile(r'"(?:key1|new):[^"]*"')
    assert token.sub("", after) == token.sub("", text)
    assert data_keys(tier, {"new": keys["new"]})[0] == cipher


def test_a_data_key_that_is_there_twice_is_refused(tier, keys):
    (path, *_) = manifests(tier)
    text = path.read_text()
    token = re.search(r'"dataKey":"[^"]*"', text)[0]
    path.write_text(text.replace(token, f"{token},{token}"))
    report = rewrap(str(tier), keys=keys, to="new")
    assert ["2 times" in found.error for found in report.segments if found.error] == [True]


# -- what a run that dies leaves ---------------------------------------------------------------------------------------


def check_readable(tier, keys, ciphers):
    """Every segment can be read with one of the keys, and fsck says what to do about the rest."""
    assert data_keys(tier, keys) == ciphers
    found = fsck(str(tier), deep=False)
    assert {finding.kind for finding in found.findings} <= {Kind.REWRAP, Kind.STRANGER}
    assert found.is_sound
    kept = {finding.keys[0] for finding in found.findings if finding.kind is Kind.REWRAP}
    assert kept == {path.relative_to(tier).as_posix() for path in tier.rglob(f"*{SUFFIX}")}
    assert all("run 'kseg rewrap' again" in f.text for f in found.findings if f.kind is Kind.REWRAP)


def check_finished(tier, keys, ciphers):
    report = rewrap(str(tier), keys=keys, to="new")
    assert report.failed == 0
    assert set(key_ids(tier)) == {"new"}
    assert not list(tier.rglob(f"*{SUFFIX}"))
    assert data_keys(tier, keys) == ciphers


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("kind", ["once", "answer"])
def test_every_call_of_the_store_can_fail(tier, keys, tmp_path, kind):
    for path in (path for manifest in manifests(tier)[2:] for path in tier.rglob(f"{manifest.stem}.*")):
        path.unlink()
    ciphers, number, failed = data_keys(tier, keys), 0, 1
    while failed:
        number += 1
        work = shutil.copytree(tier, tmp_path / f"fault-{number}")
        with failing(at(number, kind), str(work)) as faults:
            try:
                report = rewrap(str(work), keys=keys, to="new", retry=ONCE, workers=1)
                assert report.failed == faults.failed
            except StorageError:
                assert faults.failed
        failed = faults.failed
        check_readable(work, keys, ciphers)
        check_finished(work, keys, ciphers)
    assert number > 8


@pytest.fixture(scope="module")
def start(golden, tmp_path_factory):
    """A tier of one encrypted segment."""
    folder = tmp_path_factory.mktemp("start")
    source = golden / "aiven" / "encrypted" / "remote"
    (first, *_) = manifests(source)
    target = folder / "tier" / first.parent.relative_to(source)
    target.mkdir(parents=True)
    for path in first.parent.glob(f"{first.stem}.*"):
        shutil.copy(path, target)
    return folder


@pytest.fixture
def quick(monkeypatch):
    """Keys are parsed once, which takes longest; the disks of these tests decide what is durable."""
    monkeypatch.setattr(crypto, "_import_key", functools.lru_cache(crypto._import_key))
    monkeypatch.setattr(os, "fsync", lambda _: None)


def job_with(keys):
    def job(folder, promise):
        report = rewrap(str(folder / "tier"), keys=keys, to="new", retry=QUICK, workers=1)
        if not report.failed:
            promise("rewrapped")

    return job


def checker(keys, ciphers):
    def check(folder, end):
        check_readable(folder / "tier", keys, ciphers)
        if end.promised:
            assert key_ids(folder / "tier") == ["new"]
        check_finished(folder / "tier", keys, ciphers)

    return check


@pytest.mark.usefixtures("quick")
def test_every_operation_of_a_disk_can_fail(start, keys, tmp_path):
    ciphers = data_keys(start / "tier", keys)
    assert each_fault(start, job_with(keys), checker(keys, ciphers), folder=tmp_path) > 20


@pytest.mark.usefixtures("quick")
def test_whatever_a_disk_forgets(start, keys, tmp_path):
    ciphers = data_keys(start / "tier", keys)
    assert each_crash(start, job_with(keys), checker(keys, ciphers), folder=tmp_path) > 5


@pytest.mark.parametrize("left", [None, b"", b'{"version":"1","chunkInd'])
def test_a_store_that_tears_what_it_replaces(tier, keys, left):
    """The manifest is lost, and its copy is there: fsck says so, no orphan is deleted, and a run puts it right."""
    (path, *_) = manifests(tier)
    ciphers = data_keys(tier, keys)
    path.rename(f"{path}{SUFFIX}")
    if left is not None:
        path.write_bytes(left)
    found = fsck(str(tier))
    assert not found.is_sound
    assert any("run" in f.text and "kseg rewrap" in f.text for f in found.findings)
    assert not [f for f in found.findings if f.kind in (Kind.ORPHAN, Kind.STRANGER)]
    check_finished(tier, keys, ciphers)


def test_what_is_left_of_a_segment_that_is_gone(tier, keys):
    """A manifest must not come back without its segment; fsck says that the copy can go."""
    (path, *_) = manifests(tier)
    path.rename(f"{path}{SUFFIX}")
    path.with_suffix(".log").unlink()
    rewrap(str(tier), keys=keys, to="new")
    assert not path.exists()
    assert [finding.kind for finding in fsck(str(tier)).findings if "rewrap" in finding.text] == []
    path.with_suffix(".indexes").unlink()
    (found,) = [finding for finding in fsck(str(tier)).findings if finding.kind is Kind.STRANGER]
    assert found.text.endswith("of a segment that is gone: delete it")


def test_a_copy_with_another_data_key_is_not_dropped(tier, keys):
    first, second, *_ = manifests(tier)
    copy = first.with_name(first.name + SUFFIX)
    shutil.copy(second, copy)
    rewrap(str(tier), keys=keys, to="key1")
    assert copy.exists()
    assert read(tier, keys) > 8000  # readers do not see it
    report = rewrap(str(tier), keys=keys, to="key1")
    assert ["another data key" in found.error for found in report.segments if found.error] == [True]


def test_a_segment_that_is_deleted_meanwhile_does_not_come_back(tier, keys, monkeypatch):
    """A manifest alone would promise a segment."""
    (path, *_) = manifests(tier)
    put = tier_objects.TierObjects._put_once

    def put_and_lose(self, key, pieces):
        for part in (".log", ".indexes", ".rsm-manifest") if path.stem in key and key.endswith(SUFFIX) else ():
            path.with_suffix(part).unlink()
        return put(self, key, pieces)

    monkeypatch.setattr(tier_objects.TierObjects, "_put_once", put_and_lose)
    report = rewrap(str(tier), keys=keys, to="new", workers=1)
    assert [found.status for found in report.segments].count(Status.GONE) == 1
    assert not list(tier.rglob(f"{path.stem}*"))


def test_on_s3(s3, tmp_path, keys, golden, monkeypatch):
    """Killed in the middle, then finished; read back with the new key alone."""
    folder, uri = make_cluster(tmp_path / "data", segments=3), s3.bucket("tier")
    public = golden / "aiven" / "encrypted" / "keys" / "public.pem"
    run(folder, uri, layout="chunked", archive=True, encrypt=("key1", public))
    put, count = tier_objects.TierObjects._put_once, 0

    def put_and_die(self, key, pieces):
        nonlocal count
        count += 1
        if count == 4:
            s3.kill()
        return put(self, key, pieces)

    with monkeypatch.context() as patch:
        patch.setattr(tier_objects.TierObjects, "_put_once", put_and_die)
        report = rewrap(uri, keys=keys, to="new", workers=1, retry=ONCE)
    assert (report.rewrapped, report.failed) == (1, 1)
    assert "kseg-test-only" not in str(report.to_dict())  # the secret
    s3.start()
    found = fsck(uri, deep=True, keys=keys, retry=QUICK)
    assert {finding.kind for finding in found.findings} <= {Kind.REWRAP}
    report = rewrap(uri, keys=keys, to="new", retry=QUICK)
    assert (report.rewrapped, report.failed) == (1, 0)
    found = fsck(uri, deep=True, keys={"new": keys["new"]}, retry=QUICK)
    assert (found.segments, found.findings) == (2, ())


def test_the_command_line(tier, keys):
    given = ("--remote-keys", ",".join(f"{key}={file}" for key, file in keys.items()), "--to", "new")
    assert call("rewrap", tier, *given).status == 2  # nobody to ask
    answer = call("rewrap", tier, *given, "--dry-run")
    total = len(manifests(tier))
    assert (answer.status, answer.lines[-1]) == (0, f"{total} data keys would be wrapped with 'new'")
    answer = call("rewrap", tier, *given, "--topic", "tiered", "--yes", "--json")
    assert (answer.status, answer.objects[-1]["summary"]["rewrapped"]) == (0, len(answer.objects) - 1)
    (path, *_) = [path for path in manifests(tier) if "tiered-tx" in str(path)]
    path.write_bytes(b"{")
    assert call("rewrap", tier, *given, "--yes").status == 1
    assert call("rewrap", tier, "--remote-keys", f"new={keys['new']}", "--to", "new", "--dry-run").status == 1
    path.unlink()
    assert call("rewrap", tier, "--remote-keys", f"new={keys['new']}", "--to", "new", "--dry-run").status == 0
    assert "PRIVATE" not in answer.text
