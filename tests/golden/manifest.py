"""The checksums of the golden files: `python -m tests.golden.manifest` shows what differs, `--write` accepts it."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
MANIFEST = FOLDER / "MANIFEST.json"
_OURS = {"MANIFEST.json", "README.md", "manifest.py", "__init__.py"}


def current() -> dict[str, str]:
    """Return the SHA-256 of every golden file by its path below the folder."""
    files = (file for file in sorted(FOLDER.rglob("*")) if file.is_file() and "__pycache__" not in file.parts)
    return {
        file.relative_to(FOLDER).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.parent != FOLDER or file.name not in _OURS
    }


def recorded() -> dict[str, str]:
    """Return the checksums that the manifest holds."""
    files: dict[str, str] = json.loads(MANIFEST.read_text(encoding="utf-8"))["files"]
    return files


def differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return one line per file that is missing, new or changed."""
    lines = [f"missing: {name}" for name in sorted(before.keys() - after.keys())]
    lines += [f"new: {name}" for name in sorted(after.keys() - before.keys())]
    return lines + [f"changed: {name}" for name in sorted(before.keys() & after.keys()) if before[name] != after[name]]


def main(arguments: list[str]) -> int:
    """Show the differences; with `--write` make the manifest agree with the files."""
    files = current()
    found = differences(recorded() if MANIFEST.exists() else {}, files)
    sys.stdout.write("".join(f"{line}\n" for line in found))
    if "--write" not in arguments:
        return 1 if found else 0
    made_by = "Apache Kafka 4.3.1 (legacy/: its record classes; aiven/: with Aiven's plugin)"
    MANIFEST.write_text(
        json.dumps({"version": 1, "made_by": made_by, "files": files}, indent=1) + "\n", encoding="utf-8"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
