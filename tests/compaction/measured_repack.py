"""Repack what grows many times in a process of its own, and say how far its memory rose.

`python -m tests.compaction.measured_repack WAY SMALL DIRECTORY`, with WAY `threads` or `task`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import kseg
from kseg.compaction import repack
from kseg.compaction.pieces import cut_segment
from kseg.compaction.repack_job import TASK_PIECE_BYTES, RepackTask, repack_task
from kseg.compaction.tasks import Place, bundled
from kseg.log.staging import write_nonce
from kseg.native.warmup import warm_up
from kseg.types import Codec
from tests.faults import memory

WORKERS = 2  # whatever the machine has: buffers are per thread


def by_threads(path: str) -> int:
    """A dry run: all but the writing. Return the bytes that it made."""
    return repack(path, codec="none", workers=WORKERS, dry_run=True).partitions[0].bytes_after


def by_task(path: str) -> int:
    """What one task of Spark does, and then the driver with its result."""
    taken = 0
    with tempfile.TemporaryDirectory(dir=path) as folder:
        place = Place(Path(folder), write_nonce(Path(folder)))
        segment = kseg.open_log(path).segments[0]
        for pieces in bundled(cut_segment(segment, TASK_PIECE_BYTES)):
            parts: list[int] = []
            repack_task(RepackTask(place, pieces, Codec.NONE, None)).load(lambda data, _, p=parts: p.append(len(data)))
            taken += sum(parts)
    return taken


def main(way: str, small: str, path: str) -> None:
    """Compile first, and repack a log of next to nothing: what that leaves is what the process takes anyway."""
    run = {"threads": by_threads, "task": by_task}[way]
    warm_up()
    run(small)
    memory.CLEAR.write_text("5")
    before = memory.resident()
    taken = run(path)
    sys.stdout.write(json.dumps({"taken": taken, "grown": memory.peak() - before}))


if __name__ == "__main__":
    main(*sys.argv[1:])
