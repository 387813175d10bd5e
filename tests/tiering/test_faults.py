"""Offload on disks that fail, fill up and lose power: a record is local or in the tier; a second run finishes."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from kseg.tiering import fsck, restore
from kseg.tiering.fsck_report import Kind
from tests.faults.disk import each_fault
from tests.faults.forgetful import each_crash
from tests.log.written import bases
from tests.scale import FACTOR
from tests.tiering.cluster import MARKER, make_cluster, rows, run

LAYOUTS = ["plain", "chunked"]


@pytest.fixture(autouse=True)
def _no_real_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the disks of these tests decide what is durable


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    (folder / "data").mkdir()
    make_cluster(folder / "data", segments=3)
    return folder


@pytest.fixture(scope="module")
def whole(start):
    return rows(start / "data" / "a-0")


def move(layout):
    def job(folder, promise):
        report = run(folder / "data", folder / "tier", layout=layout, delete_local=True, workers=1)
        if report.deleted_segments == 2:
            promise("moved")

    return job


def checker(layout, whole):
    job = move(layout)

    def check(folder, end):
        data, tier = folder / "data", folder / "tier"
        check_nothing_is_lost(folder, whole)
        journal = data / "a-0" / ".kseg" / "offload.json"
        if journal.exists():  # the disk that forgets was recorded under another path
            content = json.loads(journal.read_bytes())
            journal.write_text(json.dumps({**content, "remote": str(tier)}))
        job(folder, lambda _: None)
        assert bases(data / "a-0") == [20]
        found = fsck(str(tier), metadata=data, remote_metadata_partitions=1, deep=True)
        # a local tier may keep the temporary file of a put that died, and a lost directory entry an object
        assert [finding for finding in found.findings if finding.kind is not Kind.STRANGER] == []
        assert found.segments == 2
        check_nothing_is_lost(folder, whole)
        if end.promised:
            assert (data / MARKER).exists()

    return check


def check_nothing_is_lost(folder, whole):
    data, back = folder / "data", folder / "back"
    local = bases(data / "a-0")
    assert local[-1] == 20
    if local[0]:
        restore(str(folder / "tier"), back, metadata=data)
        assert rows(back / "a-0")[: len([row for row in whole if row.offset < local[0]])] == [
            row for row in whole if row.offset < local[0]
        ]
        shutil.rmtree(back)
    assert rows(data / "a-0") == [row for row in whole if row.offset >= local[0]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_operation_can_fail(start, whole, tmp_path, layout):
    assert each_fault(start, move(layout), checker(layout, whole), folder=tmp_path, every=7) > 100


@pytest.mark.parametrize("layout", LAYOUTS if FACTOR > 1 else ["plain"])
def test_whatever_the_disk_forgets(start, whole, tmp_path, layout):
    assert each_crash(start, move(layout), checker(layout, whole), folder=tmp_path, every=5) > 30
