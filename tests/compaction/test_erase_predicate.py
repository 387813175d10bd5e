"""What a predicate may answer: booleans and nulls; whatever else it says erases nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import kseg
from kseg.compaction import erase
from tests.builders import LogBuilder

KEYS = [b"a", b"b", b"c", b"d"]


@pytest.fixture
def letters(tmp_path) -> Path:
    builder = LogBuilder(tmp_path, "letters").segment()
    for key in KEYS:
        builder.record(key, b"value of " + key)
    return builder.segment().record(b"e", b"1").write()


def keys_of(directory: Path) -> list[bytes]:
    return [key for batch in kseg.open_log(directory).read(columns=["key"]) for key in batch.column("key").to_pylist()]


def left_merge(batch: pa.RecordBatch) -> pd.Series:
    flags = pd.DataFrame({"key": [b"a"], "is_meant": [True]})
    return batch.to_pandas()[["key"]].merge(flags, on="key", how="left")["is_meant"]


def chosen(batch: pa.RecordBatch, yes: object, no: object) -> list[object]:
    return [yes if key == b"a" else no for key in batch.column("key").to_pylist()]


@pytest.mark.parametrize(
    "predicate",
    [
        left_merge,
        lambda batch: pd.Series(chosen(batch, True, np.nan), dtype=object),
        lambda batch: np.array(chosen(batch, np.True_, float("nan")), dtype=object),
        lambda batch: chosen(batch, True, np.nan),
        lambda batch: chosen(batch, True, None),
        lambda batch: chosen(batch, True, pd.NaT),
        lambda batch: pa.chunked_array([pa.array(chosen(batch, True, None))]),
    ],
)
def test_nan_which_is_null_to_pandas_was_taken_for_yes_and_records_went(letters, predicate):
    report = erase(letters, predicate=predicate)
    assert (report.records, report.is_proof) == (1, True)
    assert keys_of(letters) == [*KEYS[1:], b"e"]


@pytest.mark.parametrize("dtype", ["boolean", "bool[pyarrow]"])
@pytest.mark.parametrize("kind", [pd.array, pd.Series])
def test_a_nullable_boolean_with_na_ended_in_a_type_error(letters, kind, dtype):
    report = erase(letters, predicate=lambda batch: kind(chosen(batch, True, pd.NA), dtype=dtype))
    assert (report.records, report.is_proof) == (1, True)
    assert keys_of(letters) == [*KEYS[1:], b"e"]


@pytest.mark.parametrize(
    "nothing",
    [
        lambda batch: pa.nulls(batch.num_rows),
        lambda batch: np.full(batch.num_rows, np.nan),
        lambda batch: pd.Series([pd.NA] * batch.num_rows),
        lambda batch: np.ma.masked_all(batch.num_rows, bool),
        lambda batch: np.zeros(batch.num_rows, bool),
    ],
)
def test_nulls_alone_mean_no(letters, nothing):
    report = erase(letters, predicate=nothing)
    assert (report.records, report.is_proof) == (0, True)
    assert keys_of(letters) == [*KEYS, b"e"]


@pytest.mark.parametrize("word", ["False", "yes", b"x", 1, 0, 1.0, np.int64(1), (), [True], object()])
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_text_or_a_number_was_taken_for_yes(letters, word, dry_run):
    for other in (word, True, None):
        report = erase(letters, predicate=lambda batch, no=other: filled(chosen(batch, word, no)), dry_run=dry_run)
        assert report.records == 0
        assert not report.is_proof
        assert "one truth value for each row" in report.places[0].error
    assert keys_of(letters) == [*KEYS, b"e"]


def filled(values: list[object]) -> np.ndarray:
    """An array of objects, whatever they are."""
    found = np.empty(len(values), object)
    found[:] = values
    return found


@pytest.mark.parametrize(
    "answer",
    [
        lambda batch: True,
        lambda batch: dict.fromkeys(range(batch.num_rows), True),
        lambda batch: {True},
        lambda batch: np.ones((batch.num_rows, 1), bool),
        lambda batch: np.ones(batch.num_rows),
        lambda batch: pd.DataFrame({"is_meant": [True] * batch.num_rows}),
        lambda batch: [True] * (batch.num_rows + 1),
        lambda batch: batch.column("key"),
    ],
)
def test_what_is_no_column_of_truth_values_is_refused(letters, answer):
    report = erase(letters, predicate=answer)
    assert "one truth value for each row" in report.places[0].error
    assert keys_of(letters) == [*KEYS, b"e"]
