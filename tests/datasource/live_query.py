"""A streaming query with a sink that writing twice does not change: `python -m tests.datasource.live_query`.

A test starts it in a process group of its own, so that it can kill it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

COLUMNS = ("topic", "partition", "offset", "key", "value")


def start_query(spark: Any, data: str, folder: Path, **options: str) -> Any:
    """Follow all topics; each batch becomes a folder of its own, which a repetition of the batch replaces."""

    def keep(frame: Any, batch_id: int) -> None:
        frame.coalesce(1).write.mode("overwrite").parquet(str(folder / "rows" / str(batch_id)))

    source = spark.readStream.format("kseg").option("startingOffsets", "earliest").option("columns", ",".join(COLUMNS))
    sink = source.options(**options).load(data).writeStream.foreachBatch(keep)
    return sink.option("checkpointLocation", str(folder / "checkpoint")).start()


def committed(folder: Path) -> dict[str, dict[str, int]]:
    """The offsets up to which the query has come, by its checkpoint."""
    done = [int(file.name) for file in (folder / "checkpoint" / "commits").glob("[0-9]*")]
    if not done:
        return {}
    text = (folder / "checkpoint" / "offsets" / str(max(done))).read_text(encoding="utf-8")
    offsets: dict[str, dict[str, int]] = json.loads(text.splitlines()[-1])
    return offsets


def kept_rows(folder: Path) -> list[tuple[Any, ...]]:
    """What is in the sink: (topic, partition, offset, key, value), in the order of offsets."""
    import pyarrow.parquet as pq

    files = [file for file in folder.glob("rows/*/*.parquet") if not file.name.startswith(("_", "."))]
    tables = [pq.read_table(file, columns=list(COLUMNS)) for file in files]
    return sorted(
        row for table in tables for row in zip(*(column.to_pylist() for column in table.columns), strict=True)
    )


def main(data: str, folder: str) -> None:
    """Run until killed; where the query itself fails, say so and end."""
    from tests.datasource.spark_session import start_session

    start_query(start_session(Path(folder) / "spark"), data, Path(folder)).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
