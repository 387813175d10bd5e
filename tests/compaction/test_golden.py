"""What a real broker's cleaner made of the golden topics, kseg makes of them too, batch by batch."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kseg
from tests.cli.calls import call

GOLDEN = Path(__file__).parent.parent / "golden"

CLOCKS = {"compact-plain-0": 1_794_787_962_787, "compact-tx-0": 1_794_787_964_722}


def batches_of(directory):
    answer = call("dump", directory, "--records", "--json")
    assert answer.status == 0
    return answer.objects


@pytest.mark.parametrize("strategy", ["memory", "spill"])
@pytest.mark.parametrize("name", sorted(CLOCKS))
def test_golden_topics_become_what_the_broker_made_of_them(tmp_path, name, strategy):
    shutil.copytree(GOLDEN / "before", tmp_path / "data")
    report = kseg.compaction.compact(
        tmp_path / "data",
        topics=[name[:-2]],
        metadata=tmp_path / "data",
        settings={"min.cleanable.dirty.ratio": 0, "min.compaction.lag.ms": 0, "delete.retention.ms": 86_400_000},
        now_ms=CLOCKS[name],
        strategy=strategy,
    )
    assert [p.error or p.skipped for p in report.partitions] == [None]
    sealed = report.partitions[0].checkpoint
    expected = [batch for batch in batches_of(GOLDEN / "cleaned" / name) if batch["base"] < sealed]
    assert [batch for batch in batches_of(tmp_path / "data" / name) if batch["base"] < sealed] == expected


def test_a_directory_without_compacted_topics_ended_with_status_2(tmp_path):
    home = tmp_path / "data"
    for name in ("__cluster_metadata-0", "mixed-codecs-0", "multi-segment-0"):
        shutil.copytree(GOLDEN / "before" / name, home / name)
    shutil.copy2(GOLDEN / "before" / "meta.properties", home)
    (tmp_path / "server.properties").write_text(f"node.id=1\nprocess.roles=broker\nlog.dirs={home}\n")
    where = ["--metadata", str(home), "--server-properties", str(tmp_path / "server.properties")]
    for flag in ("--dry-run", "--estimate"):
        done = call("compact", home, *where, flag)
        assert (done.status, "its cleanup.policy is delete, not compact" in done.text) == (0, True)
    assert call("compact", home, *where, "--dry-run", "--topics", "multi-segment").status == 2
