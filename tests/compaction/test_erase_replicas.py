"""Erasure of partitions that other brokers hold too: it is refused, or what it does not cover is named."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kseg.compaction import erase
from kseg.errors import LockedError
from kseg.log.metadata import MetaProperties, PartitionMetadata, write_meta_properties, write_partition_metadata
from tests.builders import LogBuilder
from tests.cli.calls import call
from tests.views.support import TOPIC_IDS, partition, topic, write_metadata_log

SECRET = b"person-4711"
HEX = "0123456789abcdef0123456789abcdef"
UNKNOWN = "replicas: unknown of 1 partition, no metadata tells: copies on other brokers are not covered"
HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "a+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def broker(root: Path, node: int) -> Path:
    """A broker's directory with a partition that holds the person."""
    builder = LogBuilder(root, "orders").segment().record(b"a", b"1").record(SECRET, b"secret")
    log = builder.segment().record(b"b", b"2").write()
    write_partition_metadata(str(log), PartitionMetadata(TOPIC_IDS["orders"]))
    write_meta_properties(str(root), MetaProperties(node_id=node, cluster_id="C"))
    return log


def controller(root: Path, replicas: tuple[int, ...]) -> Path:
    """A metadata log in a directory."""
    records = [topic("orders"), *(partition("orders", number, replicas) for number in (0, 1))]
    write_metadata_log(root, records)
    return root


@pytest.fixture
def orders(tmp_path) -> Path:
    """A partition on broker 1, which is no controller."""
    return broker(tmp_path / "data", 1)


@pytest.fixture
def of_two(tmp_path) -> Path:
    """A controller that knows two replicas."""
    return controller(tmp_path / "controller", (1, 2))


