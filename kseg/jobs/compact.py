"""`kseg compact` on Spark: `spark-submit kseg/jobs/compact.py PATH ...`, or `python -m kseg.jobs.compact`.

Arguments are those of `kseg compact`. The master is the one that spark-submit, or Spark's settings, name.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kseg.cli.main import main as run_verb


def main(argv: Sequence[str] | None = None) -> int:
    """Run the round; return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    return run_verb(["compact", "--spark=", *words])


if __name__ == "__main__":
    sys.exit(main())
