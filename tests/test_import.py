"""Importing kseg is light, and the kernels' cache works wherever it is, or is not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.scale import JIT_DISABLED

LIGHT = """
import sys, kseg, json
heavy = [name for name in ("numba", "numpy", "pyarrow", "pyspark", "llvmlite") if name in sys.modules]
print(json.dumps([heavy, kseg.__version__, sorted(name for name in kseg.__all__ if not hasattr(kseg, name))]))
"""
CALLS = """
import json, resource, sys
if "frozen" in sys.argv:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # not one byte can be written to any file
import numpy as np
from kseg.native import crc32c
data = np.frombuffer(bytearray(b"123456789"), np.uint8)
values = [int(crc32c.crc32(data, 0, 9))]
if "more" in sys.argv:
    values.append(int(crc32c.crc32c(data, 0, 9)))
print(json.dumps([values, len(crc32c.crc32.stats.cache_hits)]))
"""
CRC32C, CRC32 = 0xE3069283, 0xCBF43926
needs_jit = pytest.mark.skipif(JIT_DISABLED, reason="nothing is compiled in this run")


def run(program, *words, **environment):
    env = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, env=env, check=True)
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_importing_kseg_loads_nothing_heavy_and_all_names_are_there():
    heavy, version, missing = run(LIGHT)
    assert heavy == []
    assert missing == []
    assert version


@needs_jit
def test_a_second_process_takes_kernels_from_the_cache_even_when_it_cannot_write(tmp_path):
    assert run(CALLS, KSEG_CACHE_DIR=str(tmp_path)) == [[CRC32], 0]
    assert run(CALLS, KSEG_CACHE_DIR=str(tmp_path)) == [[CRC32], 1]
    assert run(CALLS, "frozen", "more", KSEG_CACHE_DIR=str(tmp_path)) == [[CRC32, CRC32C], 1]


@pytest.fixture(scope="module")
def filled_cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    assert run(CALLS, KSEG_CACHE_DIR=str(folder)) == [[CRC32], 0]
    return folder


@needs_jit
def test_a_cache_folder_that_cannot_be_made_is_no_error(tmp_path):
    (tmp_path / "file").touch()
    assert run(CALLS, KSEG_CACHE_DIR=str(tmp_path / "file")) == [[CRC32], 0]


@needs_jit
@pytest.mark.parametrize("kind", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", ["empty", "cut", "zeros", "flipped"])
def test_a_cache_file_that_a_crash_has_torn_is_made_anew(kind, damage, filled_cache, tmp_path):
    shutil.copytree(filled_cache, tmp_path, dirs_exist_ok=True)
    for file in tmp_path.rglob(f"*.{kind}"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        torn = {"empty": b"", "cut": data[:100], "zeros": bytes(len(data)), "flipped": data}
        file.write_bytes(torn[damage])
    assert run(CALLS, KSEG_CACHE_DIR=str(tmp_path)) == [[CRC32], 0]
    assert run(CALLS, KSEG_CACHE_DIR=str(tmp_path)) == [[CRC32], 1]


@needs_jit
def test_without_a_home_folder_kernels_are_compiled_and_not_cached(monkeypatch):
    monkeypatch.delenv("KSEG_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    homeless = "import os, pathlib\n" + "def nowhere(): raise RuntimeError('no home')\n"
    homeless += "pathlib.Path.home = staticmethod(nowhere)\n"
    assert run(homeless + CALLS) == [[CRC32], 0]
    assert run(homeless + CALLS) == [[CRC32], 0]
