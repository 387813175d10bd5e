"""Show the library at work on a log directory that ships with the project (`./dev demo`).

Each step is a function in `STEPS`. It runs lines of code through `Demo`, which prints a line, executes exactly that
line, and prints what came of it. All steps share one namespace. They run inside a temporary folder, where `data` is a
link to the log directory that ships and everything else is thrown away at the end.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import kseg
from kseg.cli.main import main as run_kseg
from kseg.errors import KsegError
from kseg.tables import Column, clip, format_table

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ROOT / "tests" / "golden" / "before"
WIDTH = 80
SETUP = "import itertools, pathlib, shutil\nimport pyarrow as pa\nimport kseg"


class Demo:
    """Runs lines of code and shell commands, and shows them with their results."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        exec(SETUP, self.names)

    def say(self, text: str) -> None:
        """Print a sentence or two."""
        print()
        for line in textwrap.wrap(" ".join(text.split()), WIDTH - 2):
            print(f"  {line}")

    def do(self, code: str) -> None:
        """Show statements and execute them; they print nothing."""
        exec(self._echo(code), self.names)

    def show(self, expression: str, rows: int = 4) -> Any:
        """Show an expression and its value; of a table or a list the first rows."""
        value = eval(self._echo(expression), self.names)
        for line in _lines_of(value, rows):
            print(f"  {clip(line, WIDTH - 2)}")
        return value

    def fail(self, code: str) -> None:
        """Show statements that end in a kseg error, and the error."""
        code = self._echo(code)
        try:
            exec(code, self.names)
        except KsegError as error:
            for line in textwrap.wrap(f"{type(error).__name__}: {error}", WIDTH - 2, break_on_hyphens=False):
                print(f"  {line}")
            return
        raise SystemExit("demo: this was expected to fail, and did not")

    def shell(self, command: str, lines: int = 8) -> None:
        """Show a `kseg` command line and the first lines of what it prints."""
        wrapped = textwrap.wrap(command, WIDTH - 4, break_on_hyphens=False)
        print("\n$ " + " \\\n    ".join(wrapped))
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        with contextlib.redirect_stdout(out):
            status = run_kseg(command.split()[1:])
        if status:
            raise SystemExit(f"demo: '{command}' ended with status {status}")
        printed = out.buffer.getvalue().decode().splitlines()
        for line in printed[:lines]:
            print(clip(line, WIDTH))
        if len(printed) > lines:
            print(f"  ({len(printed) - lines} more lines)")

    def _echo(self, code: str) -> str:
        code = textwrap.dedent(code).strip()
        print("\n>>> " + code.replace("\n", "\n... "))
        return code


def _lines_of(value: Any, rows: int) -> list[str]:
    """A value as lines: tables as tables, lists an item a line, all else as Python writes it."""
    if value is None:
        return []
    if isinstance(value, pa.Table):
        return [*_table_lines(value.slice(0, rows)), f"({value.num_rows:,} rows)"]
    if isinstance(value, list):
        more = [f"({len(value) - rows} more)"] if len(value) > rows else []
        return [repr(item) for item in value[:rows]] + more
    return textwrap.wrap(repr(value), WIDTH - 2) or [""]


def _table_lines(table: pa.Table) -> list[str]:
    columns = [Column(name, right=pa.types.is_integer(table.schema.field(name).type)) for name in table.schema.names]
    cells = [[_cell(value) for value in row.values()] for row in table.to_pylist()]
    return format_table(columns, cells, WIDTH - 2)


def _cell(value: Any) -> object:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value.isoformat(timespec="milliseconds")[:23] if hasattr(value, "isoformat") else value


# --- the steps --------------------------------------------------------------------------------------------------------


def list_directory(demo: Demo) -> None:
    """A log directory, as a broker left it."""
    demo.say("data/ was written by a Kafka 4.3.1 broker. Nothing is locked and nothing is changed to look at it.")
    demo.shell("kseg ls data", lines=12)
    demo.shell("kseg ls data --topic multi-segment --segments")


