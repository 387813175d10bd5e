"""How far the log of a partition in a tier was compacted: what `cleaner-offset-checkpoint` is to a log directory.

`<partition's directory>/.kseg-cleaned.json`. Where there are local files, their own checkpoint counts.
"""

from __future__ import annotations

import json
from typing import Final

from kseg.errors import StorageError
from kseg.tiering.objects import TierObjects

NAME: Final = ".kseg-cleaned.json"


def read_cleaned(partition: TierObjects) -> int | None:
    """The offset from which on records were not compacted; None where none were, or nobody can tell."""
    try:
        offset = json.loads(partition.read(NAME))["offset"]
    except StorageError as error:
        if not error.missing:
            raise
        return None
    except (ValueError, KeyError, TypeError):
        return None  # all of the log is looked at again then
    return offset if isinstance(offset, int) and offset >= 0 else None


def write_cleaned(partition: TierObjects, offset: int) -> None:
    """Let the next round begin there."""
    partition.put_bytes(NAME, json.dumps({"version": 1, "offset": offset}).encode())
