"""Consumer groups' committed offsets: read, exported, and written to a stopped cluster."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kseg.offsets.entries import OffsetEntry
    from kseg.offsets.job import export, read
    from kseg.offsets.report import GroupOffset, OffsetsReport, ResetOffset, ResetReport
    from kseg.offsets.reset_job import reset

__all__ = ["GroupOffset", "OffsetEntry", "OffsetsReport", "ResetOffset", "ResetReport", "export", "read", "reset"]

_HOMES = {
    "GroupOffset": "kseg.offsets.report",
    "OffsetEntry": "kseg.offsets.entries",
    "OffsetsReport": "kseg.offsets.report",
    "ResetOffset": "kseg.offsets.report",
    "ResetReport": "kseg.offsets.report",
    "export": "kseg.offsets.job",
    "read": "kseg.offsets.job",
    "reset": "kseg.offsets.reset_job",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kseg.offsets' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
