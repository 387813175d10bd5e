"""Kafka's storage engine as a Python library: read, write and mend the files that a broker keeps on disk.

Names are loaded when they are first used, so that importing kseg is quick and compiles nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kseg.errors import (
        ChecksumError,
        CorruptRecordError,
        DataLossError,
        FormatError,
        IndexFileError,
        KsegError,
        LockedError,
        LogError,
        OffsetOutOfRangeError,
        OptionError,
        StorageError,
        TruncatedError,
        UnsupportedError,
    )
    from kseg.log.logdir import LogDir, open_dir
    from kseg.log.partition import Log, open_log
    from kseg.types import Codec, TimestampType, TopicPartition

__version__ = "0.1.0"

_HOMES = {
    "kseg.errors": (
        "ChecksumError",
        "CorruptRecordError",
        "DataLossError",
        "FormatError",
        "IndexFileError",
        "KsegError",
        "LockedError",
        "LogError",
        "OffsetOutOfRangeError",
        "OptionError",
        "StorageError",
        "TruncatedError",
        "UnsupportedError",
    ),
    "kseg.log.logdir": ("LogDir", "open_dir"),
    "kseg.log.partition": ("Log", "open_log"),
    "kseg.types": ("Codec", "TimestampType", "TopicPartition"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [  # noqa: PLE0604
    "__version__",
    *_HOME_OF,
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'kseg' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOME_OF))
