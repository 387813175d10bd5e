"""Damaged log directories, the repairs that are made to them, and what has to hold wherever a repair stops."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import kseg
from kseg.log.checkpoints import CheckpointKind, read_checkpoint, write_checkpoint
from kseg.log.names import CLEAN_SHUTDOWN_FILE, SIDE_DIR
from kseg.storage import LocalStore
from kseg.types import TopicPartition
from tests.log.written import START, bases, clock, numbered
from tests.reference import batch as v2
from tests.reference.rows import records_of

TP = TopicPartition("a", 0)
OTHER = TopicPartition("b", 1)
END = 30
TARGET = 17  # within the second of three segments, and at the start of a batch
CONFIG = kseg.LogConfig(index_interval_bytes=128)
KAFKAS = {"index.interval.bytes": 128}
NOW = START + 1000
KINDS = (CheckpointKind.RECOVERY_POINT, CheckpointKind.HIGH_WATERMARK, CheckpointKind.LOG_START, CheckpointKind.CLEANER)


def write_log(folder: Path, end: int = END) -> Path:
    """Segments of ten records: an aborted transaction, two producers, and a leader of its own in each."""
    with kseg.create_log(folder / "a-0", config=CONFIG, clock=clock) as writer:
        for first in range(0, end, 10):
            if first:
                writer.roll()
            writer.append(numbered(4, start=first), leader_epoch=first // 10, producer_id=6, transactional=True)
            writer.append_marker(6, commit=False, timestamp_ms=START + first + 4)
            writer.append(numbered(2, start=first + 5), producer_id=7)
            writer.append(numbered(3, start=first + 7), codec="lz4")
    return folder / "a-0"


def flip(path: Path, batch: int) -> None:
    """Damage one batch of a log, by its number."""
    data = bytearray(path.read_bytes())
    position, size = v2.walk(bytes(data))[0][batch]
    data[position + size - 1] ^= 1
    path.write_bytes(data)


def cut_second(directory: Path) -> None:
    """The second segment is torn: a broker gives the later ones up."""
    path = directory / f"{10:020d}.log"
    os.truncate(path, path.stat().st_size - 7)


def damage_second(directory: Path) -> None:
    flip(directory / f"{10:020d}.log", 2)


def swap_and_cut(directory: Path) -> None:
    """A replacement that was interrupted behind its point of no return; what it brings is torn."""
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        path = directory / f"{10:020d}{suffix}"
        path.with_name(path.name + ".swap").write_bytes(path.read_bytes()[: -5 if suffix == ".log" else None])
    (directory / f"{7:020d}.log.deleted").write_bytes(b"gone")


def lose_sides(directory: Path) -> None:
    (directory / f"{10:020d}.index").unlink()
    (directory / f"{20:020d}.snapshot").unlink()


def diverge(directory: Path) -> None:
    """A leader that was elected at offset 17, and has written other records since."""
    leader = shutil.copytree(directory, directory.parents[1] / "leader" / "a-0")
    kseg.truncate(leader, TARGET, as_kafka=True, config=CONFIG, now_ms=NOW)
    with kseg.append_to(leader, config=CONFIG, clock=clock) as writer:
        writer.append(numbered(5, start=TARGET), leader_epoch=7)


def lose_first(directory: Path) -> None:
    """The log begins at offset 10."""
    for path in directory.glob(f"{0:020d}.*"):
        path.unlink()
    write_checkpoint(str(directory.parent), CheckpointKind.LOG_START, {OTHER: 8, TP: 12})


@dataclass(frozen=True)
class Repair:
    """What is wrong with a directory, and the call that puts it right."""

    spoil: Callable[[Path], object]
    call: Callable[[Path], kseg.RecoveryReport]
    is_clean: bool = False  # whether it begins with the clean-shutdown marker
    keeps: bool = True  # whether it can be undone
    as_kafka: bool = True  # whether Kafka's loader makes the same of the damage


def _recover(directory: Path, **options: bool):
    return kseg.recover(directory, config=CONFIG, now_ms=NOW, **options)


def _to_leader(directory: Path):
    leader = directory.parents[1] / "leader" / "a-0"
    return kseg.truncate(directory, to_leader=leader, config=CONFIG, now_ms=NOW)


REPAIRS = {
    "cut": Repair(cut_second, _recover),
    "as-kafka": Repair(cut_second, lambda d: _recover(d, as_kafka=True), keeps=False),
    "all": Repair(damage_second, lambda d: _recover(d, all=True), is_clean=True, as_kafka=False),
    "salvage": Repair(damage_second, lambda d: _recover(d, salvage=True), as_kafka=False),
    "swap": Repair(swap_and_cut, _recover),
    "sides": Repair(lose_sides, _recover),
    "truncate": Repair(
        lambda d: None, lambda d: kseg.truncate(d, TARGET, config=CONFIG, now_ms=NOW), is_clean=True, as_kafka=False
    ),
    "to-leader": Repair(diverge, _to_leader, is_clean=True, as_kafka=False),
}

ANEW = Repair(lose_first, lambda d: kseg.truncate(d, 5, config=CONFIG, now_ms=NOW), is_clean=True, as_kafka=False)


def recover_cut(folder: Path, promise: Callable[[object], None]) -> None:
    """For a process that is killed, as those below."""
    REPAIRS["cut"].call(partition(folder))


def recover_salvage(folder: Path, promise: Callable[[object], None]) -> None:
    REPAIRS["salvage"].call(partition(folder))


def truncate_to_leader(folder: Path, promise: Callable[[object], None]) -> None:
    REPAIRS["to-leader"].call(partition(folder))


def undo_last(folder: Path, promise: Callable[[object], None]) -> None:
    kseg.undo_repair(partition(folder))


def prepare(folder: Path, repair: Repair) -> Path:
    """A log directory `log` in a folder, damaged."""
    directory = write_log(folder / "log")
    for kind in KINDS[:2]:
        write_checkpoint(str(directory.parent), kind, {OTHER: 8, TP: END})
    if not repair.is_clean:
        write_checkpoint(str(directory.parent), KINDS[0], {OTHER: 8, TP: 0})
    write_checkpoint(str(directory.parent), CheckpointKind.LOG_START, {OTHER: 8, TP: 2})
    if repair.is_clean:
        (directory.parent / CLEAN_SHUTDOWN_FILE).write_bytes(b"clean")
    repair.spoil(directory)
    return folder


def partition(folder: Path) -> Path:
    return folder / "log" / "a-0"


def is_marked(folder: Path) -> bool:
    return (folder / "log" / CLEAN_SHUTDOWN_FILE).exists()


def files(folder: Path) -> dict[str, bytes]:
    """The partition's files, and what the log directory says of it; not the marker."""
    found = {path.name: path.read_bytes() for path in partition(folder).iterdir() if path.is_file()}
    for path in (folder / "log").glob("*-checkpoint"):
        found[f"../{path.name}"] = path.read_bytes()
    return found


