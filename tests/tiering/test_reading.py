"""Reading a tier: what is fetched, which of several uploads counts, and what is said of damage."""

from __future__ import annotations

import itertools
import pickle
import shutil

import pyarrow as pa
import pytest
from Crypto.PublicKey import RSA

import kseg
from kseg.errors import CorruptRecordError, FormatError, LogError, OptionError, StorageError, TruncatedError
from kseg.index.epoch import EpochStart
from kseg.internal.remote_log_metadata import SEGMENT_METADATA_UPDATE
from kseg.log.plan import plan_splits, read_splits
from kseg.schema import select_columns
from kseg.tiering.chunks import Transform
from kseg.tiering.crypto import KeyRing, SegmentCipher
from kseg.tiering.layout import ChunkedPart, PlainPart
from kseg.tiering.reading import open_tiered_store
from kseg.tiering.segments import is_on_lineage
from kseg.tiering.tier import check_uri
from tests.tiering.tiers import CountingStore, delete_local, upload, uuid_of, values, write_log

WAYS = [("plain", Transform()), ("chunked", Transform()), ("chunked", Transform(compression=True))]


def counted(log):
    """Count what the log fetches from its tier from now on."""
    store = CountingStore(log.store.tier.store)
    log.store.tier.store = store
    return store.fetched


@pytest.mark.parametrize(("layout", "transform"), WAYS)
def test_a_log_is_the_same_wherever_its_segments_are(tmp_path, layout, transform):
    partition = write_log(tmp_path / "data")
    wanted = values(kseg.open_log(partition))
    upload(partition, tmp_path / "tier", layout=layout, transform=transform)
    for below in (0, 100, 200, 300):
        delete_local(partition, below=below)
        log = kseg.open_log(partition, remote=tmp_path / "tier")
        assert [s.tier for s in log.segments].count("remote") == below // 100
        assert values(log) == wanted
        assert [header.base_offset for header in log.batches()] == list(range(0, 400, 10))
        assert log.end_offset == 400
    shutil.rmtree(partition)
    assert values(kseg.open_dir(tmp_path / "tier")["orders", 0]) == wanted[:300]


