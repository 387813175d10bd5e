"""Every state that an interrupted replacement can leave, and each kind of damage that Kafka's loader was asked about.

The log has segments 0 {0-1, 2}, 3 {3, 4}, 5 {5-7} and 8 {8}; `merged` is what a cleaner makes of the first three.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import kseg
from tests.builders import LogBuilder
from tests.kafka.oracle import OracleError
from tests.recovery.states import NOW, assert_same_files, content, settled, write_checkpoints
from tests.reference import batch as v2

CONFIG = kseg.LogConfig(index_interval_bytes=1, producer_id_expiration_ms=2**31 - 1)
SETTINGS = {"index.interval.bytes": 1}
KINDS = (".log", ".index", ".timeindex")


def named(base, suffix):
    return f"{base:020d}{suffix}"


def build(folder, batches):
    """A log of segments {base: [records a batch]} with all that a broker keeps beside it."""
    builder = LogBuilder(folder, "t")
    for base, counts in batches.items():
        builder.segment(base)
        for offset, count in counts:
            builder.skip(offset - builder.next_offset).batch(count, leader_epoch=0)
    path = builder.write()
    kseg.recover(path, as_kafka=True, config=CONFIG, now_ms=NOW)
    return path


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    return build(
        tmp_path_factory.mktemp("before"),
        {0: [(0, 2), (2, 1)], 3: [(3, 1), (4, 1)], 5: [(5, 3)], 8: [(8, 1)]},
    )


@pytest.fixture(scope="module")
def merged(tmp_path_factory):
    return build(tmp_path_factory.mktemp("merged"), {0: [(2, 1), (4, 1), (5, 3)]})


def bring(source: Path, target: Path, state: str, kinds=KINDS, base=0, to=None):
    for kind in kinds:
        shutil.copy(source / named(base, kind), target / named(base if to is None else to, kind + state))


def give_up(target: Path, base: int, kinds=KINDS):
    for kind in kinds:
        (target / named(base, kind)).rename(target / named(base, kind + ".deleted"))


def all_swap_and_half_deleted(m: Path, d: Path) -> None:
    bring(m, d, ".swap")
    give_up(d, 0)
    give_up(d, 3, (".log",))


def log_final_and_index_swap(m: Path, d: Path) -> None:
    for base in (0, 3, 5):
        give_up(d, base)
    bring(m, d, "", (".log",))
    bring(m, d, ".swap", (".index", ".timeindex"))


def log_swap_and_index_cleaned(m: Path, d: Path) -> None:
    bring(m, d, ".swap", (".log",))
    bring(m, d, ".cleaned", (".index", ".timeindex"))


def cut(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + size)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def aborted(directory: Path, base: int, version: int, marker: int | None = None) -> None:
    entry = struct.pack(">hqqqq", version, 7, base, base if marker is None else marker, base)
    (directory / named(base, ".txnindex")).write_bytes(entry)


State = Callable[[Path, Path], None]
STATES: dict[str, tuple[State, bool, int, int]] = {
    "nothing": (lambda m, d: None, False, 0, 9),
    "cleaned only": (lambda m, d: bring(m, d, ".cleaned"), False, 0, 9),
    "log swap, index cleaned": (log_swap_and_index_cleaned, False, 0, 9),
    "all swap, all originals, clean": (lambda m, d: bring(m, d, ".swap"), True, 0, 9),
    "all swap, all originals": (lambda m, d: bring(m, d, ".swap"), False, 0, 9),
    "all swap, originals half deleted": (all_swap_and_half_deleted, False, 0, 9),
    "log final, index swap left": (log_final_and_index_swap, False, 0, 9),
    "orphan index swap": (lambda m, d: bring(m, d, ".swap", (".index",), to=77), False, 0, 9),
    "partial tail in 3, recovery point 0": (lambda m, d: cut(d / named(3, ".log"), -5), False, 0, 4),
    "partial tail in 3, recovery point 6": (lambda m, d: cut(d / named(3, ".log"), -5), False, 6, 9),
    "partial tail in 3, clean": (lambda m, d: cut(d / named(3, ".log"), -5), True, 0, 9),
    "zero tail in 5": (lambda m, d: cut(d / named(5, ".log"), 100), False, 0, 8),
    "zero tail in 8": (lambda m, d: cut(d / named(8, ".log"), 17), False, 0, 9),
    "time index of 3 lost, clean": (lambda m, d: (d / named(3, ".timeindex")).unlink(), True, 0, 9),
    "index of 3 lost, clean": (lambda m, d: (d / named(3, ".index")).unlink(), True, 0, 9),
    "bit flip in the first batch": (lambda m, d: flip(d / named(0, ".log"), 65), False, 0, 0),
    "bit flip in the last batch, clean": (lambda m, d: flip(d / named(8, ".log"), 65), True, 0, 9),
    "transaction index of 3 with a version whose first byte is 0": (lambda m, d: aborted(d, 3, 1), True, 0, 9),
    "transaction index of 3 with a negative version": (lambda m, d: aborted(d, 3, -1), True, 0, 9),
    "transaction index of 3 with a marker below it": (lambda m, d: aborted(d, 3, -1, marker=2), True, 0, 9),
    "everything lost": (lambda m, d: [path.unlink() for path in d.iterdir()], False, 0, 0),
}


@pytest.mark.parametrize("name", STATES)
def test_each_state_is_settled_as_kafka_settles_it(oracle, before, merged, tmp_path, name):
    make, clean, recovery_point, end = STATES[name]
    ours = tmp_path / "ours" / "t-0"
    shutil.copytree(before, ours)
    make(merged, ours)
    write_checkpoints(ours.parent, recovery_point, 0, clean=clean)
    kafkas = tmp_path / "kafkas" / "t-0"
    shutil.copytree(ours, kafkas)
    state = oracle.load(kafkas, recoveryPoint=recovery_point, clean=clean, **SETTINGS)
    [one] = kseg.recover(ours.parent, as_kafka=True, config=CONFIG, now_ms=NOW).partitions
    assert (one.end_offset, state["logEnd"]) == (end, end)
    assert_same_files(content(ours), settled(kafkas))
    if "flip" not in name:  # damage that stays there cannot be dumped
        assert oracle.dump(ours) == oracle.dump(kafkas)
    assert (ours.parent / ".kafka_cleanshutdown").exists() == clean


FAR = 2**31


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("offsets", [(0, 10, FAR + 5, FAR + 20), (7, FAR, FAR + 6, FAR + 7, 3 * FAR), (FAR,)], ids=str)
def test_a_segment_that_overflows_is_split(oracle, tmp_path, offsets, indexed):
    builder = LogBuilder(tmp_path / "ours", "t").segment(0)
    for offset in offsets:
        builder.skip(offset - builder.next_offset).batch(1, leader_epoch=0)
    ours = builder.write()
    if indexed:
        for kind in KINDS[1:]:
            (ours / named(0, kind)).write_bytes(b"")
    before = content(ours)
    kafkas = tmp_path / "kafkas" / "t-0"
    shutil.copytree(ours, kafkas)
    state = oracle.load(kafkas, **SETTINGS)
    [one] = kseg.recover(ours, config=CONFIG, now_ms=NOW).partitions
    assert_same_files(content(ours), settled(kafkas))
    assert one.end_offset == state["logEnd"] == offsets[-1] + 1
    assert oracle.dump(ours) == oracle.dump(kafkas)
    assert len(state["segments"]) > 1 or offsets == (FAR,)
    kseg.undo_repair(ours)
    assert content(ours) == before


def test_a_segment_beyond_2_gib_is_refused_and_left_alone(oracle, before, tmp_path):
    ours = tmp_path / "ours" / "t-0"
    shutil.copytree(before, ours)
    cut(ours / named(5, ".log"), 2**31)
    names = {path.name: path.stat().st_size for path in ours.iterdir()}
    for mode in ({}, {"as_kafka": True}, {"salvage": True}):
        with pytest.raises(kseg.LogError, match="cannot load"):
            kseg.recover(ours, config=CONFIG, now_ms=NOW, **mode)
    assert {path.name: path.stat().st_size for path in ours.iterdir()} == names
    with pytest.raises(OracleError):
        oracle.load(ours, **SETTINGS)


def test_a_producers_time_is_that_of_its_marker_even_where_the_batch_says_another(oracle, tmp_path):
    """A flipped bit under a checksum that fits again: the record counts, and not the batch's greatest timestamp."""
    ours, kafkas = tmp_path / "ours" / "t-0", tmp_path / "kafkas" / "t-0"
    oracle.gen(ours, 3, 30, txn=1, roll=0, gap=0, codec="none")
    (log,) = ours.glob("*.log")
    data = log.read_bytes()
    at, size = [place for place in v2.walk(data)[0] if data[place[0] + 22] & v2.CONTROL_BIT][-1]
    marker = bytearray(data[at : at + size])
    marker[27 + 6] ^= 1  # of the base timestamp
    log.write_bytes(data[:at] + v2.repair(bytes(marker)) + data[at + size :])
    shutil.copytree(ours, kafkas)
    oracle.load(kafkas, **SETTINGS)
    kseg.recover(ours, as_kafka=True, config=CONFIG, now_ms=NOW)
    assert_same_files(content(ours), settled(kafkas))


@pytest.mark.parametrize("number", ["5", "0000000000000000005", "9" * 20, "1" + "0" * 25, "9223372036854775808"])
@pytest.mark.parametrize("suffix", [".log.swap", ".index.swap", ".log.cleaned"])
def test_transient_files_with_numbers_of_no_segment_ended_in_a_key_error(tmp_path, number, suffix):
    """A broker does not start with one that is no offset; of a short one it makes a second, empty segment."""
    path = LogBuilder(tmp_path).segment().batch(5).write()
    shutil.copy(path / f"{0:020d}.log", path / (number + suffix))
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    if int(number) == 5 and suffix != ".log.swap":  # as a broker: given up, or renamed
        kseg.recover(path)
        return
    with pytest.raises(kseg.LogError, match="name of a transient file") as caught:
        kseg.recover(path)
    assert caught.value.path == str(path / (number + suffix))
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
