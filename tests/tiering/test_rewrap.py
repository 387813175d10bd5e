"""Key rotation: the data keys of an encrypted tier wrapped anew, by its manifests alone, whatever fails."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil

import pytest
from Crypto.Cipher import PKCS1_OAEP
from Crypto.Hash import SHA3_512
from Crypto.PublicKey import RSA

from kseg.errors import OptionError
from kseg.tiering import fsck, rewrap
from kseg.tiering import objects as tier_objects
from kseg.tiering.fsck_report import Kind
from kseg.tiering.objects import RetryPolicy
from kseg.tiering.rewrap_report import Status
from tests.cli.calls import call
from tests.tiering.cluster import QUICK, make_cluster, run
from tests.tiering.rewrapped import SUFFIX, data_keys, files, key_ids, manifests, read

ONCE = RetryPolicy(1)


@pytest.fixture
def keys(rewrap_keys):
    return rewrap_keys


@pytest.fixture
def tier(golden, tmp_path):
    return shutil.copytree(golden / "aiven" / "encrypted" / "remote", tmp_path / "tier")


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