def read_records(demo: Demo) -> None:
    """Records as Arrow."""
    demo.do('log = kseg.open_log("data/plain-0")')
    demo.show("log.topic, log.partition, log.start_offset, log.end_offset")
    demo.do("table = pa.Table.from_batches(log.read())")
    demo.show('table.select(["offset", "timestamp", "key", "value"])')
    demo.say("All batches were checked against their CRC on the way. Columns are decoded only if they are asked for:")
    demo.do('batches = log.read(0, 3, columns=["offset", "headers"])')
    demo.show("pa.Table.from_batches(batches).to_pylist()")


def read_transactions(demo: Demo) -> None:
    """What a consumer sees of transactions."""
    demo.do('log = kseg.open_log("data/tx-0")')
    demo.show("log.high_watermark, log.last_stable_offset")
    demo.show("sum(batch.num_rows for batch in log.read())")
    demo.show('sum(batch.num_rows for batch in log.read(isolation="read_committed"))')
    demo.say("Control records are never given; with read_committed the aborted ones are hidden too:")
    demo.do("aborted = log.aborted_transactions(0, log.end_offset)")
    demo.show("[(txn.producer_id, txn.first_offset, txn.last_offset) for txn in aborted]", rows=3)


def seek(demo: Demo) -> None:
    """Seek by time and by offset, through the broker's sparse indexes."""
    demo.do('log = kseg.open_log("data/multi-segment-0")')
    demo.show("log.offset_for_time(1_700_004_000_000)")
    demo.do("start = log.offset_for_time(1_700_004_000_000).offset")
    demo.do('batches = log.read(start, start + 3, columns=["offset", "timestamp", "key"])')
    demo.show("pa.Table.from_batches(batches)")
    demo.shell("kseg cat data --topic multi-segment --at 2023-11-14T23:20:00Z -n 3")


def dump_batches(demo: Demo) -> None:
    """What is in the files: batches, indexes, snapshots, checkpoints."""
    demo.do('log = kseg.open_log("data/mixed-codecs-0")')
    demo.show("[(b.base_offset, b.count, b.codec.label, b.size) for b in log.batches()]", rows=5)
    demo.shell("kseg dump data/mixed-codecs-0 --records", lines=9)
    demo.shell("kseg dump data/multi-segment-0/00000000000000002241.timeindex", lines=4)
    demo.shell("kseg dump data/__consumer_offsets-0 --records", lines=8)


def write_log(demo: Demo) -> None:
    """Write a log that a broker can load."""
    demo.do(
        """
        names = ["ada", "grace", "edsger", "barbara"]
        orders = pa.table({
            "key": [names[i % 4] for i in range(100_000)],
            "value": [f'{{"order": {i}}}' for i in range(100_000)],
            "timestamp": range(1_700_000_000_000, 1_700_000_100_000),
        })
        """
    )
    demo.do(
        """
        config = kseg.LogConfig(segment_bytes=200_000)
        with kseg.create_log("new/orders-0", config=config) as log:
            log.append(orders, codec="zstd")
        """
    )
    demo.do(
        """
        with kseg.append_to("new/orders-0") as log:
            added = log.append(orders.slice(0, 50_000), codec="lz4")
        """
    )
    demo.show("added")
    demo.do(
        """
        log = kseg.open_log("new/orders-0")
        batches = log.read(end=100_000, columns=["key", "value"])
        back = pa.Table.from_batches(batches)
        """
    )
    if not demo.show('back.equals(orders.select(["key", "value"]).cast(back.schema))'):
        raise SystemExit("demo: what was read back is not what was written")
    demo.shell("kseg ls new --segments")


def meet_damage(demo: Demo) -> None:
    """Damage has an address."""
    demo.do(
        """
        shutil.copytree("data/plain-0", "new/plain-0")
        path = pathlib.Path("new/plain-0/00000000000000000000.log")
        path.write_bytes(path.read_bytes().replace(b"checkout", b"checkin!", 1))
        """
    )
    demo.fail('list(kseg.open_log("new/plain-0").read())')


def export_parquet(demo: Demo) -> None:
    """Topics to Parquet, and only what is new the next time."""
    demo.shell("kseg export data new/lake --topics multi-segment,tx --by day")
    demo.shell("kseg export data new/lake --topics multi-segment,tx --by day")
    demo.do(
        """
        import pyarrow.parquet as pq
        day = pq.read_table("new/lake", filters=[("day", "=", "2023-11-15")])
        """
    )
    demo.show('day.select(["topic", "partition", "offset", "timestamp", "key"])')


