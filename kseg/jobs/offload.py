"""`kseg offload` on Spark: `spark-submit kseg/jobs/offload.py PATH URI ...`, or `python -m kseg.jobs.offload`.

Arguments are those of `kseg offload`. The master is the one that spark-submit, or Spark's settings, name.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kseg.cli.main import main as run_verb


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    return run_verb(["offload", "--spark=", *words])


if __name__ == "__main__":
    sys.exit(main())
