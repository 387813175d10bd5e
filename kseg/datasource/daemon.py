"""Warm Python workers: Spark's own daemon, with kseg and its kernels loaded before it forks them.

    spark = SparkSession.builder.config("spark.python.daemon.module", "kseg.datasource.daemon").getOrCreate()

Spark starts one daemon a machine and kind of work and forks its workers from it. This one imports kseg and loads the
kernels from the cache, or compiles them, once: workers share that memory and begin to read at once. The numba and
numpy that are loaded here start no threads, and Arrow's allocator handles a fork; so a fork is safe.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import traceback


def load() -> None:
    """Import what reads run and load the kernels; a failure is told by the worker that needs them, not here."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's threads would not live through a fork
    try:
        with contextlib.suppress(ImportError):
            import pandas  # noqa: F401  (pyarrow looks for it when it makes its first array)
        import kseg.datasource.reader
        import kseg.datasource.scan
        import kseg.log.plan  # noqa: F401
        from kseg.native.warmup import warm_up

        warm_up()
        gc.collect()
        gc.freeze()  # workers would go through all of it after each task, and get pages of their own by that
    except Exception:  # a daemon that does not start fails all of Spark's Python, whether it reads Kafka's files or not
        sys.stderr.write(f"kseg.datasource.daemon: workers start cold:\n{traceback.format_exc()}")


if __name__ == "__main__":
    load()

    from pyspark.daemon import manager

    manager()