def compact_log(demo: Demo) -> None:
    """A round of the log cleaner, without a broker."""
    demo.say("The records stay that Kafka's own cleaner would leave. --output writes a copy; data/ is not changed.")
    demo.shell(
        "kseg compact data/compact-plain-0 --output new/compacted --first-dirty 0"
        " --cleanup-policy compact --delete-retention-ms 86400000"
    )
    demo.do(
        """
        log = kseg.open_log("new/compacted/compact-plain-0")
        batches = log.read(columns=["offset", "key", "value"])
        """
    )
    demo.show("pa.Table.from_batches(batches)")


def read_with_spark(demo: Demo) -> None:
    """Spark, with the options and columns of its Kafka source."""
    if (lacking := _lacking_for_spark()) is not None:
        demo.say(f"This step is left out: {lacking}.")
        return
    demo.say("Change the format, give a path: no broker is asked. Starting Spark takes some seconds.")
    demo.names["spark"] = spark = _start_spark()
    try:
        demo.do(
            """
            path = str(pathlib.Path("data").resolve())
            reader = spark.read.format("kseg").option("subscribe", "plain,tx")
            reader = reader.option("kafka.isolation.level", "read_committed")
            counts = reader.load(path).groupBy("topic").count().orderBy("topic")
            """
        )
        found = demo.show("[tuple(row) for row in counts.collect()]")
        logs = [log for log in kseg.open_dir("data") if log.topic in ("plain", "tx")]
        batches = [(log.topic, batch) for log in logs for batch in log.read(isolation="read_committed")]
        if dict(found) != {topic: sum(b.num_rows for name, b in batches if name == topic) for topic in ("plain", "tx")}:
            raise SystemExit("demo: Spark has read something else")
        demo.say("kseg.scan is the fast lane, and decodes only the columns that are asked for:")
        demo.show('kseg.scan(spark, path, columns=["offset"]).count()')
        demo.say("Views are tables about the logs, such as how far consumer groups are behind:")
        demo.do('lag = spark.read.format("kseg").option("view", "offsets").load(path)')
        demo.show('lag.select("group", "topic", "partition", "offset", "lag").toArrow()')
    finally:
        spark.stop()


def _lacking_for_spark() -> str | None:
    if importlib.util.find_spec("pyspark") is None:
        return "it needs pyspark"
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "it needs Java 17"
    return None


def _start_spark() -> Any:
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    settings = {
        "spark.driver.memory": "1g",
        "spark.local.dir": str(Path("spark").resolve()),
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    return SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()


STEPS: tuple[Callable[[Demo], None], ...] = (
    list_directory,
    read_records,
    read_transactions,
    seek,
    dump_batches,
    write_log,
    meet_damage,
    export_parquet,
    compact_log,
    read_with_spark,
)


def main() -> int:
    """Run all steps in a temporary folder."""
    if not SHIPPED.is_dir():
        raise SystemExit(f"demo: {SHIPPED} is missing; it is part of the repository")
    began = time.monotonic()
    os.environ["COLUMNS"] = str(WIDTH)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(
            errors="replace", line_buffering=True
        )  # a terminal that knows no UTF-8 is no reason to stop
    home = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="kseg-demo-") as folder:
        os.chdir(folder)
        try:
            Path("data").symlink_to(SHIPPED, target_is_directory=True)
            demo = Demo()
            demo.say(
                f"kseg at work on {SHIPPED.relative_to(ROOT)}, here called data/; new/ is in a temporary folder. "
                "The first run compiles the kernels, which takes some seconds; later runs find them cached."
            )
            for number, step in enumerate(STEPS, 1):
                title = (step.__doc__ or step.__name__).partition("\n")[0].rstrip(".")
                print(f"\n\n--- {number}. {title} ".ljust(WIDTH + 2, "-"))
                step(demo)
        finally:
            os.chdir(home)
    print(f"\n\nDone in {time.monotonic() - began:.1f} s. README.md says where to go on.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
