"""partition.metadata, meta.properties and the clean-shutdown marker."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import LogError
from kseg.log.metadata import (
    MetaProperties,
    PartitionMetadata,
    is_uuid,
    read_clean_shutdown,
    read_meta_properties,
    read_partition_metadata,
    remove_clean_shutdown,
    restore_clean_shutdown,
    write_meta_properties,
    write_partition_metadata,
)
from kseg.storage import LocalStore

STORE = LocalStore()
TOPIC_ID = "HIrGFHuGT-6Py5E8IkMkIg"


def test_golden_partition_metadata(golden):
    paths = sorted(golden.glob("*/*/partition.metadata"))
    assert len(paths) > 20
    for path in paths:
        found = read_partition_metadata(STORE, str(path.parent))
        assert found.to_bytes() == path.read_bytes()
    assert read_partition_metadata(STORE, str(golden)) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 0\n",
        b"version: x\ntopic_id: " + TOPIC_ID.encode(),
        b"version: -1\ntopic_id: " + TOPIC_ID.encode(),
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: short",
        b"version:0\ntopic_id:" + TOPIC_ID.encode(),
        b"\xff\xfe\n\xff\n",
    ],
)
def test_malformed_partition_metadata(data):
    with pytest.raises(LogError, match=r"^p: "):
        PartitionMetadata.parse(data, "p")


def test_a_later_version_is_read():
    assert PartitionMetadata.parse(f"version: 3\ntopic_id: {TOPIC_ID}\nmore: 1\n".encode()).topic_id == TOPIC_ID


def test_writing_partition_metadata(tmp_path):
    write_partition_metadata(str(tmp_path), PartitionMetadata(TOPIC_ID))
    assert read_partition_metadata(STORE, str(tmp_path)) == PartitionMetadata(TOPIC_ID)


def test_uuids():
    assert is_uuid(TOPIC_ID)
    assert not is_uuid(TOPIC_ID[:-1])
    assert not is_uuid("!" * 22)
    assert not is_uuid("é" * 22)


def test_meta_properties(golden, tmp_path):
    found = read_meta_properties(STORE, str(golden / "before"))
    assert found == MetaProperties(1, 1, "17iJIcWgT6Cxzhj6vFi-8A", "_dWgzr2qRMJU57s7rAUiFA")
    write_meta_properties(str(tmp_path), found)
    assert read_meta_properties(STORE, str(tmp_path)) == found
    assert read_meta_properties(STORE, str(golden)) is None


def test_version_0_calls_the_node_a_broker():
    old = MetaProperties.parse(b"version=0\nbroker.id=3\nx=y\n")
    assert old == MetaProperties(0, 3, others={"x": "y"})
    assert MetaProperties.parse(b"broker.id=3\n").node_id == 3
    assert MetaProperties.parse(old.to_bytes()) == old


@pytest.mark.parametrize("data", [b"version=2\n", b"version=x\n", b"version=1\nnode.id=\n", b"a=\\u1\n"])
def test_malformed_meta_properties(data):
    with pytest.raises(LogError, match=r"^m: "):
        MetaProperties.parse(data, "m")


@given(st.binary(max_size=80))
def test_any_bytes_give_a_value_or_an_error(data):
    for parse in (PartitionMetadata.parse, MetaProperties.parse):
        with contextlib.suppress(LogError):
            parse(data)


@pytest.mark.parametrize("content", [b"", b'{"version":0,"brokerEpoch":12}'])
def test_the_marker_is_taken_away_and_put_back(tmp_path, content):
    marker = tmp_path / ".kafka_cleanshutdown"
    marker.write_bytes(content)
    assert read_clean_shutdown(STORE, str(tmp_path)) == content
    kept = remove_clean_shutdown(str(tmp_path))
    assert not marker.exists()
    restore_clean_shutdown(str(tmp_path), kept)
    assert marker.read_bytes() == content


def test_no_marker_is_made_where_there_was_none(tmp_path):
    kept = remove_clean_shutdown(str(tmp_path))
    restore_clean_shutdown(str(tmp_path), kept)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_there", [True, False])
def test_a_marker_that_was_being_written_when_the_power_went_stayed_for_good(tmp_path, is_there):
    marker = tmp_path / ".kafka_cleanshutdown"
    if is_there:
        marker.write_bytes(b"clean")
    (tmp_path / ".kafka_cleanshutdown.tmp").write_bytes(b"cl")
    kept = remove_clean_shutdown(str(tmp_path))
    assert (kept, list(tmp_path.iterdir())) == (b"clean" if is_there else None, [])
