"""Reading a tier: what is fetched, and which of several uploads counts."""

from __future__ import annotations

import itertools
import pickle
import shutil

import pyarrow as pa
import pytest

import kseg
from kseg.errors import CorruptRecordError
from kseg.index.epoch import EpochStart
from kseg.internal.remote_log_metadata import SEGMENT_METADATA_UPDATE
from kseg.log.partition import Log
from kseg.log.plan import plan_splits, read_splits
from kseg.schema import select_columns
from kseg.storage import LocalStore
from kseg.tiering.chunks import Transform
from kseg.tiering.layout import ChunkedPart, PlainPart
from kseg.tiering.segments import is_on_lineage
from kseg.tiering.store import TieredStore
from kseg.tiering.tier import Tier, open_tier
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
    upload(partition, tmp_path / f"tier-{compression}", chunk_size=chunk_size, transform=Transform(compression))
    delete_local(partition, below=20_000)
    log = kseg.open_log(partition, remote=tmp_path / f"tier-{compression}")
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


def test_partitions_that_were_never_offloaded_do_not_make_it_look_for_them_again(tmp_path, monkeypatch):
    write_log(tmp_path / "data", "orders-0")
    for number in range(5):
        write_log(tmp_path / "data", f"other-{number}", segments=2, count=3)
    upload(tmp_path / "data/orders-0", tmp_path / "tier")
    walks = []
    partitions = Tier.partitions
    monkeypatch.setattr(Tier, "partitions", lambda tier: walks.append(tier) or partitions(tier))
    found = kseg.open_dir(tmp_path / "data", remote=tmp_path / "tier")
    assert len(found.partitions) == 6
    for log in found:
        log.refresh()
    assert len(walks) == 1


def test_a_segment_that_is_finished_after_the_metadata_topic_was_read_is_found(golden, tmp_path):
    """The topic is read for one partition; then another's segment is copied, told finished, and deleted locally."""
    shutil.copytree(golden / "aiven/plain", tmp_path / "tree")
    local, remote = tmp_path / "tree/local", tmp_path / "tree/remote"
    metadata = local / "__remote_log_metadata-0/00000000000000000000.log"
    whole = metadata.read_bytes()
    hidden = next(remote.glob("tiered-tx-*"))
    headers = list(kseg.open_log(metadata.parent).batches())
    metadata.write_bytes(whole[: sum(header.size for header in headers[:2])])  # one segment of `tiered`
    hidden.rename(tmp_path / "aside")
    store = TieredStore(open_tier(str(remote)), LocalStore())
    assert len(Log(store, str(local / "tiered-0")).segments) == 2
    metadata.write_bytes(whole)
    assert len(Log(store, str(local / "tiered-0")).segments) == 5
    (tmp_path / "aside").rename(hidden)
    assert len(Log(TieredStore(open_tier(str(remote)), LocalStore()), str(local / "tiered-tx-0")).segments) == 6


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
