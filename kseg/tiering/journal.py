"""Which uploads of a partition were begun: what lets a run go on where an earlier one died.

The file is `<partition>/.kseg/offload.json`, which brokers pass over. An upload stands in it from before its first
record or object until after its last, so whatever a run that died has left in the tier is under an id that stands here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from kseg.errors import LogError, OptionError
from kseg.log.metadata import is_uuid
from kseg.log.names import SIDE_DIR
from kseg.log.staging import drop_side_file, write_side_file
from kseg.os_errors import storage_errors

FILE: Final = "offload.json"
VERSION: Final = 1
MAX_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload that was begun."""

    base_offset: int
    next_base: int
    segment_id: str


class Journal:
    """The journal of one partition."""

    def __init__(self, directory: Path, remote: str, layout: str) -> None:
        """Read what an earlier run has left.

        Raises:
            OptionError: It went to another tier, or in another layout.
            LogError: The file is broken.
        """
        self._directory = directory
        self._path = directory / SIDE_DIR / FILE
        self._head = {"version": VERSION, "remote": remote, "layout": layout}
        self._uploads = {upload.base_offset: upload for upload in self._read()}

    def _read(self) -> Iterable[Upload]:
        with storage_errors(self._path):
            if not self._path.exists():
                return ()
            data = self._path.read_bytes()[:MAX_BYTES]
        try:
            content = json.loads(data)
            head = {name: content[name] for name in self._head}
            found = [Upload(**fields) for fields in content["uploads"]]
            if not all(_is_sound(upload) for upload in found):
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise LogError("the journal of an offload is broken", path=str(self._path)) from None
        if head != self._head and found:
            raise OptionError(
                f"an offload to {head['remote']} ({head['layout']}) was begun here and did not end",
                path=str(self._path),
                hint="let it end first, or delete the journal: fsck lists what it has left there",
            )
        return found

    def find(self, base_offset: int, next_base: int) -> str | None:
        """The id under which an earlier run has begun to copy a segment."""
        upload = self._uploads.get(base_offset)
        return upload.segment_id if upload is not None and upload.next_base == next_base else None

    def begin(self, uploads: Iterable[Upload]) -> None:
        """Write down, durably, that these are begun."""
        before = dict(self._uploads)
        self._uploads |= {upload.base_offset: upload for upload in uploads}
        if self._uploads != before:
            self._write()

    def end(self, base_offsets: Iterable[int]) -> None:
        """Write down that these are done, and that their records are durable."""
        before = len(self._uploads)
        for base in base_offsets:
            self._uploads.pop(base, None)
        if len(self._uploads) != before:
            self._write()

    def _write(self) -> None:
        if not self._uploads:
            drop_side_file(self._directory, FILE)
            return
        uploads = [asdict(self._uploads[base]) for base in sorted(self._uploads)]
        write_side_file(self._directory, FILE, json.dumps({**self._head, "uploads": uploads}).encode())


def _is_sound(upload: Upload) -> bool:
    numbers = upload.base_offset, upload.next_base
    return (
        all(isinstance(n, int) for n in numbers) and isinstance(upload.segment_id, str) and is_uuid(upload.segment_id)
    )
