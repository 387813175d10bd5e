"""What the command line writes: lines of JSON, tables and text on stdout, messages on stderr."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from kseg.errors import KsegError, StorageError
from kseg.tables import Column, format_table, visible

SOUND: Final = 0
DAMAGED: Final = 1
WRONG: Final = 2
LOCKED: Final = 3
BLOCK_ROWS: Final = 10_000
_JSON = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), check_circular=False)


class Output:
    """Where a verb writes; `status` becomes 1 once damage was told, 2 where something cannot be read."""

    def __init__(self, stream: BinaryIO | None = None, *, width: int | None = None) -> None:
        # Python has no stdout where it was closed before the start (`>&-`)
        self._stream = stream or (sys.stdout.buffer if sys.stdout else Path(os.devnull).open("wb"))  # noqa: SIM115
        self.width = width or shutil.get_terminal_size((80, 24)).columns
        # who reads a pipe or a file wants all of it; COLUMNS says otherwise
        has_width = width is not None or bool(os.environ.get("COLUMNS")) or self._stream.isatty()
        self.table_width = self.width if has_width else sys.maxsize
        self.status = SOUND

    def write(self, data: bytes) -> None:
        """Write bytes as they are."""
        self._stream.write(data)

    def line(self, text: str) -> None:
        """Write a line of text."""
        self._stream.write(text.encode("utf-8", "backslashreplace") + b"\n")

    def json(self, value: Any) -> None:
        """Write a JSON object as a line."""
        self._stream.write(_JSON.encode(value).encode("ascii") + b"\n")

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
        """Write a table that fits the terminal, if there is one."""
        for text in format_table(columns, rows, self.table_width):
            self.line(text)

    def long_table(self, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
        """Write a table of any length; how wide its columns are is settled block by block."""
        rows = iter(rows)
        self.table(columns, itertools.islice(rows, BLOCK_ROWS))
        while block := list(itertools.islice(rows, BLOCK_ROWS)):
            for text in format_table(columns, block, self.table_width)[1:]:
                self.line(text)

    def note(self, message: str) -> None:
        """Tell people something on stderr."""
        self.flush()  # so that a message stands behind what was written before it
        if sys.stderr:  # print would take stdout instead
            print(f"kseg: {visible(message, keep_backslash=True)}", file=sys.stderr, flush=True)

    def damage(self, error: KsegError) -> None:
        """Tell what is damaged, or cannot be read, and go on."""
        self.note(str(error))
        if not isinstance(error, StorageError):
            self.status = DAMAGED
        elif self.status == SOUND:
            self.status = WRONG

    def flush(self) -> None:
        """Hand over what was written."""
        self._stream.flush()