def holds_secret(directory: Path) -> bool:
    return any(SECRET in path.read_bytes() for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_partition_that_another_broker_holds_too_is_refused(orders, of_two, dry_run):
    report = erase(orders.parent, keys=[SECRET], metadata=of_two, dry_run=dry_run)
    assert report.refusals == (
        "orders-0: broker 2 hold it too: give their directories as well, or ask for this replica only",
    )
    assert (report.places, report.is_proof) == ((), False)
    assert holds_secret(orders)
    answer = call("erase", orders.parent, "--metadata", of_two, "--predicate", "operator:not_", "--yes")
    assert answer.status == 2
    assert "refused: orders-0: broker 2 hold it too" in answer.text


def test_replicas_that_are_not_covered_are_named(orders, of_two):
    report = erase(orders.parent, keys=[SECRET], metadata=of_two, this_replica_only=True)
    assert (report.records, report.left, report.is_proof) == (1, 0, False)
    assert report.not_covered == ("orders-0 on broker 2",)
    assert report.replicas_unknown == ()
    assert "NOT COVERED: orders-0 on broker 2" in str(report)
    assert not holds_secret(orders)


def test_all_replicas_together_are_a_proof(tmp_path, of_two):
    logs = [broker(tmp_path / "cluster" / f"broker-{node}", node) for node in (1, 2)]
    report = erase(tmp_path / "cluster", keys=[SECRET], metadata=of_two)
    assert (report.records, report.is_proof) == (2, True)
    assert report.replicas_unknown == ()
    assert not any(holds_secret(log) for log in logs)


@pytest.mark.parametrize("where", [".", "orders-0"])
def test_metadata_in_the_directory_itself_was_not_asked(orders, where):
    controller(orders.parent, (1, 2))
    report = erase(orders.parent / where, keys=[SECRET])
    assert "broker 2 hold it too" in report.refusals[0]
    assert not report.is_proof
    assert holds_secret(orders)
    report = erase(orders.parent / where, keys=[SECRET], this_replica_only=True)
    assert report.not_covered == ("orders-0 on broker 2",)
    assert not report.is_proof
    assert not holds_secret(orders)


def test_metadata_in_the_directory_that_knows_no_other_replica_is_a_proof(orders):
    controller(orders.parent, (1,))
    report = erase(orders.parent, keys=[SECRET])
    assert (report.records, report.is_proof, report.replicas_unknown) == (1, True, ())
    assert "replicas" not in str(report)


def test_metadata_that_was_given_is_taken_and_not_that_of_the_directory(orders, of_two):
    controller(orders.parent, (1,))
    assert erase(orders.parent, keys=[SECRET], metadata=of_two).refusals


def test_a_proof_did_not_say_that_replicas_are_unknown(orders):
    report = erase(orders.parent, keys=[SECRET])
    assert (report.records, report.is_proof) == (1, True)
    assert report.to_dict()["replicas_unknown"] == ["orders-0"]
    assert UNKNOWN in report.lines()


def test_metadata_that_does_not_know_a_topic_tells_nothing_of_its_replicas(orders, tmp_path):
    root = tmp_path / "controller"
    write_metadata_log(root, [topic("bills"), partition("bills")])
    report = erase(orders.parent, keys=[SECRET], metadata=root)
    assert report.replicas_unknown == ("orders-0",)
    assert UNKNOWN in report.lines()


@pytest.mark.parametrize("kind", ["future", "delete", "stray"])
def test_what_was_set_aside_of_a_refused_partition_was_erased(orders, of_two, kind):
    aside = shutil.copytree(orders, orders.parent / f"orders-0.{HEX}-{kind}")
    (aside / f"{9:020d}.log.deleted").write_bytes(SECRET)
    report = erase(orders.parent, keys=[SECRET], metadata=of_two)
    assert len(report.refusals) == 1
    assert (report.places, report.deleted_files) == ((), ())
    assert (aside / f"{9:020d}.log.deleted").exists()
    assert SECRET in (aside / f"{0:020d}.log").read_bytes()
    report = erase(orders.parent, keys=[SECRET], metadata=of_two, this_replica_only=True)
    assert report.records == 2
    assert report.not_covered == ("orders-0 on broker 2",)
    assert not holds_secret(orders.parent)


@pytest.fixture
def kept(orders) -> Path:
    """Quarantine in a directory that has no segment, and is no partition to a broker."""
    quarantine = orders.parent / "orders-1" / ".kseg" / "quarantine" / "run"
    quarantine.mkdir(parents=True)
    (orders.parent / "orders-1" / "notes.txt").touch()
    return Path(shutil.copy(orders / f"{0:020d}.log", quarantine))


def test_quarantine_of_a_refused_partition_without_segments_was_deleted(orders, of_two, kept):
    report = erase(orders.parent, keys=[SECRET], metadata=of_two)
    assert [text.partition(":")[0] for text in report.refusals] == ["orders-0", "orders-1"]
    assert kept.exists()
    report = erase(orders.parent, keys=[SECRET], metadata=of_two, this_replica_only=True)
    assert report.not_covered == ("orders-0 on broker 2", "orders-1 on broker 2")
    assert not kept.exists()


def test_quarantine_was_deleted_in_a_directory_that_another_process_held(orders, kept, tmp_path):
    records = [topic("orders"), partition("orders", 0, (1, 2)), partition("orders", 1, (1,))]
    write_metadata_log(tmp_path / "controller", records)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, orders.parent / ".lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        holder.stdout.readline()
        with pytest.raises(LockedError):
            erase(orders.parent, keys=[SECRET], metadata=tmp_path / "controller")  # only the quarantine may go
        holder.communicate()
    assert kept.exists()
    assert len(erase(orders.parent, keys=[SECRET], metadata=tmp_path / "controller").deleted_quarantine) == 1


def test_an_only_replica_without_segments_is_not_taken_for_one_elsewhere(orders, kept):
    controller(orders.parent, (1,))
    report = erase(orders.parent, keys=[SECRET])
    assert (report.refusals, report.not_covered, report.is_proof) == ((), (), True)
    assert not kept.exists()


@pytest.mark.parametrize("other", ["cluster", "topic"])
def test_metadata_of_another_cluster_or_topic_was_taken_for_proof(orders, tmp_path, other):
    metadata = controller(tmp_path / "controller", (1,))
    write_meta_properties(str(metadata), MetaProperties(node_id=1, cluster_id="C"))
    if other == "cluster":
        write_meta_properties(str(orders.parent), MetaProperties(node_id=1, cluster_id="D"))
    else:
        write_partition_metadata(str(orders), PartitionMetadata("AAAAAAAAAAAAAAAAAAAAEQ"))
    report = erase(orders.parent, keys=[SECRET], metadata=metadata)
    assert (report.places, report.is_proof) == ((), False)
    reason = {"cluster": "it belongs to cluster D", "topic": "its id is AAAAAAAAAAAAAAAAAAAAEQ"}[other]
    assert [text.startswith(f"orders: {reason}") for text in report.refusals] == [True]
    assert holds_secret(orders)


def test_a_folder_that_a_broker_deletes_may_be_of_an_earlier_topic_of_the_name(orders, tmp_path):
    metadata = controller(tmp_path / "controller", (1,))
    earlier = orders.parent / f"orders-0.{HEX}-delete"
    shutil.copytree(orders, earlier)
    write_partition_metadata(str(earlier), PartitionMetadata("AAAAAAAAAAAAAAAAAAAAEQ"))
    report = erase(orders.parent, keys=[SECRET], metadata=metadata)
    assert (report.records, report.is_proof) == (2, True)
    assert not holds_secret(orders.parent)
