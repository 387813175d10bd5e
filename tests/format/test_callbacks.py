"""Where a package does not show its C functions, Python callbacks stand in; the result is the same."""

from __future__ import annotations

import pytest

import kseg
from kseg.format import codec as codec_module
from kseg.format.codec import compress
from kseg.types import Codec
from tests.log.rows import plain_rows
from tests.reference import codecs as twin

TEXT = b"a sentence that repeats, " * 4000 + bytes(range(256)) * 30
PACKED = [codec for codec in Codec if codec is not Codec.NONE]


@pytest.fixture
def without_c_functions(monkeypatch):
    monkeypatch.setattr(codec_module, "_find", lambda module, symbol: None)
    monkeypatch.setattr(codec_module, "_kept", codec_module._Kept())


@pytest.mark.parametrize("name", ["java-lz4-0", "java-zstd-0", "java-gzip-0", "rd-snappy-0", "mixed-codecs-0"])
def test_logs_read_the_same_through_callbacks(golden, name, monkeypatch):
    log = kseg.open_log(golden / "before" / name)
    expected = plain_rows(log.read())
    monkeypatch.setattr(codec_module, "_find", lambda module, symbol: None)
    assert plain_rows(log.read()) == expected


@pytest.mark.parametrize("codec", PACKED, ids=lambda codec: codec.label)
@pytest.mark.parametrize("data", [b"", b"x", TEXT], ids=["empty", "one", "text"])
def test_what_callbacks_compress_the_twin_reads(codec, data, without_c_functions):
    assert twin.decompress(int(codec), compress(codec, data)) == data


@pytest.mark.parametrize(
    ("codec", "level"), [(Codec.LZ4, 1), (Codec.LZ4, 17), (Codec.ZSTD, -5), (Codec.ZSTD, 19), (Codec.GZIP, 1)]
)
def test_levels_through_callbacks(codec, level, without_c_functions):
    assert twin.decompress(int(codec), compress(codec, TEXT, level)) == TEXT
