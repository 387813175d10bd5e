"""Run comparisons, print a table for each, and write a result file: `python -m benchmarks [NAME ...] [--quick]`."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import compact, decode, encode, memory, recover, seek, spark, tier, time_range, verify
from benchmarks.machine import ROOT, describe_commit, describe_machine, describe_versions
from benchmarks.report import print_summary, print_table
from tests.kafka.jars import Missing

BENCHMARKS = {
    "compact": compact.run,
    "decode": decode.run,
    "encode": encode.run,
    "memory": memory.run,
    "seek": seek.run,
    "range": time_range.run,
    "verify": verify.run,
    "recover": recover.run,
    "spark": spark.run,
    "tier": tier.run,
}


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHMARKS)}; all of them if none")
    parser.add_argument("--quick", action="store_true", help="fewer cases, less data, fewer rounds: under a minute")
    parser.add_argument("--case", default="", metavar="TEXT", help="only cases whose name contains this, e.g. zstd-1x")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write the result")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in BENCHMARKS:
            parser.error(f"no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    options.names = options.names or list(BENCHMARKS)
    return options


def _progress(name: str, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    done = []
    for row in rows:
        done.append(row)
        print(f"{name}: {row['case']}", file=sys.stderr, flush=True)
    return done


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; a goal that is not met is reported, and no failure."""
    options = parse_arguments(arguments)
    began, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
    result: dict[str, Any] = {
        "date": began.isoformat(timespec="seconds"),
        "commit": describe_commit(),
        "quick": options.quick,
        "machine": describe_machine(),
        "versions": describe_versions(),
        "benchmarks": {},
    }
    try:
        for name in options.names:
            rows = _progress(name, BENCHMARKS[name](quick=options.quick, only=options.case))
            result["benchmarks"][name] = rows
            print_table(name, rows)
    except Missing as missing:
        print(f"benchmarks: {missing}", file=sys.stderr)
        return 1
    result["machine"]["load_average_after"] = list(os.getloadavg())
    result["seconds"] = round(time.monotonic() - clock, 1)
    print_summary(result["benchmarks"])
    label = "all" if options.names == list(BENCHMARKS) else "-".join(options.names)
    default = ROOT / "benchmarks" / "results" / f"{began:%Y-%m-%d}-{label}{'-quick' if options.quick else ''}.json"
    target: Path = options.out or default
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
