"""Names, manifests, chunk indexes, chunks and keys, against what Aiven's plugin wrote and by properties."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import logging
import pickle
import shutil
import traceback

import pytest
from Crypto.PublicKey import RSA
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import CorruptRecordError, FormatError, OptionError, StorageError, UnsupportedError
from kseg.index.epoch import EpochStart
from kseg.storage import LocalStore
from kseg.tiering.chunk_index import FixedChunkIndex, VariableChunkIndex, decode_sizes, encode_sizes
from kseg.tiering.chunks import Transform, iter_chunks, read_chunks, store_chunks, store_indexes
from kseg.tiering.crypto import KeyRing, SegmentCipher, read_key_file
from kseg.tiering.layout import ChunkedPart, PlainPart, RemoteName, parse_key
from kseg.tiering.manifest import (
    EncryptionMetadata,
    RemoteSegmentMetadata,
    SegmentIndexes,
    SegmentManifest,
    Slice,
)

UUIDS = st.binary(min_size=16, max_size=16).map(lambda raw: base64.urlsafe_b64encode(raw)[:-2].decode())
NAMES = st.builds(
    RemoteName,
    st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True).filter(lambda name: name not in (".", "..")),
    st.integers(0, 2**31 - 1),
    UUIDS,
    st.integers(0, 2**63 - 1),
    UUIDS,
)
SIZES = st.lists(st.integers(0, 2**31 - 1), max_size=40) | st.lists(st.integers(9_000, 9_300), max_size=300)


@pytest.fixture(scope="module")
def key_pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    key = RSA.generate(2048)
    private, public = folder / "private.pem", folder / "public.pem"
    private.write_bytes(key.export_key(pkcs=8))
    public.write_bytes(key.public_key().export_key())
    private.chmod(0o600)
    return private, public


def manifests(golden):
    return sorted((golden / "aiven").rglob("*.rsm-manifest"))


# -- names -------------------------------------------------------------------------------------------------------------


def test_every_object_of_the_golden_tiers_has_a_known_name(golden):
    for root in (golden / "tiered/remote", *(golden / "aiven").glob("*/remote")):
        files = [path for path in root.rglob("*") if path.is_file()]
        assert files
        for file in files:
            key = file.relative_to(root).as_posix()
            prefix, name, part = parse_key(key)
            assert name.key(part, prefix) == key
            assert prefix == ("some/prefix/" if "compressed" in root.parts else "")


@given(NAMES, st.sampled_from([*ChunkedPart, *PlainPart]), st.sampled_from(["", "a/", "some/prefix/"]))
def test_keys_of_any_name_are_taken_apart_again(name, part, prefix):
    assert parse_key(name.key(part, prefix)) == (prefix, name, part)


@pytest.mark.parametrize(
    "key",
    [
        "00000000000000000000-qM5UesaZQ-2fuz1Bk6TT9A.log",
        "tiered-B3RXWuOsQ1C167V10rAPFA/0/00000000000000000000.log",
        "tiered-B3RXWuOsQ1C167V10rAPFA/00/00000000000000000000-qM5UesaZQ-2fuz1Bk6TT9A.log",
        "tiered-B3RXWuOsQ1C167V10rAPF/0/00000000000000000000-qM5UesaZQ-2fuz1Bk6TT9A.log",
        "tiered-B3RXWuOsQ1C167V10rAPFA/0/00000000000000000000-qM5UesaZQ-2fuz1Bk6TT9A.index",
        "kafka-tiered-storage/tiered-B3RXWuOsQ1C167V10rAPFA/00000000000000000000-qM5UesaZQ-2fuz1Bk6TT9A.log",
    ],
)
def test_other_keys_are_nobodys(key):
    assert parse_key(key) is None


@pytest.mark.parametrize(
    "field", [{"topic": "a/b"}, {"topic_id": "short"}, {"segment_id": "!" * 22}, {"start_offset": -1}]
)
def test_a_name_that_no_segment_can_have_is_refused(field):
    good = RemoteName("orders", 0, "B3RXWuOsQ1C167V10rAPFA", 0, "qM5UesaZQ-2fuz1Bk6TT9A")
    with pytest.raises(OptionError):
        dataclasses.replace(good, **field)


# -- chunk index and manifest ------------------------------------------------------------------------------------------


def test_the_plugins_manifests_are_read_and_written_to_the_same_bytes(golden):
    for path in manifests(golden):
        assert SegmentManifest.parse(path.read_bytes()).to_bytes() == path.read_bytes()


def test_a_known_vector():
    assert base64.b64encode(encode_sizes([10, 20, 30])) == b"KLUv/SAPeQAAAAAAAwAAAAoBAAoAAAAe"
    assert decode_sizes(base64.b64decode(b"KLUv/SAPeQAAAAAAAwAAAAoBAAoAAAAe")) == (10, 20, 30)


@given(SIZES)
def test_sizes_of_chunks_come_back(sizes):
    assert decode_sizes(encode_sizes(sizes)) == tuple(sizes)


@given(st.binary(max_size=60))
def test_any_bytes_are_sizes_or_damage(data):
    import zstandard

    for encoded in (data, zstandard.compress(data)):
        try:
            sizes = decode_sizes(encoded)
        except CorruptRecordError:
            continue
        assert decode_sizes(encode_sizes(sizes)) == sizes


@given(st.integers(1, 1000), st.integers(0, 5000), st.integers(1, 1000), st.integers(0, 1000))
def test_chunks_of_a_fixed_index_follow_one_another(chunk_size, file_size, stored, final):
    index = FixedChunkIndex(chunk_size, file_size, stored, final)
    check_places(index)


@given(st.data(), st.integers(1, 1000), st.integers(0, 5000))
def test_chunks_of_a_variable_index_follow_one_another(data, chunk_size, file_size):
    count = -(-file_size // chunk_size)
    sizes = data.draw(st.lists(st.integers(0, 2000), min_size=count, max_size=count))
    check_places(VariableChunkIndex(chunk_size, file_size, tuple(sizes)))


def check_places(index):
    position = stored = 0
    for number, place in enumerate(index):
        assert (place.number, place.position, place.stored_position) == (number, position, stored)
        assert index.at(place.position) == index.at(place.position + place.size - 1) == number
        position, stored = position + place.size, stored + place.stored_size
    assert (position, stored) == (index.original_file_size, index.stored_size)


@given(
    NAMES,
    SIZES.filter(bool),
    st.booleans(),
    st.none() | st.builds(EncryptionMetadata, st.from_regex(r"[^:\n]+", fullmatch=True), st.binary(), st.binary()),
    st.none() | st.just(Slice(100, 34)),
    st.none() | st.booleans(),
)
def test_any_manifest_comes_back(name, sizes, compression, encryption, transaction, empty):
    index = (
        VariableChunkIndex(10, 10 * len(sizes), tuple(sizes)) if compression else FixedChunkIndex(10, sizes[0], 38, 12)
    )
    places = SegmentIndexes(Slice(0, 8), Slice(8, 12), Slice(20, 60), Slice(80, 20), transaction)
    epochs = (EpochStart(0, name.start_offset), EpochStart(3, name.start_offset))
    metadata = RemoteSegmentMetadata(name, 2**63 - 1, -1, 1, 17, epochs, empty)
    manifest = SegmentManifest(index, places, compression, encryption, metadata)
    assert SegmentManifest.parse(manifest.to_bytes()) == manifest


@given(st.data())
def test_a_manifest_with_something_changed_is_a_manifest_or_an_error(golden, data):
    raw = bytearray(manifests(golden)[0].read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(FormatError):
        SegmentManifest.parse(bytes(raw))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"version": "2"}, UnsupportedError),
        ({"version": None}, UnsupportedError),
        ({"compression": None}, CorruptRecordError),
        ({"extra": 1}, UnsupportedError),
        ({"chunkIndex": {"type": "round"}}, UnsupportedError),
        ({"segmentIndexes": {}}, CorruptRecordError),
        ({"encryption": {"dataKey": "a:b:c", "aad": ""}}, CorruptRecordError),
    ],
)
def test_what_the_plugin_refuses_is_refused(golden, change, error):
    fields = json.loads(manifests(golden)[0].read_bytes()) | change
    with pytest.raises(error, match=r"some\.path"):
        SegmentManifest.parse(json.dumps(fields).encode(), "some.path")


def test_what_the_plugin_takes_is_taken(golden):
    fields = json.loads(manifests(golden)[0].read_bytes())
    wanted = SegmentManifest.parse(json.dumps(fields).encode())
    shuffled = dict(reversed(fields.items())) | {"version": 1, "encryption": fields.get("encryption")}
    shuffled["remoteLogSegmentMetadata"]["more"] = True
    assert SegmentManifest.parse(json.dumps(shuffled, indent=1).encode() + b"\ntrailing") == wanted
    del shuffled["remoteLogSegmentMetadata"]
    assert SegmentManifest.parse(json.dumps(shuffled).encode()).metadata is None


# -- chunks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [False, True])
@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 1000])
def test_chunks_come_back(tmp_path, compression, encrypted, size):
    transform = Transform(compression, SegmentCipher.random() if encrypted else None)
    original = bytes(i * i % 251 for i in range(size))
    pieces = [original[at : at + 70] for at in range(0, size, 70)]
    stored = list(store_chunks(iter_chunks(pieces, 100, size), transform))
    index = transform.index_of(100, size, [len(chunk) for chunk in stored])
    assert index.stored_size == sum(len(chunk) for chunk in stored)
    (tmp_path / "stored").write_bytes(b"".join(stored))
    with LocalStore().open(str(tmp_path / "stored")) as file:
        chunks = read_chunks(file, list(index), transform) if size else []
    assert b"".join(bytes(chunk) for chunk in chunks) == original


def test_what_kseg_stores_has_the_plugins_sizes(golden):
    """Chunks of the plain and the compressed golden logs, stored anew, give the plugin's own chunk index."""
    store = LocalStore()
    for path in manifests(golden):
        manifest = SegmentManifest.parse(path.read_bytes())
        if manifest.encryption is not None:
            continue
        transform, index = Transform(manifest.compression), manifest.chunk_index
        with store.open(str(path.with_suffix(".log"))) as file:
            chunks = read_chunks(file, list(index), transform)
        stored = [len(transform.store_chunk(chunk)) for chunk in chunks]
        again = transform.index_of(index.original_chunk_size, index.original_file_size, stored)
        assert again.original_file_size == index.original_file_size
        if not manifest.compression:
            assert again == index


