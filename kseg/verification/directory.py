"""What lies around the partitions of a log directory: checkpoints, meta.properties, directories that do not belong."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kseg.errors import LogError, StorageError
from kseg.log.checkpoints import CheckpointKind, read_checkpoints
from kseg.log.metadata import read_meta_properties
from kseg.log.names import (
    CLEAN_SHUTDOWN_FILE,
    LOCK_FILE,
    META_PROPERTIES_FILE,
    DirKind,
    parse_partition_dir,
    parse_snapshot_file,
)
from kseg.storage import Store
from kseg.types import TopicPartition
from kseg.verification.findings import Findings

ALLOWED_DIRS: Final = frozenset({"remote-log-index-cache"})
_MARKS: Final = frozenset(
    {*(kind.value for kind in CheckpointKind), LOCK_FILE, CLEAN_SHUTDOWN_FILE, META_PROPERTIES_FILE}
)
_FILES: Final = _MARKS | {"bootstrap.checkpoint", ".kafka_tiered_storage"}


def was_closed(store: Store, log_dir: str) -> bool:
    """Whether a clean shutdown is marked: a broker that starts then checks nothing."""
    return store.stat(store.join(log_dir, CLEAN_SHUTDOWN_FILE)) is not None


def check_log_dir(store: Store, log_dir: str, present: Iterable[TopicPartition], findings: Findings) -> None:
    """Look at a log directory itself; a directory that no broker has used is let alone."""
    entries = store.list(log_dir)
    if not any(entry.name in _MARKS for entry in entries):
        return
    for entry in entries:
        path = store.join(log_dir, entry.name)
        name = parse_partition_dir(entry.name) if entry.is_dir else None
        if entry.is_dir and name is None and entry.name not in ALLOWED_DIRS:
            findings.add("KS705", path, "its name is not TOPIC-PARTITION")
        elif name is not None and name.kind is not DirKind.CURRENT:
            findings.add("KS706", path, f"the directory is marked {name.kind.value[1:]!r}")
        elif not entry.is_dir and entry.name not in _FILES and parse_snapshot_file(entry.name) is None:
            findings.add("KS704", path, f"{entry.size} bytes")
    checkpoints = read_checkpoints(store, log_dir)
    for problem in checkpoints.problems:
        findings.add_error("KS708" if isinstance(problem, StorageError) else "KS601", problem)
    known = set(present) | {
        name.topic_partition for entry in entries if entry.is_dir and (name := parse_partition_dir(entry.name))
    }
    for kind, offsets in checkpoints.offsets.items():
        absent = sorted(str(tp) for tp in offsets.keys() - known)
        if absent:
            detail = ", ".join(absent[:3]) + (f" and {len(absent) - 3} more" if len(absent) > 3 else "")
            findings.add("KS607", store.join(log_dir, kind.value), detail)
    try:
        read_meta_properties(store, log_dir)
    except LogError as error:
        findings.add_error("KS707", error)
