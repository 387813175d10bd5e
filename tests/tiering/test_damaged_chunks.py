"""Chunks of a tier that do not decrypt or decompress: damage like any other to a reader that passes over it."""

from __future__ import annotations

import pytest

from kseg.errors import CorruptRecordError, OptionError
from kseg.tiering.layout import ChunkedPart
from kseg.tiering.manifest import SegmentManifest
from tests.tiering.damaged import CHUNK, REASON, WAYS, DamagedTier
from tests.tiering.tiers import values


@pytest.fixture(params=WAYS)
def tier(request, tmp_path):
    return DamagedTier(tmp_path, request.param)


def offsets(records):
    return [offset for batch in records for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize("chunks", [(0,), (1,), (2, 3), (1, 4), (5,)])
def test_what_lies_in_other_chunks_is_read(tier, chunks):
    stored_at = tier.damage(1, *chunks)
    wanted = tier.offsets_without(1, *chunks)
    assert 0 < len(wanted) < 300
    records = tier.open().read(on_corrupt="skip")
    assert offsets(records) == wanted
    assert all(damage.path == str(tier.path(1, ChunkedPart.LOG)) for damage in records.damages)
    assert records.damages[0].position <= max(chunks[0] * CHUNK, 1)
    missing = [offset for damage in records.damages for offset in range(damage.start, damage.end)]
    assert sorted([*wanted, *missing]) == list(range(300))
    assert REASON.search(records.damages[0].reason)
    assert f"(stored at byte {stored_at})" in records.damages[0].reason


def test_each_place_is_a_row(tier):
    tier.damage(0, 1, 4)
    wanted = tier.offsets_without(0, 1, 4)
    rows = [row for batch in tier.open().read(on_corrupt="column") for row in batch.to_pylist()]
    told = [row for row in rows if row["_corrupt"] is not None]
    assert [row["offset"] for row in rows if row["_corrupt"] is None] == wanted
    assert len(told) == 2
    for row in told:
        assert row["_corrupt"]["file"] == str(tier.path(0, ChunkedPart.LOG))
        assert row["_corrupt"]["endOffset"] > row["_corrupt"]["startOffset"] == row["offset"]
        assert REASON.search(row["_corrupt"]["reason"])
    assert told[0]["_corrupt"]["position"] <= CHUNK < told[1]["_corrupt"]["position"] <= 4 * CHUNK


def test_a_range_begins_inside_of_a_damaged_chunk(tier):
    tier.damage(1, 2)
    whole = tier.offsets_without(1, 2)
    for start in range(100, 200, 7):
        found = offsets(tier.open().read(start, start + 40, on_corrupt="skip"))
        assert found == [offset for offset in whole if start <= offset < start + 40]


def test_a_strict_read_gives_what_is_before_and_fails(tier):
    tier.damage(1, 3)
    wanted = tier.offsets_without(1, 3)
    found = []
    with pytest.raises(CorruptRecordError, match=REASON):
        for batch in tier.open().read():
            found += batch.column("offset").to_pylist()
    assert found == wanted[: len(found)]
    assert found == [offset for offset in wanted if offset < found[-1] + 1]
    assert 130 < len(found) < 200


def test_all_chunks_of_a_segment(tier):
    index = SegmentManifest.parse(tier.path(1, ChunkedPart.MANIFEST).read_bytes(), "").chunk_index
    tier.damage(1, *range(index.count))
    records = tier.open().read(on_corrupt="skip")
    assert offsets(records) == [*range(100), *range(200, 300)]
    (damage,) = records.damages
    assert (damage.position, damage.size) == (0, index.original_file_size)
    assert (damage.start, damage.end) == (100, 200)


def test_a_damaged_index_only_costs_time(tmp_path):
    tier = DamagedTier(tmp_path, "encrypted")
    path = tier.path(1, ChunkedPart.INDEXES)
    data = path.read_bytes()
    path.write_bytes(bytes(len(data)))
    with pytest.raises(CorruptRecordError, match="indexes: encrypted bytes were changed"):
        values(tier.open(), 150, 160)
    assert offsets(tier.open().read(150, 160, on_corrupt="skip")) == list(range(150, 160))


def test_a_missing_key_is_no_damage(tmp_path):
    tier = DamagedTier(tmp_path, "both")
    tier.keys = {}
    with pytest.raises(OptionError, match="keys given: none"):
        list(tier.open().read(on_corrupt="skip"))
