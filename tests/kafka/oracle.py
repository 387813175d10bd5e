"""Kafka's own storage classes, asked from Python: one JVM that answers commands (KafkaOracle.java, `serve`).

`load`, `times`, `clean` and `cleanable` open a partition directory as a broker does: they repair it, pad its index
files and write snapshots. Give them a copy of what must stay as it is. `dump` only reads.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import queue
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from tests.kafka.jars import Missing, cache_dir, class_path, java, kafka_libs, published

SOURCE = Path(__file__).with_name("KafkaOracle.java")
CALL_SECONDS = 120.0
_FOUND = re.compile(
    r"Optional\[TimestampAndOffset\(timestamp=(-?\d+), offset=(-?\d+), leaderEpoch=Optional(?:\.empty|\[(-?\d+)\])\)\]"
)


class OracleError(Exception):
    """Kafka's classes threw, or the JVM died or did not answer in time."""


class Found(NamedTuple):
    """Kafka's answer to a lookup by time."""

    timestamp: int
    offset: int
    epoch: int | None


class Oracle:
    """A running JVM with the oracle in it. Not for use by several threads at once."""

    def __init__(self, process: subprocess.Popen[str], stderr: IO[str]) -> None:
        self._process = process
        self._stderr = stderr
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="oracle-reader", daemon=True)
        self._reader.start()

    @classmethod
    def start(cls, source: Path = SOURCE) -> Self:
        """Compile an oracle if need be and start it; raises Missing where Java or the jars are not to be had."""
        command = [java(), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += ["-cp", class_path(kafka_libs(), compiled(source)), source.stem, "serve"]
        stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by close())
        pipe = subprocess.PIPE
        return cls(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=stderr, text=True, bufsize=1), stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the JVM: it leaves when its input ends, and is killed if it does not."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()
        self._stderr.close()

    # -- commands ------------------------------------------------------------------------------------------------------

    def gen(self, directory: Path, seed: int, batches: int, **options: object) -> dict[str, Any]:
        """Write a random log; options: codec, keys, txn, lat, gap, roll, rec, life, legacy, and topic settings.

        Settings with a dot go in as `**{"internal.segment.bytes": 4096}`. Returns the log's state, as `load` does.
        """
        return self.call("gen", directory, seed, batches, **options)[0]

    def dump(self, directory: Path) -> list[dict[str, Any]]:
        """Return every batch of every `.log` file; a record is [offset, timestamp, key, value, headers], in base64."""
        return self.call("dump", directory)

    def load(self, directory: Path, **options: object) -> dict[str, Any]:
        """Open the log as a broker does (options: recoveryPoint, logStart, clean, now) and return its state."""
        return self.call("load", directory, **options)[0]

    def truncate(self, directory: Path, offset: int, **options: object) -> dict[str, Any]:
        """Open the log as `load` does, cut it back to an offset as a follower does, and return its state."""
        return self.call("truncate", directory, offset, **options)[0]

    def times(self, directory: Path, targets: Iterable[int], **options: object) -> list[Found | None]:
        """Return Kafka's `offsetsForTimes` answer for each target; None where no record is that late."""
        return [_parse_found(answer["found"]) for answer in self.call("times", directory, *targets, **options)]

    def clean(self, directory: Path, first_dirty: int, now_ms: int, **options: object) -> dict[str, Any]:
        """Run one round of the real cleaner in place, at the given clock."""
        return self.call("clean", directory, first_dirty, now_ms, **options)[0]

    def cleanable(self, directory: Path, checkpoint: int | None, now_ms: int, **options: object) -> dict[str, Any]:
        """Return what the cleaner's manager would clean; `checkpoint` None stands for a log never cleaned."""
        return self.call("cleanable", directory, "-" if checkpoint is None else checkpoint, now_ms, **options)[0]

    def mark(
        self, directory: Path, producer_id: int, epoch: int, timestamp_ms: int, *, commit: bool, **options: object
    ) -> dict[str, Any]:
        """End a transaction as a leader does that the coordinator told so; options: leaderEpoch, lat, now."""
        kind = "COMMIT" if commit else "ABORT"
        return self.call("mark", directory, producer_id, epoch, kind, timestamp_ms, **options)[0]

    def call(
        self, command: str, *words: object, timeout: float = CALL_SECONDS, **options: object
    ) -> list[dict[str, Any]]:
        """Send one command and return the lines of its answer, parsed."""
        given = [command, *(str(word) for word in words)]
        if any("=" in word or "\t" in word or "\n" in word for word in given):
            raise ValueError(f"the oracle cannot take an argument with '=', tab or newline in it: {given}")
        given += [
            f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in options.items()
        ]
        line = "\t".join(given)
        try:
            self._process.stdin.write(line + "\n")
        except (BrokenPipeError, ValueError) as error:
            raise OracleError(f"{line!r}: the oracle is gone: {self._stderr_tail()}") from error
        answers = [json.loads(text) for text in self._answer(line, timeout)]
        for answer in answers:
            if "error" in answer:
                raise OracleError(f"{line!r}: {answer['error']}")
        return answers

    # -- the pipe ------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _answer(self, command: str, timeout: float) -> list[str]:
        lines = []
        while True:
            try:
                line = self._lines.get(timeout=timeout)
            except queue.Empty:
                self._process.kill()  # its next answer would be taken for that of another command
                raise OracleError(f"{command!r}: no answer within {timeout} s") from None
            if line is None:
                raise OracleError(f"{command!r}: the oracle died: {self._stderr_tail()}")
            if line == ".":
                return lines
            lines.append(line)

    def _stderr_tail(self) -> str:
        if self._stderr.closed:
            return "it was closed"
        self._stderr.seek(0)
        return self._stderr.read()[-2000:]


def compiled(source: Path) -> Path:
    """Return the folder of a Java file's classes, compiled against Kafka's jars once per content of the file."""
    libs = kafka_libs()
    target = cache_dir() / f"{source.stem}-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"
    if target.exists():
        return target
    with published(target) as folder:
        if folder is not None:
            # By module and not as `javac`: where Java is a JDK this works whatever the PATH holds.
            command = [java(), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-nowarn", "-cp", class_path(libs)]
            answer = subprocess.run(
                [*command, "-d", str(folder), str(source)], capture_output=True, text=True, timeout=300, check=False
            )
            if "jdk.compiler not found" in answer.stdout + answer.stderr:
                raise Missing("java is a runtime without a compiler: install a JDK, 17 or newer")
            if answer.returncode != 0:
                raise OracleError(f"{source.name} does not compile: {answer.stderr}")
    return target


def _parse_found(text: str) -> Found | None:
    if text == "Optional.empty":
        return None
    match = _FOUND.fullmatch(text)
    if match is None:
        raise OracleError(f"not an answer to a lookup by time: {text!r}")
    timestamp, offset, epoch = match.groups()
    return Found(int(timestamp), int(offset), None if epoch is None else int(epoch))
