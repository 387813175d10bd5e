"""What `recover` and `truncate` will do to a partition: decided without changing anything, and good to be shown."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from kseg.durable import TEMPORARY_SUFFIX
from kseg.errors import IndexFileError
from kseg.index.epoch import LeaderEpochs
from kseg.index.producer import parse_snapshot
from kseg.log.checkpoints import CheckpointKind, read_checkpoint, read_leader_epochs
from kseg.log.names import LEADER_EPOCH_FILE, FileKind, FileState, parse_segment_file, segment_file_name
from kseg.progress import SILENT, Progress
from kseg.recovery.folder import Content, Folder, FolderFile
from kseg.recovery.loader import Loaded, Loader, LoadOptions
from kseg.recovery.salvage import Salvager, find_runs
from kseg.recovery.segments import LoadedSegment
from kseg.recovery.transients import TransientPlan, plan_transients
from kseg.storage import LocalStore
from kseg.types import TopicPartition


@dataclass(frozen=True, slots=True)
class CheckpointChange:
    """A partition's line in a checkpoint file of its log directory."""

    kind: CheckpointKind
    before: int
    after: int


@dataclass(slots=True)
class Plan:
    """The changes to one partition.

    Attributes:
        before: The directory as it is.
        folder: The directory as it will be; its `disk` is what there is once the transient files are settled.
        lost: Ranges of offsets whose records go.
        is_damaged: Whether records go that were more than the torn end of the log.
    """

    directory: Path
    tp: TopicPartition
    before: Folder
    folder: Folder
    transients: TransientPlan
    loaded: Loaded = field(default_factory=Loaded)
    checkpoints: tuple[CheckpointChange, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()
    lost_bytes: int = 0
    is_damaged: bool = False
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, directory: Path, tp: TopicPartition) -> Plan:
        """Look at a directory, and decide about its transient files."""
        before = Folder.read(str(directory))
        transients, folder = plan_transients(
            before, lambda base: LoadedSegment(before, base, FileState.SWAP).next_offset()
        )
        return cls(directory, tp, before, folder, transients)

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of files that are made, cut or replaced once the transient files are settled."""
        return tuple(name for name in sorted(self.folder.files) if not self.folder.is_unchanged(name))

    @property
    def removed(self) -> tuple[str, ...]:
        """Names of files that go once the transient files are settled."""
        return tuple(sorted(name for name in self.folder.disk if name not in self.folder.files))

    @property
    def has_changes(self) -> bool:
        """Whether there is anything to do."""
        moves = self.transients.removals or self.transients.renames
        return bool(moves or self.changed or self.removed or self.checkpoints)


def plan_recovery(
    directory: Path, tp: TopicPartition, options: LoadOptions, *, salvage: bool = False, progress: Progress = SILENT
) -> Plan:
    """Decide what a broker that starts would do to a partition.

    Args:
        salvage: Leave damaged bytes out and go on behind them, instead of cutting there.

    Raises:
        LogError: A broker cannot load this log.
    """
    plan = Plan.of(directory, tp)
    _drop_stale_indexes(plan)
    epochs = stored_epochs(plan)
    salvager = Salvager(options.config.index_interval_bytes, progress) if salvage else None
    check = None if salvager is None else salvager.check
    plan.loaded = Loader(plan.folder, options, epochs or LeaderEpochs(), check=check, progress=progress).load()
    if salvager is not None:
        plan.loaded.rewritten |= {base: [base] for base in salvager.rewritten}
        plan.loaded.cuts += salvager.cuts
    put_epochs(plan, epochs)
    settle_files(plan)
    plan.checkpoints = tuple(checkpoint_changes(plan, plan.loaded.log_end, plan.loaded.log_end))
    if salvager is None:
        _tell_losses(plan)
    else:
        plan.lost = tuple(merged(salvager.lost))
        plan.lost_bytes = sum(cut.size for cut in salvager.cuts)
        plan.is_damaged = bool(plan.lost)
    plan.notes += plan.loaded.notes
    return plan


def _drop_stale_indexes(plan: Plan) -> None:
    """Have the index of a replacement rebuilt whose own never came: a broker would make an empty one of full size."""
    for source, target in plan.transients.renames:
        if source.endswith(FileKind.LOG.value + FileState.SWAP.value):
            index = target.removesuffix(FileKind.LOG.value) + FileKind.OFFSET_INDEX.value
            if index + FileState.SWAP.value not in plan.before.files:
                plan.folder.files.pop(index, None)


def stored_epochs(plan: Plan) -> LeaderEpochs | None:
    """The leader-epoch-checkpoint; one that is broken is rebuilt from the batches."""
    try:
        return read_leader_epochs(LocalStore(), str(plan.directory))
    except IndexFileError as error:
        plan.notes.append(f"{error}; rebuilt from the batches")
    epochs = LeaderEpochs()
    for base in plan.folder.bases():
        for chunk in LoadedSegment(plan.folder, base).walk():
            epochs = epochs.assign_batches(chunk.table, chunk.rows)
    plan.folder.files.pop(LEADER_EPOCH_FILE, None)
    return epochs


def settle_files(plan: Plan) -> None:
    """Leave files alone that would be written with what they hold, and take away what is in the way of others."""
    _keep_equal(plan.folder)
    segments = [parsed for name in plan.changed if (parsed := parse_segment_file(name)) is not None]
    indexes = [segment_file_name(segment.base_offset, FileKind.OFFSET_INDEX) for segment in segments]
    for name in (*plan.changed, *indexes):  # the index comes anew with any file of its segment
        plan.folder.files.pop(name + TEMPORARY_SUFFIX, None)  # left by a crash while it was written


def _keep_equal(folder: Folder) -> None:
    """Let files that were made anew with what they held already stay as they are; producers have no order."""
    before = Folder(folder.directory, folder.disk)
    for name, content in folder.files.items():
        if content.data is None or name not in before.files or before.files[name].size != content.size:
            continue
        data = before.read_bytes(name)
        if data == content.data or (name.endswith(FileKind.SNAPSHOT.value) and _same_producers(data, content.data)):
            folder.files[name] = before.files[name]


def _same_producers(one: bytes, two: bytes) -> bool:
    try:
        return sorted(parse_snapshot(one)) == sorted(parse_snapshot(two))
    except IndexFileError:
        return False


def put_epochs(plan: Plan, stored: LeaderEpochs | None) -> None:
    """Write the leader epochs where they differ from what is stored."""
    epochs = plan.loaded.epochs
    missing = LEADER_EPOCH_FILE not in plan.folder.files
    if epochs != (stored or LeaderEpochs()) or (missing and epochs.entries):
        plan.folder.files[LEADER_EPOCH_FILE] = Content(data=epochs.to_bytes())


def checkpoint_changes(plan: Plan, log_end: int, cleaned: int) -> list[CheckpointChange]:
    """Lines of the log directory's checkpoint files that claim more than the log has.

    Args:
        cleaned: Up to where it can have been cleaned.
    """
    limits = {
        CheckpointKind.RECOVERY_POINT: log_end,
        CheckpointKind.HIGH_WATERMARK: log_end,
        CheckpointKind.CLEANER: cleaned,
    }
    changes = []
    for kind, limit in limits.items():
        offset = read_offset(plan.directory.parent, kind, plan.tp)
        if offset is not None and offset > limit:
            changes.append(CheckpointChange(kind, offset, limit))
    return changes


def load_options(directory: Path, tp: TopicPartition, *, clean: bool, like: LoadOptions | None = None) -> LoadOptions:
    """How a partition is loaded by what its log directory's checkpoints say; clock and settings are those of `like`."""
    return replace(
        like or LoadOptions(),
        clean=clean,
        recovery_point=read_offset(directory.parent, CheckpointKind.RECOVERY_POINT, tp) or 0,
        log_start=read_offset(directory.parent, CheckpointKind.LOG_START, tp) or 0,
    )