def rows(folder: Path):
    """The records that are there, damage passed over."""
    return records_of(kseg.open_log(partition(folder)).read(read_past_high_watermark=True, on_corrupt="skip"))


def has_runs(folder: Path) -> bool:
    quarantine = partition(folder) / SIDE_DIR / "quarantine"
    return quarantine.is_dir() and any(quarantine.iterdir())


def load(oracle, folder: Path, copy: Path):
    """What Kafka's loader makes of a copy, by the marker's word where it is there."""
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("loaded", "undone"))
    offsets = [read_checkpoint(LocalStore(), str(folder / "log"), kind) or {} for kind in KINDS]
    state = oracle.load(
        partition(copy),
        clean=is_marked(folder),
        recoveryPoint=offsets[0].get(TP, 0),
        logStart=offsets[2].get(TP, 0),
        now=NOW,
        **KAFKAS,
    )
    told = {name: state[name] for name in ("logStart", "logEnd", "lastStable", "producers", "epochs")}
    return told, rows(copy)


class Truth:
    """What a directory is before a repair and behind one that nothing disturbed."""

    def __init__(self, repair: Repair, home: Path) -> None:
        self.repair = repair
        self.start = prepare(home / "start", repair)
        self.done = shutil.copytree(self.start, home / "done")
        [report] = repair.call(partition(self.done)).partitions
        assert report.status == "changed"
        self.before, self.after = files(self.start), files(self.done)
        self.rows_before, self.rows_after = rows(self.start), rows(self.done)
        assert self.before != self.after
        assert bases(partition(self.done))

    def job(self, folder: Path, promise: Callable[[object], None]) -> None:
        self.repair.call(partition(folder))
        promise(self.after)

    def undo(self, folder: Path, promise: Callable[[object], None]) -> None:
        kseg.undo_repair(partition(folder))
        promise(self.before)

    def check_rows(self, folder: Path) -> None:
        """What the repair keeps is there, once; nothing is there that was not there before."""
        found = rows(folder)
        offsets = [row.offset for row in found]
        assert offsets == sorted(set(offsets))
        assert {row.offset for row in self.rows_after} <= set(offsets)
        assert set(map(repr, found)) <= set(map(repr, self.rows_before))

    def check_marker(self, folder: Path) -> None:
        """With the marker a broker checks nothing: nothing is done yet, or everything."""
        if is_marked(folder):
            assert self.repair.is_clean
            assert files(folder) in (self.before, self.after)

    def check_undone(self, folder: Path) -> None:
        """The way back leads to what there was, whether or not something has been done."""
        if has_runs(folder):
            kseg.undo_repair(partition(folder))
        assert files(folder) == self.before
        assert not [path for path in (partition(folder) / SIDE_DIR).rglob("*") if path.is_file()]

    def check_done(self, folder: Path) -> None:
        """The same call goes on to the same end."""
        self.repair.call(partition(folder))
        assert files(folder) == self.after
