"""Where and with what a result was measured."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from tests.kafka.jars import KAFKA_VERSION, Missing, java

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("kseg", "numpy", "numba", "pyarrow", "crc32c", "zstandard", "lz4", "python-snappy", "cramjam")
CONTESTANTS = ("aiokafka", "kafka-python")


def describe_machine() -> dict[str, Any]:
    """Processor, cores, memory, and how busy it was when the run began."""
    return {
        "system": platform.platform(),
        "processor": _first_value(Path("/proc/cpuinfo"), "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def describe_versions() -> dict[str, str]:
    """Versions of everything that takes part."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES + CONTESTANTS}
    return {"python": platform.python_version(), **versions, "kafka": KAFKA_VERSION, "java": _java_version()}


def describe_commit() -> str | None:
    """The checked-out commit, marked when files differ from it; None outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None


def _java_version() -> str:
    try:
        answer = subprocess.run([java(), "-version"], capture_output=True, text=True, check=False)
    except Missing as missing:
        return str(missing)
    return answer.stderr.partition("\n")[0]


def _first_value(file: Path, name: str) -> str | None:
    if not file.exists():
        return None
    lines = file.read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)