def test_an_index_is_encrypted_whole_and_an_empty_one_stays_empty():
    transform = Transform(True, SegmentCipher.random())
    data, places = store_indexes(transform, offset=b"", timestamp=b"t" * 12, producer_snapshot=b"s", leader_epoch=b"e")
    assert [place.size for place in places] == [0, 40, 29, 29]
    assert places.transaction is None
    assert places.size == len(data)
    assert transform.restore_index(data[places.timestamp.position : places.timestamp.end]) == b"t" * 12
    assert transform.restore_index(b"") == b""


@given(st.data())
def test_a_changed_byte_of_an_encrypted_chunk_is_found(data):
    transform = Transform(False, SegmentCipher.random())
    stored = bytearray(transform.store_chunk(b"some bytes"))
    stored[data.draw(st.integers(0, len(stored) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptRecordError, match="were changed"):
        transform.restore_chunk(bytes(stored), 10)


def test_a_frame_that_lies_about_its_size_allocates_nothing():
    import zstandard

    huge = zstandard.ZstdCompressor(write_content_size=True).compress(bytes(1 << 20))
    with pytest.raises(CorruptRecordError, match="says that it has 1048576 bytes, the manifest says 100"):
        Transform(True).restore_chunk(huge, 100)
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(100))
    with pytest.raises(CorruptRecordError):
        Transform(True).restore_chunk(unsized, 100)


# -- keys --------------------------------------------------------------------------------------------------------------


def test_a_data_key_is_wrapped_and_unwrapped(key_pair):
    private, public = key_pair
    cipher = SegmentCipher.random()
    metadata = cipher.wrap("key1", public)
    assert KeyRing({"key1": private}).unwrap(metadata).decrypt(cipher.encrypt(b"secret")) == b"secret"


def test_the_wrong_key_and_a_missing_key_say_so(key_pair, tmp_path):
    private, public = key_pair
    other = tmp_path / "other.pem"
    other.write_bytes(RSA.generate(2048).export_key(pkcs=8))
    other.chmod(0o600)
    metadata = SegmentCipher.random().wrap("key1", public)
    with pytest.raises(OptionError, match="the private key for 'key1' does not unwrap"):
        KeyRing({"key1": other}).unwrap(metadata)
    with pytest.raises(OptionError, match="encrypted with key 'key1'; keys given: key2"):
        KeyRing({"key2": private}).unwrap(metadata)
    with pytest.raises(OptionError, match="must be a private key"):
        KeyRing({"key1": public}, allow_shared=True).unwrap(metadata)
    with pytest.raises(StorageError, match="no such file"):
        KeyRing({"key1": tmp_path / "none.pem"}).unwrap(metadata)


def test_a_key_file_that_others_can_read_is_refused_unless_told(key_pair, tmp_path):
    shared = tmp_path / "shared.pem"
    shutil.copy(key_pair[0], shared)
    for mode in (0o640, 0o604, 0o644):
        shared.chmod(mode)
        with pytest.raises(OptionError, match=f"others than its owner can read the key file .mode {mode:04o}."):
            read_key_file(shared)
    assert read_key_file(shared, allow_shared=True)
    shared.chmod(0o400)
    assert read_key_file(shared)


def test_secrets_are_in_no_text_and_no_pickle(key_pair, tmp_path, caplog):
    private, public = key_pair
    cipher = SegmentCipher.random()
    secret = cipher._key
    metadata = cipher.wrap("key1", public)
    ring = KeyRing({"key1": private})
    unwrapped = ring.unwrap(metadata)
    text = " ".join(map(repr, (cipher, unwrapped, ring, metadata, Transform(True, cipher))))
    with caplog.at_level(logging.DEBUG), pytest.raises(CorruptRecordError) as caught:
        unwrapped.decrypt(bytes(40))
    text += caplog.text + "".join(traceback.format_exception(caught.value))
    broken = tmp_path / "broken.pem"
    body = private.read_text().splitlines()[1]
    broken.write_text(f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n")
    broken.chmod(0o600)
    with pytest.raises(OptionError, match="not an RSA key") as caught:
        KeyRing({"key1": broken}).unwrap(metadata)
    text += "".join(traceback.format_exception(caught.value))
    for leak in (repr(secret)[2:-1], secret.hex(), base64.b64encode(secret).decode(), body):
        assert leak not in text
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(cipher)
    pickled = pickle.dumps(ring)
    assert secret not in pickled
    assert private.read_bytes()[40:80] not in pickled
    assert pickle.loads(pickled).unwrap(metadata).decrypt(cipher.encrypt(b"x")) == b"x"