@pytest.mark.parametrize("compression", [False, True])
def test_a_thousand_records_fetch_two_chunks_and_the_indexes(tmp_path, compression):
    partition = write_log(tmp_path / "data", segments=3, count=10_000, value=b"v" * 200)
    chunk_size = 512 << 10
    upload(partition, tmp_path / "tier", chunk_size=chunk_size, transform=Transform(compression))
    delete_local(partition, below=20_000)
    log = kseg.open_log(partition, remote=tmp_path / "tier")
    fetched = counted(log)
    assert values(log, 14_000, 15_000) == [b"%d:" % i + b"v" * 200 for i in range(14_000, 15_000)]
    stored = [(position, size) for kind, position, size in fetched if kind == "log"]
    if compression:
        assert len(stored) <= 2
    else:  # chunks that are stored as they are need not be fetched whole
        assert sum(size for _, size in stored) <= 2 * chunk_size
        assert len({position // chunk_size for position, _ in stored}) <= 2
    assert [kind for kind, _, _ in fetched if kind != "log"] == ["indexes"]
    fetched.clear()
    values(log, 13_000, 14_000)
    assert "indexes" not in {kind for kind, _, _ in fetched}


def test_reading_on_fetches_ahead_and_each_chunk_once(tmp_path):
    partition = write_log(tmp_path / "data", segments=2, count=5_000, value=b"v" * 100)
    upload(partition, tmp_path / "tier", chunk_size=16 << 10, transform=Transform(compression=True))
    log = kseg.open_dir(tmp_path / "tier")["orders", 0]
    fetched = counted(log)
    assert len(values(log, batch_bytes=20_000)) == 5_000
    assert any(name.startswith("kseg-tier") for name in log.store.tier.store.threads)
    stored = sorted((position, size) for kind, position, size in fetched if kind == "log")
    assert len(stored) > 10
    assert all(position + size == following for (position, size), (following, _) in itertools.pairwise(stored))


def test_damage_that_was_fetched_ahead_is_told_after_the_records_before_it(tmp_path):
    partition = write_log(tmp_path / "data", segments=2, count=5_000, value=b"v" * 100)
    (name,) = upload(partition, tmp_path / "tier", chunk_size=16 << 10, transform=Transform(compression=True))
    path = tmp_path / "tier" / name.key(ChunkedPart.LOG)
    data = bytearray(path.read_bytes())
    data[-2000:] = bytes(2000)
    path.write_bytes(data)
    found = 0
    with pytest.raises(CorruptRecordError, match=r"\.log, byte \d+: a compressed chunk"):
        for batch in kseg.open_dir(tmp_path / "tier")["orders", 0].read(batch_bytes=20_000):
            found += batch.num_rows
    assert found > 1000


def test_manifests_are_read_once(tmp_path):
    partition = write_log(tmp_path / "data")
    upload(partition, tmp_path / "tier")
    delete_local(partition, below=300)
    log = kseg.open_log(partition, remote=tmp_path / "tier")
    fetched = counted(log)
    log.refresh()
    assert log.segments[0].next_offset == 100
    assert log.segments[0].max_timestamp > 0
    assert not fetched


def test_a_split_whose_local_segment_was_offloaded_meanwhile_is_read_from_the_tier(tmp_path):
    partition = write_log(tmp_path / "data")
    (tmp_path / "tier").mkdir()
    log = kseg.open_log(partition, remote=tmp_path / "tier")
    wanted = values(log)
    splits = pickle.loads(pickle.dumps(plan_splits(log, 0, 400, target_bytes=1000)))
    upload(partition, tmp_path / "tier", transform=Transform(compression=True))
    delete_local(partition, below=300)
    found = [v for batch in read_splits(splits, select_columns(["value"])) for v in batch.column(0).to_pylist()]
    assert found == wanted


def test_a_log_that_is_open_finds_its_segments_in_the_tier_when_they_are_offloaded(tmp_path):
    partition = write_log(tmp_path / "data")
    (tmp_path / "tier").mkdir()
    log = kseg.open_log(partition, remote=tmp_path / "tier")
    wanted = values(log)
    batches = log.read(columns=["value"], batch_bytes=1000)
    first = next(iter(batches)).column(0).to_pylist()
    upload(partition, tmp_path / "tier")
    delete_local(partition, below=300)
    assert first + [v for batch in batches for v in batch.column(0).to_pylist()] == wanted


# -- which uploads count -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["chunked", "plain"])
def test_an_upload_that_is_not_complete_is_none(tmp_path, layout):
    partition = write_log(tmp_path / "data")
    names = upload(partition, tmp_path / "tier", layout=layout)
    orphan = names[1].key(ChunkedPart.MANIFEST if layout == "chunked" else PlainPart.TIME_INDEX)
    (tmp_path / "tier" / orphan).unlink()
    log = kseg.open_dir(tmp_path / "tier")["orders", 0]
    assert [segment.base_offset for segment in log.segments] == [0, 200]


def test_a_hole_between_segments_is_told(tmp_path, caplog):
    partition = write_log(tmp_path / "data")
    upload(partition, tmp_path / "tier", bases=[0, 200])
    delete_local(partition, below=300)
    log = kseg.open_log(partition, remote=tmp_path / "tier")
    assert "offsets 100 to 199 are neither local nor in the tier" in caplog.text
    assert values(log)[100] == b"200:"


@pytest.mark.parametrize("layout", ["chunked", "plain"])
def test_of_two_uploads_the_one_on_the_lineage_counts(tmp_path, layout):
    """A leader that was deposed copied offsets 100 to 199, which the next leader wrote anew."""
    ours, theirs = write_log(tmp_path / "ours"), write_log(tmp_path / "theirs", value=b"lost")
    lineage = ((0, 0), (2, 100))
    upload(ours, tmp_path / "tier", layout=layout, epochs=lineage)
    upload(theirs, tmp_path / "tier", layout=layout, bases=[100], segment_id=uuid_of("lost"), epochs=((0, 0), (1, 100)))
    (ours / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n2 100\n")
    wanted = values(kseg.open_log(ours))
    delete_local(ours, below=300)
    assert values(kseg.open_log(ours, remote=tmp_path / "tier")) == wanted
    assert values(kseg.open_dir(tmp_path / "tier")["orders", 0]) == wanted[:300]


def test_the_same_segment_twice_is_read_once(tmp_path):
    partition = write_log(tmp_path / "data")
    wanted = values(kseg.open_log(partition))
    upload(partition, tmp_path / "tier")
    upload(partition, tmp_path / "tier", bases=[100], segment_id=uuid_of("again"), event_ms=2)
    log = kseg.open_dir(tmp_path / "tier")["orders", 0]
    assert [segment.base_offset for segment in log.segments] == [0, 100, 200]
    assert uuid_of("again") in log.segments[1].path
    assert values(log) == wanted[:300]


def test_what_the_metadata_topic_does_not_call_finished_does_not_count(golden, tmp_path):
    """Of a copy of the golden tier: a segment with another id that the metadata topic never heard of."""
    shutil.copytree(golden / "aiven/plain", tmp_path / "tree")
    folder = next((tmp_path / "tree/remote").glob("tiered-t9*")) / "0"
    for file in folder.glob("00000000000000002001-*"):
        shutil.copy(file, folder / file.name.replace("nKxYnSZbRaOpq8_kHfg_qw", uuid_of("stray")))
    stray = next(folder.glob(f"*{uuid_of('stray')}.rsm-manifest"))
    stray.write_text(stray.read_text().replace('"eventTimestampMs":1', '"eventTimestampMs":9'))
    assert uuid_of("stray") in kseg.open_dir(tmp_path / "tree/remote")["tiered", 0].segments[1].path
    log = kseg.open_log(tmp_path / "tree/local/tiered-0", remote=tmp_path / "tree/remote")
    assert uuid_of("stray") not in log.segments[1].path


def test_segments_that_the_metadata_topic_knows_and_the_tier_lacks_are_told(golden, tmp_path, caplog):
    shutil.copytree(golden / "aiven/plain", tmp_path / "tree")
    folder = next((tmp_path / "tree/remote").glob("tiered-t9*")) / "0"
    for file in folder.glob("00000000000000002001-*"):
        file.unlink()
    kseg.open_log(tmp_path / "tree/local/tiered-0", remote=tmp_path / "tree/remote")
    assert "offloaded are not in the tier: 00000000000000002001-nKxYnSZbRaOpq8_kHfg_qw" in caplog.text


def test_two_topics_of_one_name_are_told_apart(golden, tmp_path):
    for name in ("plain", "compressed"):
        shutil.copytree(golden / "aiven" / name / "remote", tmp_path / "tier", dirs_exist_ok=True)
    both = kseg.open_dir(tmp_path / "tier")
    assert len(both.partitions) == 4
    assert len({log.topic_id for log in both}) == 4
    local = kseg.open_log(golden / "aiven/plain/local/tiered-0", remote=tmp_path / "tier")
    assert local.segments[0].path.startswith(str(tmp_path / "tier/tiered-t9h7vM9WQZ-7-M2nWWRAhA/0"))


@pytest.mark.parametrize(("state", "bases"), [(1, [0, 2001, 4051, 6101, 8151]), (2, [0, 2001, 6101, 8151])])
def test_a_segment_that_a_broker_began_to_delete_is_not_read(golden, tmp_path, state, bases):
    shutil.copytree(golden / "aiven/plain", tmp_path / "tree")
    with kseg.append_to(tmp_path / "tree/local/__remote_log_metadata-0") as writer:
        topic = {"name": "tiered", "id": "t9h7vM9WQZ-7-M2nWWRAhA", "partition": 0}
        update = {
            "remoteLogSegmentId": {"topicIdPartition": topic, "id": "XADY6KgKQgGOCLwvYFxrig"},
            "brokerId": 1, "eventTimestampMs": 2, "customMetadata": None, "remoteLogSegmentState": state,
        }  # fmt: skip
        framed = bytes([1, 1, 0]) + SEGMENT_METADATA_UPDATE.encode(update, 0)
        writer.append(pa.table({"value": [framed]}))
    log = kseg.open_log(tmp_path / "tree/local/tiered-0", remote=tmp_path / "tree/remote")
    assert [segment.base_offset for segment in log.segments] == bases


def test_a_prefix_that_is_glued_to_the_topics_name(tmp_path):
    partition = write_log(tmp_path / "data")
    upload(partition, tmp_path / "tier")
    (folder,) = (tmp_path / "tier").iterdir()
    folder.rename(tmp_path / "tier" / f"pre{folder.name}")
    alone = kseg.open_log("orders-0", remote=tmp_path / "tier/pre")
    assert values(alone) == values(kseg.open_log(partition), 0, 300)
    delete_local(partition, below=300)
    for uri in ("tier/pre", "tier"):  # topic ids tell which topic it is, whatever the prefix
        assert kseg.open_log(partition, remote=tmp_path / uri).start_offset == 0


EPOCHS = (EpochStart(0, 0), EpochStart(2, 100), EpochStart(5, 300))


@pytest.mark.parametrize(
    ("epochs", "next_offset", "wanted"),
    [
        ([(0, 0)], 100, True),
        ([(0, 50)], 101, False),  # reaches into the next leader's offsets
        ([(0, 50), (2, 100)], 200, True),
        ([(0, 50), (2, 101)], 200, False),
        ([(0, 50), (1, 90)], 100, False),  # an epoch that never was
        ([(2, 90)], 200, False),  # begins before its epoch
        ([(5, 400)], 500, True),
        ([(6, 400)], 500, False),
        ([(0, 50), (1, 100), (2, 100)], 200, True),  # epoch 1 wrote nothing
        ([], None, True),
    ],
)
def test_lineage(epochs, next_offset, wanted):
    assert is_on_lineage(tuple(EpochStart(*e) for e in epochs), next_offset, EPOCHS) is wanted
    assert is_on_lineage(tuple(EpochStart(*e) for e in epochs), next_offset, ()) is True


# -- damage ------------------------------------------------------------------------------------------------------------


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
        check_uri(uri)
    assert "topsecret" not in str(caught.value)
    with pytest.raises(OptionError, match="holds a secret"):
        open_tiered_store(tmp_path, uri, KeyRing())


@pytest.mark.parametrize("uri", ["s3://bucket/x?endpoint_override=h:1&scheme=http", "abfs://c@account.net/x", "/a:b@c"])
def test_other_uris_are_taken(uri):
    check_uri(uri)


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
