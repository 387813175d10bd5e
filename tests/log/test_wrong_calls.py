"""Wrong arguments end in an OptionError that says what is wanted, and never in silence or in another exception."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest

import kseg
from kseg.errors import LogError, OptionError
from tests.builders import LogBuilder


@pytest.fixture
def path(tmp_path):
    return LogBuilder(tmp_path).segment().batch(3).write()


@pytest.mark.parametrize("columns", [[], (), 5, iter([])], ids=["list", "tuple", "number", "iterator"])
def test_a_read_of_no_column_is_refused_and_does_not_look_empty(path, columns):
    with pytest.raises(OptionError, match="columns"):
        list(kseg.open_log(path).read(columns=columns))


def test_columns_may_be_any_iterable(path):
    (batch,) = kseg.open_log(path).read(columns=iter(["offset", "key"]))
    assert batch.schema.names == ["offset", "key"]


@pytest.mark.parametrize("wrong", ["", "a\0b", None, 5, b"orders-0"], ids=repr)
@pytest.mark.parametrize("call", [kseg.open_log, kseg.open_dir, kseg.append_to, kseg.create_log])
def test_an_empty_path_is_not_the_working_directory(monkeypatch, path, call, wrong):
    monkeypatch.chdir(path)
    with pytest.raises(OptionError, match=r"path|partition directory"):
        call(wrong)


def test_javas_file_uris_are_paths(path):
    log = kseg.open_log(f"file:{path}")
    assert (log.directory, log.end_offset) == (str(path), 3)
    assert len(kseg.open_dir(f"file:{path.parent}")) == 1
    with kseg.append_to(f"file:{path}") as writer:
        assert writer.next_offset == 3


@pytest.mark.parametrize("key", ["random-0", 0, None, ("random",), ("random", 0, 0)], ids=str)
def test_a_partition_is_a_topic_and_a_number(path, key):
    data = kseg.open_dir(path.parent)
    assert key not in data
    with pytest.raises(OptionError, match=r"\(topic, number\)"):
        data[key]


def test_numbers_are_numbers(path):
    log = kseg.open_log(path)
    with pytest.raises(OptionError, match="start"):
        log.aborted_transactions("a", "b")
    with pytest.raises(OptionError, match="bytes per second"):
        kseg.open_log(path, max_bytes_per_second="5")


@pytest.mark.parametrize(
    "options",
    [{"keys": 5}, {"keys": ["a"]}, {"keys": {"a": 5}}, {"remote": 5}, {"remote": b"x"}, {"remote": ""},
     {"max_bytes_per_second": 1e-300}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("call", [kseg.open_log, kseg.open_dir])
def test_wrong_options_of_opening(path, call, options):
    with pytest.raises(OptionError):
        list(call(path, **options))


def test_a_tier_that_is_not_there_left_no_partition_of_a_directory(path, tmp_path):
    with pytest.raises(kseg.StorageError, match="no such tier"):
        kseg.open_dir(path.parent, remote=tmp_path / "none")


@pytest.mark.parametrize("root", ["/", "file:///"])
def test_the_root_directory_is_no_file_without_a_name(root):
    with pytest.raises(LogError, match="not a partition directory") as raised:
        kseg.open_log(root)
    assert raised.value.path == "/"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"producer_epoch": 5}, "needs a producer_id"),
        ({"codec": "gzip", "level": "3"}, "level '3'"),
        ({"producer_id": "x"}, "producer_id must be from 0"),
        ({"leader_epoch": 1 << 31}, "leader_epoch must be from 0 to 2147483647"),
        ({"leader_epoch": -1}, "leader_epoch must be from 0 to 2147483647"),
        ({"batch_bytes": "5"}, "batch_bytes must be from 0"),
        ({"batch_bytes": 0}, "must be positive"),
        ({"batch_records": 1.5}, "batch_records must be from 0"),
        ({"batch_records": 0}, "must be positive"),
    ],
    ids=str,
)
def test_wrong_options_of_append(path, options, message):
    with kseg.append_to(path) as writer, pytest.raises(OptionError, match=message):
        writer.append(pa.table({"value": ["x"]}), **options)


def test_the_greatest_offset_does_not_fall(path):
    with kseg.append_to(path) as writer, pytest.raises(OptionError, match="too large"):
        writer.append(pa.table({"value": ["x"], "offset": [2**63 - 1]}))


@pytest.mark.parametrize(
    "options",
    [{"commit": "yes"}, {"commit": True, "timestamp_ms": 2**63}, {"commit": True, "timestamp_ms": -5}],
    ids=str,
)
def test_wrong_options_of_a_marker(path, options):
    with kseg.append_to(path) as writer:
        with pytest.raises(OptionError, match=r"commit|timestamp_ms"):
            writer.append_marker(5, **options)
        assert writer.next_offset == 3


@pytest.mark.parametrize(
    "options",
    [
        *({"config": {"segment_bytes": 5}}, {"topic_id": 5}, {"clock": 5}),
        *({"clock": lambda: float("nan")}, {"clock": lambda: 1e300}, {"clock": lambda: -5}),
    ],
    ids=["config", "topic_id", "clock", "nan", "too late", "before the epoch"],
)
def test_a_log_that_cannot_be_made_changes_nothing(tmp_path, options):
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b"clean")
    with pytest.raises(OptionError, match=next(iter(options))):
        kseg.create_log(tmp_path / "t-0", **options)
    assert [path.name for path in tmp_path.iterdir()] == [".kafka_cleanshutdown"]


@pytest.mark.parametrize("name", ["orders-01", "orders-00"])
def test_a_directory_is_made_under_the_name_that_a_broker_gives_it(tmp_path, name):
    with pytest.raises(OptionError, match=f"orders-{int(name[-2:])}"):
        kseg.create_log(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_appending_to_a_directory_took_the_checkpoints_of_the_partition_that_its_name_is_of(tmp_path):
    first = LogBuilder(tmp_path, "t").segment().batch(50).write()
    with kseg.append_to(first):
        pass
    second = shutil.copytree(first, tmp_path / "t-00")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with pytest.raises(OptionError, match="'t-00' is 't-0' to a broker"):
        kseg.append_to(second)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}


def test_bytes_are_no_encoded_batches(tmp_path):
    with kseg.create_log(tmp_path / "new-0") as writer, pytest.raises(OptionError, match="EncodedBatches"):
        writer.append_batches(b"abc")


@pytest.mark.parametrize("limit", [0, -1, 2**63, 2**64])
def test_a_batch_limit_beyond_64_bits_was_an_overflow(golden, limit):
    with pytest.raises(OptionError, match=f"max_batch_bytes must be from 1 to {2**63 - 1}, got {limit}"):
        kseg.open_log(golden / "before" / "plain-0", max_batch_bytes=limit)
