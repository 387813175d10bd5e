"""What several tests of compaction begin with."""

from __future__ import annotations

import pytest

from tests.builders import LogBuilder


@pytest.fixture
def orders(tmp_path):
    """A sealed segment of fifty records with ten keys, and an active one."""
    builder = LogBuilder(tmp_path / "data").segment()
    for number in range(50):
        builder.record(b"k%d" % (number % 10), b"v%d" % number)
    return builder.segment().record(b"k0", b"last").write()