def read_offset(log_dir: Path, kind: CheckpointKind, tp: TopicPartition) -> int | None:
    """A partition's offset in a checkpoint file; a file that is broken says nothing, as for a broker."""
    try:
        return (read_checkpoint(LocalStore(), str(log_dir), kind) or {}).get(tp)
    except IndexFileError:
        return None


def _tell_losses(plan: Plan) -> None:
    """Which offsets go: those of sound batches behind cuts, and those of dropped segments."""
    before = Folder(plan.folder.directory, plan.folder.disk)
    lost: list[tuple[int, int]] = []
    for cut in plan.loaded.cuts:
        plan.lost_bytes += cut.size
        name = segment_file_name(cut.base_offset, FileKind.LOG)
        if name in before.files:
            with before.open(name) as file:
                lost += _runs_behind(file, cut.position, cut.base_offset, cut.next_offset)
    for base, content in plan.loaded.dropped:
        plan.lost_bytes += content.size
        name = segment_file_name(base, FileKind.LOG)
        before.files[name] = content
        with before.open(name) as file:
            lost += _runs_behind(file, 0, base, base)
    plan.lost = tuple(merged(lost))
    plan.is_damaged = bool(lost)


def _runs_behind(file: FolderFile, position: int, base: int, next_offset: int) -> list[tuple[int, int]]:
    runs = find_runs(file, base_offset=base, start=position, next_offset=next_offset)
    return [(next_offset, runs[-1].next_offset)] if runs else []


def merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order, those that touch made one."""
    done: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if done and start <= done[-1][1]:
            done[-1] = (done[-1][0], max(end, done[-1][1]))
        elif end > start:
            done.append((start, end))
    return done
