"""Results as tables for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Row = dict[str, Any]


def print_table(name: str, rows: list[Row]) -> None:
    """One line per case: rates and ratios, and bytes where a case counts them."""
    rated, counted = [row for row in rows if "ratios" in row], [row for row in rows if "ratios" not in row]
    for lines in ([_ratio_lines(rated)] if rated else []) + ([_check_lines(counted)] if counted else []):
        _print_lines(name, lines)


def _print_lines(name: str, lines: list[list[str]]) -> None:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    print(f"\n{name}")
    for line in lines:
        rest = [text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True)]
        print(f"  {line[0].ljust(widths[0])}  {'  '.join(rest)}")


def _ratio_lines(rows: list[Row]) -> list[list[str]]:
    names = list(dict.fromkeys(name for row in rows for name in row["records_per_second"]))
    head = ["case", *(f"{name} M/s" for name in names), *(f"/ {name}" for name in names[1:])]
    with_cpu = "cpu_ratio" in rows[0]
    lines = [[*head, "/ by cpu", "python cpu s/M"] if with_cpu else head]
    for row in rows:
        rates = [_rate_text(row["records_per_second"].get(name)) for name in names]
        ratios = (_ratio_text(row["ratios"][name]) if name in row["ratios"] else "" for name in names[1:])
        lines.append([row["case"], *rates, *ratios])
        if with_cpu:
            per_million = row["details"][names[0]]["cpu_seconds_per_million"]
            lines[-1] += [f"{row['cpu_ratio']:.2f}", f"{per_million['python']:.3f}"]
    return lines


def _rate_text(rate: float | None) -> str:
    """Not every contestant takes part in every case."""
    return "" if rate is None else f"{rate / 1e6:.3f}"


def _ratio_text(entry: Row) -> str:
    if "met" not in entry:
        return f"{entry['best']:.2f}"
    verdict = "ok" if entry["met"] else f"< {entry['goal']:.2f}"
    return f"{entry['best']:.2f} {verdict}{'' if entry['met'] else _reachable(entry)}"


def _reachable(entry: Row) -> str:
    """Where the limit itself misses the goal, how far it gets."""
    beyond = entry.get("reachable", entry["goal"]) < entry["goal"]
    return f" (limit {entry['reachable']:.2f})" if beyond else ""


def _check_lines(rows: list[Row]) -> list[list[str]]:
    fields = [key for key in rows[0] if key not in ("case", "checks")]
    lines = [["case", *fields, *rows[0]["checks"], "goal", ""]]
    for row in rows:
        (check,) = row["checks"].values()
        numbers = [f"{row[key]:,}" for key in fields]
        verdict = "ok" if check["met"] else "NOT MET"
        lines.append([row["case"], *numbers, f"{check['value']:,}", f"{check['goal']:,}", verdict])
    return lines


def _verdicts(rows: list[Row]) -> Iterator[tuple[str, bool]]:
    for row in rows:
        for against, entry in row.get("ratios", {}).items():
            if "met" in entry:
                text = f"{row['case']} against {against}: {entry['best']:.2f}, goal {entry['goal']:.2f}"
                yield text + _reachable(entry), entry["met"]
        for what, check in row.get("checks", {}).items():
            yield f"{row['case']}, {what}: {check['value']:,}, goal {check['goal']:,}", check["met"]


def print_summary(benchmarks: dict[str, list[Row]]) -> None:
    """How many goals are met, and which are not."""
    verdicts = [(f"{name}: {text}", met) for name, rows in benchmarks.items() for text, met in _verdicts(rows)]
    missed = [text for text, met in verdicts if not met]
    print(f"\n{len(verdicts) - len(missed)} of {len(verdicts)} goals met")
    for text in missed:
        print(f"  not met: {text}")
