"""Run the tests with ten times the counts and write what came of it to a dated file.

The factor is KSEG_SOAK (10 unless it is set); tests read it through tests/scale.py. Further arguments go to pytest.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("numpy", "numba", "pyarrow", "crc32c", "zstandard", "lz4", "python-snappy", "hypothesis", "pytest")


def run_pytest(factor: int, arguments: list[str], report: Path) -> int:
    """Run pytest on two workers with the factor set; `report` receives JUnit XML."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "--timeout", str(300 * factor)]
    command += [f"--junitxml={report}", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "KSEG_SOAK": str(factor)}, check=False).returncode


def read_counts(report: Path) -> dict[str, int]:
    """Sum the suites of a JUnit file into passed, failed and skipped."""
    totals = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    if report.exists():
        for suite in ET.parse(report).getroot().iter("testsuite"):
            for name in totals:
                totals[name] += int(suite.get(name, 0))
    failed = totals["failures"] + totals["errors"]
    return {"passed": totals["tests"] - failed - totals["skipped"], "failed": failed, "skipped": totals["skipped"]}


def commit() -> str | None:
    """Return the checked-out commit, marked when files differ from it; None outside a repository."""
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=40"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() or None


def main() -> int:
    """Run, write `benchmarks/results/soak-<date>.json`, and hand on pytest's exit status."""
    factor = int(os.environ.get("KSEG_SOAK", "10"))
    began, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        status = run_pytest(factor, sys.argv[1:], report)
        counts = read_counts(report)
    result = {
        "date": began.isoformat(timespec="seconds"),
        "commit": commit(),
        "factor": factor,
        "arguments": sys.argv[1:],
        "exit_status": status,
        **counts,
        "seconds": round(time.monotonic() - clock, 1),
        "machine": {"system": platform.platform(), "processor": platform.machine(), "cores": os.cpu_count()},
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in PACKAGES},
        },
    }
    target = ROOT / "benchmarks" / "results" / f"soak-{began:%Y-%m-%d}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {target.relative_to(ROOT)}: {counts}")
    return status


if __name__ == "__main__":
    sys.exit(main())
