"""How much work a test does: normal counts, ten times as much in a soak, less where kernels run without the JIT."""

from __future__ import annotations

import os

FACTOR = int(os.environ.get("KSEG_SOAK", "1"))
JIT_DISABLED = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
_WITHOUT_JIT = 10  # kernels run as plain Python are slower by far more, but the small counts must still mean something


def counts(n: int) -> int:
    """Scale a number of examples, seeds or mutations to the kind of run this is; never below one."""
    scaled = n * FACTOR
    return max(1, scaled // _WITHOUT_JIT) if JIT_DISABLED else scaled
