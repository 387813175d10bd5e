"""What Kafka's own loader makes of a log that a fault or a crash has left."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from kseg.log.checkpoints import CheckpointKind, read_checkpoint
from kseg.storage import LocalStore
from kseg.types import TopicPartition
from tests.kafka.oracle import Oracle

MARKER = ".kafka_cleanshutdown"
SAME = ("logStart", "logEnd", "lastStable", "producers", "epochs")


def load(folder: Path, oracle: Oracle, home: Path, **options: Any) -> tuple[dict[str, Any], Path]:
    """Load a copy of partition a-0, by the marker's word where it is there; gives Kafka's state, and the copy."""
    copy = shutil.copytree(folder, home, dirs_exist_ok=True)
    points = read_checkpoint(LocalStore(), str(folder), CheckpointKind.RECOVERY_POINT) or {}
    clean, point = (folder / MARKER).exists(), points.get(TopicPartition("a", 0), 0)
    return oracle.load(copy / "a-0", clean=clean, recoveryPoint=point, **options), copy / "a-0"


def assert_same_state(state: dict[str, Any], expected: dict[str, Any]) -> None:
    """Kafka knows the same of the log."""
    for name in SAME:
        assert state[name] == expected[name], name
