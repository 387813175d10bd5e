"""Run the tests with ten times the counts and write what came of it to a dated file.

The factor is KSEG_SOAK (10 unless it is set); tests read it through tests/scale.py. All of it takes hours, so each
folder of tests is a run of its own, and the file is written after each: one that was stopped goes on, on the same day
and commit, with the folders that have not passed. Arguments go to pytest, whose one run is a part by itself then.
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
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("numpy", "numba", "pyarrow", "crc32c", "zstandard", "lz4", "python-snappy", "hypothesis", "pytest")
COUNTS = ("passed", "failed", "skipped")


def run_pytest(factor: int, arguments: list[str], report: Path) -> int:
    """Run pytest on two workers with the factor set; `report` receives JUnit XML."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "--timeout", str(300 * factor)]
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
    """Return the checked-out commit, marked when files other than results differ from it; None outside a repository."""
    answer = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    changed = subprocess.run(
        ["git", "diff", "--quiet", "HEAD", "--", ".", ":(exclude)benchmarks/results"], cwd=ROOT, check=False
    )
    found = answer.stdout.strip()
    return f"{found}-dirty" if found and changed.returncode else found or None


def parts() -> dict[str, list[str]]:
    """What is run apart, by name: each folder of tests, and the files beside them."""
    tests = ROOT / "tests"
    folders = {path.parent for path in tests.rglob("test_*.py")} - {tests}
    tops = sorted({path.relative_to(tests).parts[0] for path in folders})
    files = sorted(str(path.relative_to(ROOT)) for path in tests.glob("test_*.py"))
    return {"tests": files} | {name: [f"tests/{name}"] for name in tops}


def run_part(factor: int, arguments: list[str]) -> dict[str, Any]:
    """Run pytest once; tell what came of it."""
    clock = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        status = run_pytest(factor, arguments, report)
        counts = read_counts(report)
    return {"exit_status": status, **counts, "seconds": round(time.monotonic() - clock, 1)}


def describe_run(factor: int, began: datetime.datetime, checked_out: str | None) -> dict[str, Any]:
    """What the figures hold for."""
    return {
        "date": began.isoformat(timespec="seconds"),
        "commit": checked_out,
        "factor": factor,
        "machine": {"system": platform.platform(), "processor": platform.machine(), "cores": os.cpu_count()},
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in PACKAGES},
        },
    }


def done_before(target: Path, run: dict[str, Any]) -> dict[str, Any]:
    """The parts that an earlier run of the same commit and factor has passed."""
    if not target.exists():
        return {}
    earlier = json.loads(target.read_text(encoding="utf-8"))
    if any(earlier.get(name) != run[name] for name in ("commit", "factor")):
        return {}
    return {name: part for name, part in earlier.get("parts", {}).items() if part["exit_status"] == 0}


def main() -> int:
    """Run, write `benchmarks/results/soak-<date>.json` after each part, and return 1 where any has failed."""
    began = datetime.datetime.now(datetime.UTC)
    run = describe_run(int(os.environ.get("KSEG_SOAK", "10")), began, commit())
    wanted = {" ".join(sys.argv[1:]): sys.argv[1:]} if sys.argv[1:] else parts()
    target = ROOT / "benchmarks" / "results" / f"soak-{began:%Y-%m-%d}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    done = done_before(target, run)
    for name, arguments in wanted.items():
        if name not in done:
            print(f"== {name}", flush=True)
            done[name] = run_part(run["factor"], arguments)
        total = {count: sum(part[count] for part in done.values()) for count in COUNTS}
        missing = [other for other in wanted if other not in done]
        result = run | {**total, "not_run": missing, "parts": done}
        target.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {target.relative_to(ROOT)}: {total}")
    return int(any(part["exit_status"] for part in done.values()))


if __name__ == "__main__":
    sys.exit(main())
