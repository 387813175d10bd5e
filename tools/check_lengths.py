"""Refuse source files of more than 400 lines: a file that long holds more than one idea."""

from __future__ import annotations

import sys
from pathlib import Path

LIMIT = 400
FOLDERS = ("kseg", "tests", "benchmarks", "tools")


def too_long(root: Path) -> list[tuple[Path, int]]:
    """Return the Python files below the checked folders that pass the limit, with their line counts."""
    found = []
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            lines = len(file.read_text(encoding="utf-8").splitlines())
            if lines > LIMIT:
                found.append((file.relative_to(root), lines))
    return found


def main() -> int:
    """Print the offenders; the exit status says whether there are any."""
    found = too_long(Path(__file__).resolve().parent.parent)
    for file, lines in found:
        print(f"{file}: {lines} lines, the limit is {LIMIT}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
