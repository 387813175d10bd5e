"""The right of this process to change a log directory: its lock, and its clean-shutdown marker.

All writers of one process share a session per log directory, because what it guards is shared: POSIX locks belong to
the process, and a marker that one writer puts back while another still writes would tell a broker to check nothing. So
the marker goes before the first change of the first writer, and comes back, with the same content, behind the last
change of the last one; not at all if any of them failed with its partition's files changed.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from kseg.errors import IndexFileError, KsegError, LockedError, LogError, StorageError
from kseg.log.checkpoints import CheckpointKind, read_checkpoint, update_checkpoint
from kseg.log.lock import DirLock, is_free
from kseg.log.metadata import read_clean_shutdown, remove_clean_shutdown, restore_clean_shutdown
from kseg.storage import LocalStore
from kseg.types import TopicPartition

logger = logging.getLogger(__name__)

_MOVED_ALONG = (CheckpointKind.RECOVERY_POINT, CheckpointKind.HIGH_WATERMARK)
_Files = dict[str, tuple[int, ...]]


class _Shared:
    """What the sessions of one log directory have in common."""

    def __init__(self, log_dir: Path) -> None:
        self.log_dir = log_dir
        self.lock = DirLock(log_dir)
        self.partitions: set[str] = set()
        self.marker: bytes | None = None
        self.changing = False
        self.failed = False


_open: dict[Path, _Shared] = {}
_dropped: deque[WriteSession] = deque()
_guard = threading.Lock()


def _forget_in_child() -> None:
    """A forked child holds none of its parent's locks."""
    global _guard
    _guard = threading.Lock()
    _open.clear()
    _dropped.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def _files(directory: Path) -> _Files | None:
    """The files of a partition, by what every change of one changes; None where that cannot be known."""
    try:
        with os.scandir(directory) as entries:
            found = {entry.name: entry.stat(follow_symlinks=False) for entry in entries}
    except OSError:
        return None
    kept = {name: status for name, status in found.items() if not stat.S_ISDIR(status.st_mode)}  # SIDE_DIR is no log
    return {name: (s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in kept.items()}


class WriteSession:
    """One partition's share in the right to change its log directory, from the constructor to `end`."""

    def __init__(self, log_dir: Path, tp: TopicPartition, *, directory: Path | None = None) -> None:
        """Take the lock; nothing is changed yet.

        Args:
            directory: The partition's, where it has not the partition's name.

        Raises:
            LockedError: A broker or another process holds the directory, or this process writes the partition already.
        """
        self.tp = tp
        key = log_dir.resolve()
        with _guard:
            _let_go_of_dropped()
            shared = _open.get(key) or _Shared(key)
            if str(tp) in shared.partitions:
                raise LockedError(f"{tp} is open for writing in this process already", path=str(log_dir))
            shared.lock.acquire()
            shared.partitions.add(str(tp))
            _open[key] = shared
        self._shared: _Shared | None = shared
        self._directory = directory or key / str(tp)
        self._changed = False
        self._before: _Files | None = None
        self._process = os.getpid()

    @property
    def is_own(self) -> bool:
        """Whether this process took the lock itself; a forked child has its parent's object, but not its lock."""
        return self._process == os.getpid()

    def check_process(self) -> None:
        """Refuse a change by a forked child.

        Raises:
            LogError: The session was begun before the fork.
        """
        if not self.is_own:
            raise LogError(
                f"process {self._process} opened {self.tp} for writing, and a forked child cannot go on with it",
                path=self._log_dir,
                hint="open the log in the process that writes it",
            )

    @property
    def _log_dir(self) -> str:
        return "" if self._shared is None else str(self._shared.log_dir)

    def begin_changes(self) -> None:
        """Take the clean-shutdown marker away, durably: called before the first change."""
        with _guard:
            shared = self._shared
            if not self._changed:
                self._before = _files(self._directory)
                self._changed = True
            if shared is not None and not shared.changing:
                shared.marker = remove_clean_shutdown(self._log_dir)
                shared.changing = True

    @property
    def was_clean(self) -> bool:
        """Whether the directory was shut down cleanly before this process changed it."""
        with _guard:
            shared = self._shared
            if shared is None:
                return False
            if shared.changing:
                return shared.marker is not None and not shared.failed
            return read_clean_shutdown(LocalStore(), self._log_dir) is not None

    def recovery_point(self) -> int | None:
        """Up to where the log was flushed, by the checkpoint; None where the directory keeps no such file."""
        offsets = read_checkpoint(LocalStore(), self._log_dir, CheckpointKind.RECOVERY_POINT)
        return None if offsets is None else offsets.get(self.tp, 0)

    def check_checkpoints(self) -> None:
        """Find out now, and not when all is written, that a checkpoint file cannot be updated."""
        for kind in _MOVED_ALONG:
            read_checkpoint(LocalStore(), self._log_dir, kind)

    def drop_checkpoints(self) -> None:
        """Take the partition out of the checkpoint files: what they say of a former one is not so of a new log.

        A file that is malformed stays as it is: it counts as empty for whoever reads it.
        """
        with _guard:
            for kind in CheckpointKind:
                try:
                    offsets = read_checkpoint(LocalStore(), self._log_dir, kind)
                except IndexFileError:
                    continue
                if offsets and self.tp in offsets:
                    update_checkpoint(self._log_dir, kind, {self.tp: None})

    def move_checkpoints(self, end_offset: int) -> None:
        """Say in the checkpoint files that are there that the log is flushed and replicated up to `end_offset`."""
        with _guard:
            for kind in _MOVED_ALONG:
                if LocalStore().stat(str(Path(self._log_dir, kind.value))) is not None:
                    update_checkpoint(self._log_dir, kind, {self.tp: end_offset})

    @contextmanager
    def ending(self) -> Iterator[Self]:
        """End the session with the block; an error that leaves it tells too that the marker could not be put back."""
        try:
            yield self
        except BaseException as error:
            lost = self.end(failed=True)
            if lost is not None and isinstance(error, KsegError):
                error.hint = lost if error.hint is None else f"{error.hint}; {lost}"
            raise
        self.end(failed=False)

    def end(self, *, failed: bool) -> str | None:
        """Give the share back; the last one puts the marker back, if nobody failed with files changed.

        A second call does nothing, nor does a call in a forked child.

        Returns:
            Why the marker could not be put back, where the session failed.
        """
        with _guard:
            shared, self._shared = self._shared, None
            if shared is None or not self.is_own:
                return None
            shared.partitions.discard(str(self.tp))
            shared.failed |= failed and self._changed and not self._is_untouched()
            if shared.partitions:
                return None
            del _open[shared.log_dir]
            try:
                if not shared.failed:
                    restore_clean_shutdown(str(shared.log_dir), shared.marker)
            except StorageError as error:
                if not failed:  # else the error that is on its way tells more
                    raise
                lost = f"the clean-shutdown marker could not be put back: {error.message}"
                logger.warning("%s: %s; a broker that starts there checks all logs", shared.log_dir, lost)
                return lost
            finally:
                shared.lock.release()
        return None

    def drop(self) -> None:
        """Give the share back where the writer was forgotten: nothing is written, so the marker stays away.

        A finalizer calls this, amid anything that this thread may be at: it waits for no lock. What is held just now is
        given back by whoever begins the next session.
        """
        _dropped.append(self)
        if _guard.acquire(blocking=False):
            try:
                if is_free():
                    _let_go_of_dropped()
            finally:
                _guard.release()

    def let_go(self) -> None:
        """What `drop` does, by one that holds the guard."""
        shared, self._shared = self._shared, None
        if shared is None or not self.is_own:
            return
        shared.partitions.discard(str(self.tp))
        shared.failed |= self._changed
        if not shared.partitions:
            del _open[shared.log_dir]
            shared.lock.release()

    def _is_untouched(self) -> bool:
        """Whether each file of the partition is what it was before the first change.

        Checkpoints need not be: they are replaced as a whole, and no job gives them what such files contradict.
        """
        return self._before is not None and self._before == _files(self._directory)


def _let_go_of_dropped() -> None:
    while _dropped:
        _dropped.popleft().let_go()
