"""Bytes that are no batch: where the next sound one is, and what the end of a segment means."""

from __future__ import annotations

from typing import Final

import numpy as np

from kseg.errors import FormatError
from kseg.log.sound import find_batch_behind, is_zero
from kseg.log.walk import ReadOptions
from kseg.native import table as t
from kseg.native.crc32c import crc32, crc32c
from kseg.storage import RandomFile
from kseg.verification.findings import Findings

_CRC_FIELD: Final = {0: (12, t.LEGACY_CRC_START), 1: (12, t.LEGACY_CRC_START), 2: (17, t.CRC_START)}


def resync(file: RandomFile, options: ReadOptions, start: int, base_offset: int, next_offset: int) -> int | None:
    """Where the next sound batch behind `start` begins, None where there is none."""
    return find_batch_behind(file, options, start, base_offset=base_offset, next_offset=next_offset)


def tell_tail(
    file: RandomFile, position: int, problem: FormatError | None, findings: Findings, *, sealed: bool, closed: bool
) -> None:
    """Say what bytes from `position` to the end of a file are that hold no sound batch."""
    left = file.size - position
    what = f"the last {left} bytes are no whole batch"
    if is_zero(file, position):
        what = f"the last {left} bytes are zeros"
    elif problem is not None:
        findings.add("KS101", file.path, f"{problem.message}; {left} bytes to the end of the file", position=position)
        return
    elif _only_length_is_wrong(file, position):
        findings.add("KS103", file.path, "the last batch is whole, but its length is not", position=position)
        return
    findings.add("KS103" if sealed or closed else "KS104", file.path, what, position=position)


def _only_length_is_wrong(file: RandomFile, position: int) -> bool:
    """Whether the checksum fits when the batch is taken to end where the file ends: a crash does not leave that."""
    left = file.size - position
    if left > 1 << 30:
        return False
    data = np.empty(left, np.uint8)
    data = data[: file.read_into(position, data)]
    if data.size <= t.PREFIX_SIZE or int(data[16]) not in _CRC_FIELD:
        return False
    place, start = _CRC_FIELD[int(data[16])]
    if data.size < start + 1:
        return False
    stored = int.from_bytes(data[place : place + 4].tobytes(), "big")
    computed = crc32c(data, start, data.size) if start == t.CRC_START else crc32(data, start, data.size)
    return int(computed) == stored
