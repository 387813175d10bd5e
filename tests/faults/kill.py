"""Runs a job in a process that is killed: `python -m tests.faults.kill MODULE JOB FOLDER NUMBER`."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.faults.disk import in_front_of_durable

ROOT = Path(__file__).parents[2]


class Killer:
    """Lets operations pass, and kills the process before one of them."""

    def __init__(self, number: int) -> None:
        self._left = number

    def perform(self, name: str, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Do an operation, or die."""
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1
        return function(*args, **kwargs)


def killed(module: str, job: str, folder: Path, number: int) -> bool:
    """Run a job of a test module in a process of its own that dies before an operation; False where it ended first."""
    command = [sys.executable, "-m", "tests.faults.kill", module, job, str(folder), str(number)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(done.stderr)
    return done.returncode != 0


if __name__ == "__main__":
    _, module, job, folder, number = sys.argv
    with in_front_of_durable(Killer(int(number)).perform):
        getattr(importlib.import_module(module), job)(Path(folder), lambda _: None)
