"""Limits that a disk does not tell of: a user's quota, the size of a file, room that is there for others only."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kseg.os_errors import storage_error
from tests.faults.disk import WRITES, in_front_of_durable, path_of

LIMITS = pytest.mark.parametrize("limit", [errno.EDQUOT, errno.EFBIG, errno.ENOSPC], ids=errno.errorcode.get)


@contextmanager
def refused_writes(limit: int, name: str) -> Iterator[None]:
    """Let all writes to files of a name fail, with the operating system's number for that."""

    def perform(operation: str, function: Any, *args: Any, **kwargs: Any) -> Any:
        if operation in WRITES and path_of(operation, args) == name:
            raise storage_error(OSError(limit, os.strerror(limit)), name)
        return function(*args, **kwargs)

    with in_front_of_durable(perform):
        yield
