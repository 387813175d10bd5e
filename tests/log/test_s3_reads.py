"""A log directory whose files lie in a bucket, as a backup of one does, is read as on a disk."""

from __future__ import annotations

import shutil

import kseg
from tests.log.rows import plain_rows


def test_a_backup_in_a_bucket_is_read_as_the_directory(s3, golden):
    uri = s3.bucket("backup").replace("?", "/broker-1?")
    shutil.copytree(golden / "before", s3.folder / "backup" / "broker-1")
    here, there = kseg.open_dir(golden / "before"), kseg.open_dir(uri)
    assert [(log.topic, log.partition) for log in there] == [(log.topic, log.partition) for log in here]
    for name in ("tx", 0), ("plain", 0), ("compact-plain", 0):
        assert plain_rows(there[name].read(isolation="read_committed")) == plain_rows(
            here[name].read(isolation="read_committed")
        )
        assert there[name].last_stable_offset == here[name].last_stable_offset
    assert there["tx", 0].offset_for_time(1_700_000_002_000) == here["tx", 0].offset_for_time(1_700_000_002_000)
