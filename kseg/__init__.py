"""Kafka's storage engine as a Python library: read, write and mend the files that a broker keeps on disk.

What reads and writes logs is loaded when it is first used, so that importing kseg is quick and compiles nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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
from kseg.types import Codec, OffsetRange, TimestampType, TopicPartition

if TYPE_CHECKING:
    from kseg import compaction, offsets, tiering
    from kseg.compaction.config import CleanerConfig
    from kseg.datasource import schema_registry
    from kseg.datasource.scan import scan
    from kseg.exporting.job import export
    from kseg.exporting.report import ExportReport
    from kseg.log.config import LogConfig
    from kseg.log.damage import Damage
    from kseg.log.logdir import LogDir
    from kseg.log.partition import Log
    from kseg.log.writer import LogWriter, append_to, create_log
    from kseg.recovery.job import recover, truncate, undo_repair
    from kseg.recovery.report import RecoveryReport, TruncationReport
    from kseg.retention.job import retain
    from kseg.retention.report import RetentionReport
    from kseg.tiering.reading import open_dir, open_log
    from kseg.verification.job import verify
    from kseg.verification.report import VerifyReport

__version__ = "0.1.0"

__all__ = [
    "ChecksumError",
    "CleanerConfig",
    "Codec",
    "CorruptRecordError",
    "Damage",
    "DataLossError",
    "ExportReport",
    "FormatError",
    "IndexFileError",
    "KsegError",
    "LockedError",
    "Log",
    "LogConfig",
    "LogDir",
    "LogError",
    "LogWriter",
    "OffsetOutOfRangeError",
    "OffsetRange",
    "OptionError",
    "RecoveryReport",
    "RetentionReport",
    "StorageError",
    "TimestampType",
    "TopicPartition",
    "TruncatedError",
    "TruncationReport",
    "UnsupportedError",
    "VerifyReport",
    "__version__",
    "append_to",
    "compaction",
    "create_log",
    "export",
    "offsets",
    "open_dir",
    "open_log",
    "recover",
    "retain",
    "scan",
    "schema_registry",
    "tiering",
    "truncate",
    "undo_repair",
    "verify",
]

_HOMES = {
    "CleanerConfig": "kseg.compaction.config",
    "Damage": "kseg.log.damage",
    "ExportReport": "kseg.exporting.report",
    "Log": "kseg.log.partition",
    "LogConfig": "kseg.log.config",
    "LogDir": "kseg.log.logdir",
    "LogWriter": "kseg.log.writer",
    "RecoveryReport": "kseg.recovery.report",
    "RetentionReport": "kseg.retention.report",
    "TruncationReport": "kseg.recovery.report",
    "VerifyReport": "kseg.verification.report",
    "append_to": "kseg.log.writer",
    "compaction": "kseg",
    "create_log": "kseg.log.writer",
    "export": "kseg.exporting.job",
    "offsets": "kseg",
    "open_dir": "kseg.tiering.reading",
    "open_log": "kseg.tiering.reading",
    "recover": "kseg.recovery.job",
    "retain": "kseg.retention.job",
    "scan": "kseg.datasource.scan",
    "schema_registry": "kseg.datasource",
    "tiering": "kseg",
    "truncate": "kseg.recovery.job",
    "undo_repair": "kseg.recovery.job",
    "verify": "kseg.verification.job",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kseg' has no attribute {name!r}")
    if _HOMES[name] == "kseg":
        return importlib.import_module(f"kseg.{name}")
    home = importlib.import_module(_HOMES[name])
    value = getattr(home, name, None) or importlib.import_module(f"{_HOMES[name]}.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
