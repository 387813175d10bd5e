"""Kafka's own Java classes as contestants: a warm JVM that does one run per command and says how long it took."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Self

from tests.kafka.jars import class_path, java, kafka_libs
from tests.kafka.oracle import compiled

SOURCES = Path(__file__).with_name("java")


class AnchorError(Exception):
    """The JVM died or gave no sensible answer."""


class Anchor:
    """A JVM with one of the programs of `java/` in it.

    Start one per case: a just-in-time compiler that saw all codecs would be slower on each.
    """

    def __init__(self, program: str) -> None:
        source = SOURCES / f"{program}.java"
        command = [java(), "-Xms1g", "-Xmx2g", "-cp", class_path(kafka_libs(), compiled(source)), program]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1)
        self.seconds = 0.0

    def call(self, command: str) -> int:
        """Run one command; return the records done, and keep the seconds its thread was at work."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise AnchorError("the JVM was started without pipes")
        stdin.write(f"{command}\n")
        answer = stdout.readline().split()
        if len(answer) < 2:
            self._process.kill()
            raise AnchorError(f"{command!r}: the JVM died: {self._process.communicate()[1][-2000:]}")
        self.seconds = int(answer[1]) / 1e9
        return int(answer[0])

    def last_seconds(self) -> float:
        """Seconds of the last command."""
        return self.seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.communicate(timeout=60)
