"""Where a package does not show its C functions, Python callbacks stand in; the result is the same."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

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


def test_two_threads_that_began_at_once_met_half_a_module(tmp_path, monkeypatch):
    """`find_spec` ends in a ValueError while another thread is still importing an extension module."""
    package = tmp_path / "half_imported"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import sys, time, types\n"
        "sys.modules['half_imported._part'] = part = types.ModuleType('half_imported._part')\n"
        "time.sleep(0.5)\n"
        "del sys.modules['half_imported._part']\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(codec_module._find, "half_imported._part", "begin")
        while "half_imported._part" not in sys.modules:
            time.sleep(0.01)
        assert (codec_module._find("half_imported._part", "end"), first.result()) == (None, None)
