"""A file with places that cannot be had: a chunk of a tier that does not decrypt, or does not decompress."""

from __future__ import annotations

from typing import Final, Self

from kseg.errors import UnreadableError
from kseg.storage import RandomFile, Writable, byte_view

FILLER: Final = 0xFF
"""What a hole reads as: no batch begins so, and it is no room that was never written to either."""


class HoledFile:
    """Reads on behind what cannot be had; who looks for sound batches takes a hole for damage, as it is."""

    def __init__(self, file: RandomFile) -> None:
        self.path = file.path
        self.size = file.size
        self.identity = file.identity
        self._file = file
        self._holes: dict[int, tuple[int, str]] = {}

    def reason_in(self, start: int, end: int) -> str | None:
        """Why the first hole that touches `[start, end)` is one."""
        return next((why for at, (stop, why) in sorted(self._holes.items()) if at < end and stop > start), None)

    def refresh(self) -> int:
        """See RandomFile."""
        self.size = self._file.refresh()
        return self.size

    def read_into(self, position: int, view: Writable) -> int:
        """See RandomFile."""
        target = byte_view(view)
        done = 0
        while done < target.nbytes:
            try:
                return done + self._file.read_into(position + done, target[done:])
            except UnreadableError as error:
                where = "" if error.position is None else f" (stored at byte {error.position})"
                self._holes[error.start] = (error.end, error.message + where)
                begin, stop = max(error.start - position, done), min(error.end - position, target.nbytes)
                target[begin:stop] = bytes([FILLER]) * (stop - begin)
                done = stop
        return done

    def is_cached(self, start: int, end: int) -> bool:
        """See RandomFile."""
        return self._file.is_cached(start, end)

    def drop_cache(self, start: int, end: int) -> None:
        """See RandomFile."""
        self._file.drop_cache(start, end)

    def close(self) -> None:
        """See RandomFile."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
