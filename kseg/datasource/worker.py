"""What a Python worker of Spark does besides reading."""

from __future__ import annotations

import gc
import itertools

from pyspark import TaskContext

_begun = itertools.count(1)


def begin_task() -> None:
    """Keep what is loaded out of garbage collection.

    Spark runs a full collection after every task. With numba, pyarrow and the kernels loaded that goes through some
    160,000 objects that are there to stay, and takes 60 ms: as long as decoding half a million small records. What is
    alive when a worker's second task begins has just been through it: it is passed over from then on.
    """
    if next(_begun) == 2 and TaskContext.get() is not None:
        gc.freeze()
