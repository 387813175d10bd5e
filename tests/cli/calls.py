"""Calls of the command line, in this process and in another."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import main
from kseg.errors import StorageError
from kseg.storage import LocalStore


@dataclass(frozen=True)
class Answer:
    """How a call ended."""

    status: int
    data: bytes
    messages: str

    @property
    def text(self) -> str:
        return self.data.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


def call(*argv: object) -> Answer:
    """Call the command line in this process."""
    raw = io.BytesIO()
    out, err = io.TextIOWrapper(raw, encoding="utf-8", write_through=True), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main([str(word) for word in argv])
        out.flush()
    return Answer(status, raw.getvalue(), err.getvalue())


def run(*argv: object, env: dict[str, str] | None = None, **options: Any) -> Answer:
    """Call the command line as a program."""
    command = [sys.executable, "-m", "kseg", *(str(word) for word in argv)]
    done = subprocess.run(
        command, capture_output=True, env=os.environ | (env or {}), timeout=120, check=False, **options
    )
    return Answer(done.returncode, done.stdout, done.stderr.decode())


def start(command: list[str]) -> subprocess.Popen[bytes]:
    """Start a program that an interrupt reaches, even where the tests run in a shell's background, which ignores it."""
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@contextmanager
def unreadable(monkeypatch: pytest.MonkeyPatch, *directories: Path) -> Iterator[None]:
    """Make directories that nobody may list, root neither; they are empty, and gone at the end."""
    list_ = LocalStore.list

    def refuse(store: LocalStore, path: str) -> Any:
        if Path(path) in directories:
            raise StorageError("permission denied", path=path)
        return list_(store, path)

    for directory in directories:
        directory.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "list", refuse)
        yield
    for directory in directories:
        directory.rmdir()
