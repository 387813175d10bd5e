"""Segments in a tier: an object store behind the local log, in the layouts that Kafka's plugins write.

The jobs are loaded when they are first used: whoever only reads does not need them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kseg.tiering.fsck_job import fsck
    from kseg.tiering.fsck_report import FsckReport
    from kseg.tiering.offload_job import offload
    from kseg.tiering.offload_report import OffloadReport
    from kseg.tiering.rebuild_job import rebuild_metadata
    from kseg.tiering.rebuild_report import RebuildReport
    from kseg.tiering.restore_job import restore
    from kseg.tiering.restore_report import RestoreReport
    from kseg.tiering.retain_job import retain
    from kseg.tiering.retain_report import TierRetentionReport
    from kseg.tiering.rewrap_job import rewrap
    from kseg.tiering.rewrap_report import RewrapReport

__all__ = [
    "FsckReport",
    "OffloadReport",
    "RebuildReport",
    "RestoreReport",
    "RewrapReport",
    "TierRetentionReport",
    "fsck",
    "offload",
    "rebuild_metadata",
    "restore",
    "retain",
    "rewrap",
]

_HOMES = {
    "FsckReport": "kseg.tiering.fsck_report",
    "OffloadReport": "kseg.tiering.offload_report",
    "RebuildReport": "kseg.tiering.rebuild_report",
    "RestoreReport": "kseg.tiering.restore_report",
    "RewrapReport": "kseg.tiering.rewrap_report",
    "TierRetentionReport": "kseg.tiering.retain_report",
    "fsck": "kseg.tiering.fsck_job",
    "offload": "kseg.tiering.offload_job",
    "rebuild_metadata": "kseg.tiering.rebuild_job",
    "restore": "kseg.tiering.restore_job",
    "retain": "kseg.tiering.retain_job",
    "rewrap": "kseg.tiering.rewrap_job",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kseg.tiering' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
