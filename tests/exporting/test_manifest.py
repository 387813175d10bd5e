"""Manifests: what is written is read again, and whatever else is there is refused."""

from __future__ import annotations

import json

import pytest

import kseg
from kseg.exporting.manifest import ExportedFile, ExportedRange, Manifest, Place, parse_manifest
from kseg.types import TopicPartition
from tests.exporting.lake import append, data_files, make_log

MANIFEST = Manifest(
    run=3,
    id="0" * 32,
    by="hour",
    columns=("key", "offset"),
    isolation="read_committed",
    ranges=(ExportedRange("orders", 0, 5, 9, 4),),
    files=(
        ExportedFile("part-1.parquet", "topic=orders/day=2026-01-01/hour=05/part-1.parquet", 100, 3),
        ExportedFile("part-2.parquet", "topic=orders/day=__HIVE_DEFAULT_PARTITION__/part-2.parquet", 50, 1),
    ),
    places={TopicPartition("orders", 0): Place(9, "id"), TopicPartition("other", 12): Place(1, None)},
)


def test_a_manifest_is_read_as_it_was_written():
    assert parse_manifest(MANIFEST.to_json(), 3) == MANIFEST


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(format="else"),
        lambda content: content.update(version=2),
        lambda content: content.update(run=4),
        lambda content: content.update(id="../../../../etc"),
        lambda content: content.pop("next"),
        lambda content: content["files"][0].update(path="../outside/part-1.parquet"),
        lambda content: content["files"][0].update(path="topic=a/../../part-1.parquet"),
        lambda content: content["files"][0].update(path="/etc/part-1.parquet"),
        lambda content: content["files"][0].update(rows=-1),
        lambda content: content["files"].append(7),
        lambda content: content["ranges"].append(["orders", 0]),
        lambda content: content["next"]["a"].update({"0": {"offset": "9", "topicId": None}}),
    ],
)
def test_what_is_not_a_manifest_is_refused(tmp_path, change):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    kseg.export(None, logs, target)
    append(logs)
    path = target / "_kseg" / "runs" / "00000001.json"
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content))
    before = data_files(tmp_path)
    with pytest.raises(kseg.LogError, match=r"00000001\.json: this is no manifest of an export"):
        kseg.export(None, logs, target)
    assert data_files(tmp_path) == before


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"null", b"[" * 100_000])
def test_no_json_at_all(tmp_path, data):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    kseg.export(None, logs, target)
    (target / "_kseg" / "runs" / "00000001.json").write_bytes(data)
    with pytest.raises(kseg.LogError, match="this is no manifest of an export"):
        kseg.export(None, logs, target)
