"""`kseg.export` in this process: what is written is what a consumer reads, and a second run adds only what is new."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import kseg
from tests.builders import LogBuilder
from tests.exporting.lake import DAY, NEW_YEAR, append, data_files, make_log, manifests, offsets, records, rows
from tests.reference.record import Record

GOLDEN = Path(__file__).parent.parent / "golden"
LATE = ("tx", 0, 432)  # its transaction was decided after the consumer had read (tests/log/test_golden_reads.py)


def expected(folder, *, committed):
    table = pq.read_table(GOLDEN / f"{folder}.parquet").to_pylist()
    return [
        (
            row["topic"], row["partition"], row["offset"], row["timestamp_ms"], row["timestampType"], row["key"],
            row["value"], [(h["key"], h["value"]) for h in row["headers"]],
        )
        for row in sorted(table, key=lambda row: (row["topic"], row["partition"], row["offset"]))
        if not committed or row["committed"] or (row["topic"], row["partition"], row["offset"]) == LATE
    ]  # fmt: skip


def found(target):
    return [
        (
            row["topic"], row["partition"], row["offset"], row["timestamp"], row["timestampType"], row["key"],
            row["value"], [(h["key"], h["value"]) for h in row["headers"] or []],
        )
        for row in rows(target)
    ]  # fmt: skip


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("folder", ["before", "cleaned", "expired"])
def test_golden_topics_are_exported_as_a_consumer_read_them(tmp_path, folder, isolation):
    report = kseg.export(
        None, GOLDEN / folder, tmp_path / "lake", includeHeaders=True, kafka_isolation_level=isolation,
        maxBytesPerTask=300_000,
    )  # fmt: skip
    wanted = expected(folder, committed=isolation == "read_committed")
    assert found(tmp_path / "lake") == wanted
    assert report.rows == len(wanted) == sum(partition.rows for partition in report.partitions)
    assert report.files == len(data_files(tmp_path / "lake"))
    assert sorted(path.name for path in (tmp_path / "lake" / "_kseg" / "staging").iterdir()) == []


def test_arrow_reads_the_directory_as_a_table(tmp_path):
    kseg.export(None, GOLDEN / "before", tmp_path / "lake", topics=["plain", "multi-segment"])
    table = pq.read_table(tmp_path / "lake")
    assert table.num_rows == 12000
    days = ds.dataset(tmp_path / "lake", partitioning="hive").to_table(
        columns=["day"], filter=ds.field("topic") == "multi-segment"
    )
    assert set(days.column("day").to_pylist()) == {"2023-11-14", "2023-11-15"}
    assert table.schema.field("timestamp").type == pa.timestamp("ms", tz="UTC")


def test_a_second_run_adds_only_what_is_new(tmp_path):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    make_log(logs, "b-0", 5)
    first = kseg.export(None, logs, target)
    assert (first.run, first.rows, first.manifest) == (1, 35, "_kseg/runs/00000001.json")
    before = data_files(target)
    again = kseg.export(None, logs, target)
    assert (again.run, again.rows, again.partitions) == (None, 0, ())
    assert str(again) == "nothing new to export"
    append(logs, count=12, first=30)
    make_log(logs, "c-3", 4)
    second = kseg.export(None, logs, target)
    assert [(p.topic, p.partition, p.start, p.end, p.rows) for p in second.partitions] == [
        ("a", 0, 30, 42, 12),
        ("c", 3, 0, 4, 4),
    ]
    assert set(before) < set(data_files(target))
    wanted = [("a", 0, i) for i in range(42)] + [("b", 0, i) for i in range(5)] + [("c", 3, i) for i in range(4)]
    assert offsets(target) == wanted
    assert [m["run"] for m in manifests(target)] == [1, 2]
    assert sorted(file["path"] for m in manifests(target) for file in m["files"]) == data_files(target)
    assert manifests(target)[1]["next"]["b"]["0"]["offset"] == 5


def test_partitions_of_other_runs_keep_their_places(tmp_path):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    make_log(logs, "b-0", 5)
    kseg.export(None, logs, target, topics="a")
    kseg.export(None, logs, target, topics="b")
    assert kseg.export(None, logs, target).rows == 0


def test_hours_across_midnight(tmp_path):
    logs = make_log(tmp_path / "logs", count=120, start=NEW_YEAR - 3_600_000, step=60_000)
    kseg.export(None, logs, tmp_path / "lake", by="hour")
    found = rows(tmp_path / "lake")
    assert {(row["day"], row["hour"]) for row in found[:60]} == {("2025-12-31", "23")}
    assert {(row["day"], row["hour"]) for row in found[60:]} == {("2026-01-01", "00")}
    assert [row["offset"] for row in found] == list(range(120))


def test_records_without_a_time_that_a_calendar_has(tmp_path):
    log = LogBuilder(tmp_path / "logs", "old").segment().legacy(3, magic=0)
    log.batch([Record(3, NEW_YEAR, b"k", b"now"), Record(4, NEW_YEAR * 1000, b"k", b"microseconds")]).write()
    kseg.export(None, tmp_path / "logs", tmp_path / "lake", by="hour")
    unknown = "__HIVE_DEFAULT_PARTITION__"
    assert [(row["offset"], row["day"], row["hour"]) for row in rows(tmp_path / "lake")] == [
        (0, unknown, unknown), (1, unknown, unknown), (2, unknown, unknown), (3, "2026-01-01", "00"),
        (4, unknown, unknown),
    ]  # fmt: skip
    assert pq.read_table(tmp_path / "lake").num_rows == 5


def test_a_directory_for_each_topic_alone(tmp_path):
    logs = make_log(tmp_path / "logs", count=50, step=DAY)
    report = kseg.export(None, logs, tmp_path / "lake", by=None)
    assert report.files == 1
    assert [name.rpartition("/")[0] for name in data_files(tmp_path / "lake")] == ["topic=a"]


def test_columns_are_chosen_and_the_timestamp_is_used_all_the_same(tmp_path):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    kseg.export(None, logs, target, columns=["topic", "offset", "producerId"])
    assert pq.ParquetFile(target / data_files(target)[0]).schema_arrow.names == ["offset", "producerId"]
    assert {row["day"] for row in rows(target)} == {"2026-01-01"}


def test_unicode_and_headers(tmp_path):
    table = pa.table(
        {
            "key": ["schlüssel".encode(), b"\xff\xfe"],
            "value": ["日本 🎉".encode(), b""],
            "timestamp": pa.array([NEW_YEAR, NEW_YEAR], pa.int64()),
            "headers": pa.array(
                [[{"key": "größe", "value": b"\x00"}, {"key": "größe", "value": None}], None],
                kseg.open_log(GOLDEN / "before" / "plain-0").read().__next__().schema.field("headers").type,
            ),
        }
    )
    with kseg.create_log(tmp_path / "logs" / "a-0") as writer:
        writer.append(table)
    target = tmp_path / "zïel 目标"
    kseg.export(None, tmp_path / "logs", target, includeHeaders=True)
    assert [(row["key"], row["value"], row["headers"]) for row in rows(target)] == [
        (
            "schlüssel".encode(),
            "日本 🎉".encode(),
            [{"key": "größe", "value": b"\x00"}, {"key": "größe", "value": None}],
        ),
        (b"\xff\xfe", b"", None),
    ]


def test_an_empty_topic_has_nothing_and_is_read_from_its_beginning_later(tmp_path):
    logs, target = make_log(tmp_path / "logs", count=0), tmp_path / "lake"
    assert kseg.export(None, logs, target).rows == 0
    assert data_files(target) == []
    append(logs, count=3)
    assert kseg.export(None, logs, target).rows == 3


def test_only_aborted_records_are_passed_over_for_good(tmp_path):
    logs, target = tmp_path / "logs", tmp_path / "lake"
    with kseg.create_log(logs / "a-0") as writer:
        writer.append(records(4), producer_id=6, transactional=True)
        writer.append_marker(6, commit=False)
    report = kseg.export(None, logs, target, kafka_isolation_level="read_committed")
    assert (report.run, report.rows, report.files) == (1, 0, 0)
    assert [(p.start, p.end) for p in report.partitions] == [(0, 5)]
    assert kseg.export(None, logs, target, kafka_isolation_level="read_committed").partitions == ()


def test_starts_and_ends_hold_for_partitions_that_are_new_to_the_target(tmp_path):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    some = {"startingOffsets": '{"a":{"0":10}}', "endingOffsets": '{"a":{"0":20}}'}
    assert kseg.export(None, logs, target, **some).rows == 10
    assert kseg.export(None, logs, target, **some).rows == 0
    earlier = kseg.export(None, logs, target, startingOffsets='{"a":{"0":3}}', endingOffsets='{"a":{"0":12}}')
    assert earlier.partitions == ()
    assert kseg.export(None, logs, target, startingTimestamp=NEW_YEAR + 5000).rows == 10
    assert offsets(target) == [("a", 0, i) for i in range(10, 30)]


def test_offsets_that_are_gone_are_told_or_counted(tmp_path):
    logs, target = tmp_path / "logs", tmp_path / "lake"
    make_log(logs, count=30)
    kseg.export(None, logs, target)
    shutil.rmtree(logs / "a-0")
    LogBuilder(logs, "a").segment(base=50).batch(5).write()
    with pytest.raises(kseg.DataLossError, match=r"a-0: offsets \[30, 50\) are gone: the log starts at 50"):
        kseg.export(None, logs, target)
    assert len(manifests(target)) == 1
    report = kseg.export(None, logs, target, failOnDataLoss=False)
    assert (report.rows, report.lost_offsets, report.losses) == (
        5, 20, ("a-0: offsets [30, 50) are gone: the log starts at 50",),
    )  # fmt: skip
    assert "lost: a-0" in str(report)


def test_offsets_that_are_gone_are_counted_once(tmp_path):
    """A log with nothing left in it kept its place, and each run told the same loss."""
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    kseg.export(None, logs, target, endingOffsets='{"a":{"0":20}}')
    (logs / "log-start-offset-checkpoint").write_text("0\n1\na 0 30\n")
    losses = [kseg.export(None, logs, target, failOnDataLoss=False).lost_offsets for _ in range(2)]
    append(logs, count=4)
    after = kseg.export(None, logs, target, failOnDataLoss=False)
    assert (*losses, after.lost_offsets, after.rows) == (10, 0, 0, 4)


def test_a_log_that_was_cut_off_goes_on_at_its_end(tmp_path):
    """The place stayed behind the end: what was written up to there since was never exported, and nothing said so."""
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    kseg.export(None, logs, target)
    topic_id = kseg.open_log(logs / "a-0").topic_id
    shutil.rmtree(logs / "a-0")
    with kseg.create_log(logs / "a-0", topic_id=topic_id) as writer:
        writer.append(records(10))
    with pytest.raises(kseg.DataLossError, match=r"a-0: offsets \[10, 30\) cannot be read: the log ends at 10"):
        kseg.export(None, logs, target)
    report = kseg.export(None, logs, target, failOnDataLoss=False)
    assert (report.run, report.rows, report.lost_offsets) == (2, 0, 20)
    append(logs, count=25, first=10)
    assert [(p.start, p.end) for p in kseg.export(None, logs, target).partitions] == [(10, 35)]


def test_damage_behind_what_was_exported_ends_the_next_run(tmp_path):
    """A run with nothing new said so, and nothing of damage at the end of the log."""
    logs, target = tmp_path / "logs", tmp_path / "lake"
    LogBuilder(logs, "a").segment().batch(5).write()
    kseg.export(None, logs, target)
    LogBuilder(logs, "a").segment().batch(5).batch(5).corrupt(byte=80).write()
    with pytest.raises(kseg.ChecksumError, match="offset 5"):
        kseg.export(None, logs, target)
    assert kseg.export(None, logs, target, corrupt="skip").run is None


def test_a_topic_that_was_made_again_is_refused(tmp_path):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    kseg.export(None, logs, target)
    shutil.rmtree(logs / "a-0")
    make_log(logs)
    with pytest.raises(kseg.LogError, match="topic a was deleted and made again"):
        kseg.export(None, logs, target)


def test_damage_publishes_nothing(tmp_path):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    LogBuilder(logs, "b").segment().batch(5).batch(5).corrupt(byte=80).batch(5).write()
    with pytest.raises(kseg.ChecksumError):
        kseg.export(None, logs, target, maxBytesPerTask=100)
    assert data_files(target) == []
    assert list((target / "_kseg" / "staging").iterdir()) == []
    assert kseg.export(None, logs, target, topics="a").rows == 30


def test_dry_run_writes_nothing(tmp_path):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    report = kseg.export(None, logs, target, dry_run=True)
    assert not target.exists()
    assert [(p.topic, p.start, p.end, p.rows) for p in report.partitions] == [("a", 0, 30, None)]
    assert report.bytes == (logs / "a-0" / f"{0:020d}.log").stat().st_size
    kseg.export(None, logs, target)
    append(logs, count=2)
    assert [(p.start, p.end) for p in kseg.export(None, logs, target, dry_run=True).partitions] == [(30, 32)]
    assert len(data_files(target)) == 1


def test_a_directory_with_other_files_is_refused(tmp_path):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    target.mkdir()
    (target / "precious.txt").write_text("mine")
    with pytest.raises(kseg.OptionError, match=r"holds other files, such as 'precious.txt'"):
        kseg.export(None, logs, target)
    assert [path.name for path in target.iterdir()] == ["precious.txt"]
    with pytest.raises(kseg.StorageError, match="not a directory"):
        kseg.export(None, logs, target / "precious.txt")


@pytest.mark.parametrize("name", [".", "lake", "a-0/lake"])
def test_a_target_inside_the_logs_is_refused(tmp_path, name):
    logs = make_log(tmp_path / "logs")
    with pytest.raises(kseg.OptionError, match="is inside"):
        kseg.export(None, logs, logs / name)
    assert [path.name for path in logs.iterdir() if path.is_dir()] == ["a-0"]


def test_a_target_beside_partitions_of_a_broker_is_refused(tmp_path):
    logs = make_log(tmp_path / "logs")
    kseg.export(None, logs / "a-0", logs / "lake")  # no broker's directory
    shutil.rmtree(logs / "lake")
    (logs / "meta.properties").write_text("version=1\n")
    with pytest.raises(kseg.OptionError, match=r"logs/lake is inside .*logs, which holds logs"):
        kseg.export(None, logs / "a-0", logs / "lake")
    assert not (logs / "lake").exists()


@pytest.mark.parametrize(
    "changed",
    [
        {"by": "hour"},
        {"by": None},
        {"columns": ["offset"]},
        {"kafka_isolation_level": "read_committed"},
        {"corrupt": "column"},
    ],
)
def test_what_holds_for_a_target_cannot_change(tmp_path, changed):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    kseg.export(None, logs, target)
    append(logs)
    with pytest.raises(kseg.OptionError, match="but the target was begun with"):
        kseg.export(None, logs, target, **changed)
    assert kseg.export(None, logs, target, compression="zstd", compression_level=3).rows == 30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "week"}, "by is 'week'; valid values are 'day', 'hour' and None"),
        ({"compression": "rar"}, "compression is 'rar'; valid values are snappy"),
        ({"compression_level": 3}, "compression_level is 3; snappy has none"),
        ({"compression": "zstd", "compression_level": 40}, "zstd has 1 to 22"),
        ({"target_file_bytes": 0}, "target_file_bytes is 0"),
        ({"target_file_bytes": "64m"}, "target_file_bytes is '64m'"),
        ({"row_group_bytes": -1}, "row_group_bytes is -1"),
        ({"columns": ["colour"]}, "unknown column 'colour'"),
        ({"columns": ["topic"]}, "columns names nothing but the topic"),
        ({"view": "batches"}, "only records are exported"),
        ({"corrupt": "perhaps"}, "corrupt"),
        ({"columns": ["_corrupt", "offset"]}, "unknown column '_corrupt'"),
        ({"corrupt": "column", "columns": ["colour"]}, "unknown column 'colour'"),
        ({"corrupt": "column", "columns": ["topic"]}, "columns names nothing but the topic"),
        ({"startingOffsets": "latest"}, "cannot start at latest"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_made(tmp_path, options, message):
    logs = make_log(tmp_path / "logs")
    with pytest.raises(kseg.OptionError, match=message):
        kseg.export(None, logs, tmp_path / "lake", **options)
    assert not (tmp_path / "lake").exists()


def test_a_source_that_is_not_there_is_told_before_anything_is_made(tmp_path):
    with pytest.raises(kseg.KsegError, match="nowhere"):
        kseg.export(None, tmp_path / "nowhere", tmp_path / "lake")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("compression", ["snappy", "zstd", "lz4", "gzip", "brotli", "none"])
def test_codecs(tmp_path, compression):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    kseg.export(None, logs, target, compression=compression)
    column = pq.ParquetFile(target / data_files(target)[0]).metadata.row_group(0).column(1)
    assert column.compression == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())
    assert offsets(target) == [("a", 0, i) for i in range(30)]


def test_files_and_row_groups_have_the_sizes_asked_for(tmp_path):
    target = tmp_path / "lake"
    kseg.export(
        None, GOLDEN / "before", target, topics="multi-segment", by=None, compression="none",
        target_file_bytes=400_000, row_group_bytes=100_000, maxBytesPerTask="100m",
    )  # fmt: skip
    files = [pq.ParquetFile(target / name) for name in data_files(target)]
    sizes = [(target / name).stat().st_size for name in data_files(target)]
    assert len(files) > 2
    assert sum(file.metadata.num_rows for file in files) == 9000
    assert max(sizes) < 400_000 + 1_100_000  # of a segment of 1 MiB all rows come in one batch
    groups = [file.metadata.row_group(i).total_byte_size for file in files for i in range(file.num_row_groups)]
    assert max(groups) < 250_000


def test_nothing_of_spark_is_needed(tmp_path):
    logs = make_log(tmp_path / "logs")
    code = (
        "import sys; sys.modules['pyspark'] = None; import kseg;"
        f"print(kseg.export(None, {str(logs)!r}, {str(tmp_path / 'lake')!r}).rows)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("30\n", "")
