"""Another replica of a partition as the leader that a log is cut back to; it is read, and never changed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kseg.errors import LogError, OptionError
from kseg.index.epoch import LeaderEpochs
from kseg.log.checkpoints import CheckpointKind
from kseg.log.metadata import read_clean_shutdown, read_partition_metadata
from kseg.log.names import parse_partition_dir
from kseg.recovery.lineage import diverging_offset
from kseg.recovery.loader import LoadOptions
from kseg.recovery.plan import Plan, load_options, plan_recovery, read_offset
from kseg.storage import LocalStore, checked_path, open_store
from kseg.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Leader:
    """What a leader answers by: its epochs and its end, as a broker has them that has started there."""

    epochs: LeaderEpochs
    end_offset: int

    @classmethod
    def read(
        cls, path: str | os.PathLike[str], follower: Path, tp: TopicPartition, *, like: LoadOptions | None = None
    ) -> Leader:
        """Load the leader's log in memory; `path` is its directory, or the log directory that holds it.

        Args:
            like: Whose clock and settings hold.

        Raises:
            OptionError: This is no replica of the partition, or it is `follower` itself.
            LogError: A broker cannot load it.
        """
        directory = _find(path, follower, tp)
        store = LocalStore()
        ours, theirs = (read_partition_metadata(store, str(place)) for place in (follower, directory))
        if ours is not None and theirs is not None and ours.topic_id != theirs.topic_id:
            told = f"the leader's topic id is {theirs.topic_id}, this one's {ours.topic_id}"
            raise OptionError(told, path=str(directory))
        clean = read_clean_shutdown(store, str(directory.parent)) is not None
        loaded = plan_recovery(directory, tp, load_options(directory, tp, clean=clean, like=like)).loaded
        return cls(loaded.epochs, loaded.log_end)

    def parting_offset(self, plan: Plan) -> int:
        """Where a log that was loaded parts from this one; a note in its plan says by what.

        Raises:
            LogError: Nothing tells.
        """
        loaded = plan.loaded
        epochs, latest, leaders = self.epochs, loaded.epochs.latest, self.epochs.latest
        if latest is not None and leaders is not None:  # a broker that leads has a new term, which begins at its end
            epochs = epochs.assign(max(latest.epoch, leaders.epoch) + 1, self.end_offset)
            if latest.epoch > leaders.epoch:
                told = f"this log has leader epoch {latest.epoch}, the leader's none above {leaders.epoch}"
                plan.notes.append(f"{told}: is it the leader?")
        offset = diverging_offset(loaded.epochs, loaded.log_end, epochs, self.end_offset, None)
        if offset is not None:
            plan.notes.append(f"the leader's log and this one part at offset {offset}")
            return offset
        high_watermark = read_offset(plan.directory.parent, CheckpointKind.HIGH_WATERMARK, plan.tp)
        if high_watermark is None:
            told = "the leader epochs do not tell where the logs part"
            raise LogError(told, path=str(plan.directory), hint="give an offset")
        told = f"the leader epochs do not tell where the logs part: the high watermark {high_watermark} does"
        if self.end_offset < high_watermark:  # fetching from there, a broker is told that it is out of range
            told = f"{told}, and the leader's end {self.end_offset}"
        plan.notes.append(told)
        return min(high_watermark, self.end_offset)


def _find(path: str | os.PathLike[str], follower: Path, tp: TopicPartition) -> Path:
    text = checked_path(path)
    if "://" in text and not text.startswith("file://"):  # asked before the store, which may ask the network
        raise OptionError(f"a leader's log is read from a local directory, not from {text!r}")
    directory = Path(open_store(text)[1])
    if not directory.is_dir():
        raise OptionError(f"{text!r} is no directory")
    name = parse_partition_dir(directory.name)
    if name is None and (directory / follower.name).is_dir():
        directory /= follower.name
    elif name is None or name.topic_partition != tp:
        raise OptionError(f"this is no replica of {tp}", path=str(directory))
    if directory.samefile(follower):
        raise OptionError("a log is not cut back to itself: give another replica's directory", path=str(directory))
    if not any(entry.name.endswith(".log") for entry in LocalStore().list(str(directory))):
        raise OptionError("no segments here", path=str(directory))
    return directory
