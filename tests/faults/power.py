"""The power goes at one change: counted, and cut at the one that a test names."""

from __future__ import annotations

import functools

from kseg import durable
from tests.faults.disk import PowerCutError

CHANGES = (
    "create", "open_write", "open_append", "write_all", "write_at", "fsync_file", "fsync_dir", "rename", "link",
    "unlink", "truncate", "make_dir", "remove_dir", "set_mtime_ms",
)  # fmt: skip


class Power:
    """Counts the changes, and cuts the power before, or for a write in the middle of, the one it is told."""

    def __init__(self, monkeypatch, cut_at=None):
        self.changes = 0
        self.cut_at = cut_at
        for name in CHANGES:
            monkeypatch.setattr(durable, name, functools.partial(self.change, name, getattr(durable, name)))

    def change(self, name, function, *args, **kwargs):
        self.changes += 1
        if self.cut_at is None or self.changes < self.cut_at:
            return function(*args, **kwargs)
        if self.changes == self.cut_at and name == "write_all":
            fd, data, *_ = args
            function(fd, data[: len(data) // 2])
        elif self.changes == self.cut_at and name == "write_at":
            fd, position, data, *_ = args
            function(fd, position, data[: len(data) // 2])
        raise PowerCutError
