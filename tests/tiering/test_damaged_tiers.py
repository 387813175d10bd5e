"""What is said of tiers that are damaged, closed to us, or none at all."""

from __future__ import annotations

import shutil

import pytest
from Crypto.PublicKey import RSA

import kseg
from kseg.errors import CorruptRecordError, FormatError, LogError, OptionError, StorageError, TruncatedError
from kseg.tiering.chunks import Transform
from kseg.tiering.crypto import KeyRing, SegmentCipher
from kseg.tiering.layout import ChunkedPart
from kseg.tiering.objects import check_remote
from kseg.tiering.reading import open_tiered_store
from tests.tiering.tiers import upload, values, write_log


@pytest.fixture
def damaged(tmp_path):
    """A tier with one compressed segment, and the paths of its objects."""
    partition = write_log(tmp_path / "data", segments=2)
    (name,) = upload(partition, tmp_path / "tier", transform=Transform(compression=True), chunk_size=1000)
    return tmp_path / "tier", {part: tmp_path / "tier" / name.key(part) for part in ChunkedPart}


def test_a_short_log_object_is_named(damaged):
    tier, objects = damaged
    log = objects[ChunkedPart.LOG]
    log.write_bytes(log.read_bytes()[:-1])
    with pytest.raises(TruncatedError, match=r"\.log: the object has \d+ bytes, its manifest says \d+; 'kseg fsck'"):
        values(kseg.open_dir(tier)["orders", 0])


def test_a_missing_object_is_named(damaged):
    tier, objects = damaged
    objects[ChunkedPart.LOG].unlink()
    with pytest.raises(LogError, match=r"\.log: the object is missing, its manifest is there"):
        values(kseg.open_dir(tier)["orders", 0])


@pytest.mark.parametrize("change", ["missing", "short"])
def test_indexes_that_are_missing_or_short_are_named(damaged, change):
    tier, objects = damaged
    if change == "missing":
        objects[ChunkedPart.INDEXES].unlink()
    else:
        objects[ChunkedPart.INDEXES].write_bytes(b"")
    with pytest.raises((LogError, TruncatedError), match=r"\.indexes: the object"):
        values(kseg.open_dir(tier)["orders", 0], 50, 60)


def test_a_changed_chunk_is_named_with_its_place(damaged):
    tier, objects = damaged
    data = bytearray(objects[ChunkedPart.LOG].read_bytes())
    data[:4] = b"\0\0\0\0"
    objects[ChunkedPart.LOG].write_bytes(data)
    with pytest.raises(CorruptRecordError, match=r"\.log, byte 0: a compressed chunk cannot be read"):
        values(kseg.open_dir(tier)["orders", 0])


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"version":"1"', b'{"version":"3"}', b"\xff\xfe"])
def test_a_manifest_that_is_none_is_named(damaged, content):
    tier, objects = damaged
    objects[ChunkedPart.MANIFEST].write_bytes(content)
    with pytest.raises(FormatError, match=r"\.rsm-manifest: "):
        kseg.open_dir(tier)["orders", 0]


def test_a_segment_that_is_deleted_from_the_tier_meanwhile_is_data_loss(tmp_path):
    partition = write_log(tmp_path / "data", segments=3)
    upload(partition, tmp_path / "tier")
    log = kseg.open_dir(tmp_path / "tier")["orders", 0]
    shutil.rmtree(tmp_path / "tier")
    (tmp_path / "tier").mkdir()
    with pytest.raises((kseg.DataLossError, StorageError, LogError)):
        values(log)


def test_encrypted_segments_need_their_key(tmp_path):
    partition = write_log(tmp_path / "data", segments=2)
    key = RSA.generate(2048)
    (tmp_path / "public.pem").write_bytes(key.public_key().export_key())
    (tmp_path / "private.pem").write_bytes(key.export_key(pkcs=8))
    (tmp_path / "private.pem").chmod(0o600)
    cipher = SegmentCipher.random()
    wrapped = cipher.wrap("key1", tmp_path / "public.pem")
    upload(partition, tmp_path / "tier", transform=Transform(False, cipher), encryption=wrapped)
    log = kseg.open_dir(tmp_path / "tier", keys={"key1": tmp_path / "private.pem"})["orders", 0]
    assert values(log) == values(kseg.open_log(partition), 0, 100)
    with pytest.raises(OptionError, match="encrypted with key 'key1'; keys given: none"):
        values(kseg.open_dir(tmp_path / "tier")["orders", 0])
    (tmp_path / "private.pem").chmod(0o644)
    shared = {"keys": {"key1": tmp_path / "private.pem"}}
    assert "private" not in repr(kseg.open_dir(tmp_path / "tier", **shared).store.tier)
    assert values(kseg.open_dir(tmp_path / "tier", **shared, allow_shared_keys=True)["orders", 0])


# -- URIs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri",
    ["s3://AKIA:topsecret@bucket/x", "s3://bucket/x?secret_key=topsecret", "abfs://c@a.net/x?sas_token=topsecret"],
)
def test_a_uri_with_a_secret_is_refused_without_showing_it(tmp_path, uri):
    with pytest.raises(OptionError) as caught:
        check_remote(uri)
    assert "topsecret" not in str(caught.value)
    with pytest.raises(OptionError, match="holds credentials"):
        open_tiered_store(tmp_path, uri, KeyRing())


@pytest.mark.parametrize("uri", ["s3://bucket/x?endpoint_override=h:1&scheme=http", "abfs://c@account.net/x", "/a:b@c"])
def test_other_uris_are_taken(uri):
    check_remote(uri)


def test_a_tier_that_is_not_there_is_an_error(tmp_path):
    partition = write_log(tmp_path / "data", segments=2)
    with pytest.raises(StorageError, match="there is no such tier"):
        kseg.open_log(partition, remote=tmp_path / "none")


def test_a_log_directory_is_no_tier(golden, tmp_path):
    store, path = open_tiered_store(golden / "before", None, KeyRing())
    assert type(store).__name__ == "LocalStore"
    assert path == str(golden / "before")
    with pytest.raises(StorageError, match="no such file"):
        kseg.open_dir(tmp_path / "none").partitions  # noqa: B018
