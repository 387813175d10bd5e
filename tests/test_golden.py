"""The golden files are those that the brokers wrote: no test, tool or checkout changed a byte."""

from __future__ import annotations

from tests.golden import manifest


def test_no_golden_file_differs_from_the_manifest():
    assert manifest.differences(manifest.recorded(), manifest.current()) == []


def test_differences_name_missing_new_and_changed_files():
    assert manifest.differences({"a": "1", "b": "2"}, {"b": "3", "c": "4"}) == ["missing: a", "new: c", "changed: b"]
