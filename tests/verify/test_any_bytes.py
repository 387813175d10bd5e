"""Whatever bytes the files hold, verify ends with a report."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import kseg
from tests.scale import counts
from tests.verify.copies import small_log


def mutate(random_: random.Random, file: Path) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(random_.choice([1, 1, 3, 20])):
        kind = random_.randrange(7)
        at = random_.randrange(len(data) + 1)
        if kind == 0:
            del data[at : at + random_.randrange(1, 40)]
        elif kind == 1:
            data[at:at] = random_.randbytes(random_.randrange(1, 40))
        elif kind == 2:
            data[at : at + 8] = random_.choice([b"\xff" * 8, bytes(8), b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7)])
        elif kind == 3 and data:
            data[at % len(data)] ^= 1 << random_.randrange(8)
        elif kind == 4:
            start = random_.randrange(len(data) + 1)
            data[at:at] = data[start : start + 100]
        elif kind == 5:
            data[at : at + 4] = random_.randbytes(4)
        else:
            data += bytes(random_.randrange(100))
    file.write_bytes(data)


@pytest.mark.parametrize("seed", range(counts(15)))
def test_verify_ends_with_a_report(tmp_path, golden, seed):
    random_ = random.Random(seed)
    small_log(tmp_path, random_.choice(["none", "gzip", "snappy", "lz4", "zstd"]))
    shutil.copytree(golden / "before" / "tx-0", tmp_path / "tx-0")
    shutil.copytree(golden / "legacy" / "legacy-v1-lz4-0", tmp_path / "legacy-v1-lz4-0")
    shutil.copytree(tmp_path, tmp_path.with_name("copy"))
    files = [file for file in sorted(tmp_path.rglob("*")) if file.is_file()]
    try:
        for _ in range(10):
            mutate(random_, random_.choice(files))
            deep = kseg.verify(tmp_path, deep=True, against=tmp_path.with_name("copy"), workers=1)
            kseg.verify(tmp_path.with_name("copy"), against=tmp_path, workers=1)
            str(deep)
            deep.to_dict()
    finally:
        shutil.rmtree(tmp_path.with_name("copy"))
