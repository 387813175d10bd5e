"""Every single bit of small logs, flipped: verify finds it, or docs/limits.md says why it cannot."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import kseg
from kseg.verification.kinds import Severity
from kseg.verification.partition import PartitionCheck
from kseg.verification.segment import verify_segment
from tests.builders import LogBuilder
from tests.scale import JIT_DISABLED, counts
from tests.verify.copies import batch_places, codes, flip, found, small_log

ALL_BITS = range(8)


def protected_bytes(size: int) -> list[int]:
    """Bytes of a magic 2 batch that are checked: length, magic, CRC and what is under the CRC."""
    return [*range(8, 12), *range(16, size)]


def flips(file: Path, choose) -> Iterator[tuple[int, int, int]]:
    for number, (position, size) in enumerate(batch_places(file)):
        for byte in choose(size):
            for bit in ALL_BITS:
                yield number, position + byte, bit


def test_the_log_is_sound_before(tmp_path):
    assert found(small_log(tmp_path), deep=True) == []
    assert found(tmp_path, deep=True) == []


@pytest.mark.parametrize("segment", [0, 1, 2])
def test_flips_of_length_magic_crc_and_checked_bytes_are_damage(tmp_path, segment):
    """Every single one, by what is found in the segment itself."""
    check = PartitionCheck(kseg.open_log(small_log(tmp_path)), deep=False, was_closed=False)
    task = check.tasks[segment]
    file = sorted((tmp_path / "small-0").glob("*.log"))[segment]
    every = list(flips(file, protected_bytes))
    for _, byte, bit in random.Random(segment).sample(every, counts(500)) if JIT_DISABLED else every:
        flip(file, byte, bit)
        findings = verify_segment(task).findings
        assert any(finding.severity is Severity.DAMAGE for finding in findings), f"byte {byte}, bit {bit}"
        flip(file, byte, bit)
    for _, byte, bit in random.Random(segment).sample(every, counts(50)):
        flip(file, byte, bit)
        assert codes(tmp_path), f"byte {byte}, bit {bit}"
        flip(file, byte, bit)


def test_flips_in_logs_of_real_brokers_are_damage(golden, tmp_path):
    """The same for batches of every codec and producer, some of each segment."""
    chance = random.Random(5)
    sources = sorted((golden / "before").glob("*-[0-9]*"))
    for source in sources[::8] if JIT_DISABLED else sources:
        path = shutil.copytree(source, tmp_path / source.name)
        for task in PartitionCheck(kseg.open_log(path), deep=False, was_closed=False).tasks:
            file = path / f"{task.base_offset:020d}.log"
            places = batch_places(file)
            for position, size in chance.choices(places, k=counts(4)) if places else ():
                byte, bit = position + chance.choice(protected_bytes(size)), chance.randrange(8)
                flip(file, byte, bit)
                assert Severity.DAMAGE in {one.severity for one in verify_segment(task).findings}, (file, byte, bit)
                flip(file, byte, bit)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_flips_of_legacy_messages_are_damage(tmp_path, magic, codec):
    path = LogBuilder(tmp_path).legacy(1, magic=magic, codec=codec).legacy(1, magic=magic, codec=codec).write()
    file = next(path.glob("*.log"))
    every = list(flips(file, lambda size: range(8, size)))
    for _, byte, bit in random.Random(magic).sample(every, min(len(every), counts(250))):
        flip(file, byte, bit)
        assert codes(path), f"byte {byte}, bit {bit}"
        flip(file, byte, bit)


def test_flips_of_a_torn_tail_are_found_too(tmp_path):
    """A crash left half a batch: what lies before it is looked at all the same."""
    path = small_log(tmp_path)
    file = sorted(path.glob("*.log"))[-1]
    with file.open("ab") as opened:
        opened.write(file.read_bytes()[:50])
    assert codes(path) == set()
    assert codes(path, None) == {"KS104"}
    (tmp_path / ".kafka_cleanshutdown").touch()
    assert codes(path) == {"KS103"}, "a broker would keep it, and append behind it"
    (tmp_path / ".kafka_cleanshutdown").unlink()
    position, size = batch_places(file)[-2]
    flip(file, position + size - 1, 3)
    assert codes(path) == {"KS102"}


@pytest.mark.parametrize("segment", [0, 1, 2])
def test_flips_of_base_offset_and_leader_epoch_contradict_something(tmp_path, segment):
    path = small_log(tmp_path)
    file = sorted(path.glob("*.log"))[segment]
    for number, byte, bit in flips(file, lambda size: [*range(8), *range(12, 16)]):
        flip(file, byte, bit)
        assert found(path), f"batch {number}, byte {byte}, bit {bit}"
        flip(file, byte, bit)


def test_what_a_bare_log_cannot_tell(tmp_path):
    """Without side files only neighbours can contradict: docs/limits.md lists what remains."""
    small_log(tmp_path / "whole")
    path = tmp_path / "bare" / "small-0"
    path.mkdir(parents=True)
    for file in (tmp_path / "whole" / "small-0").glob("*.log"):
        shutil.copy(file, path)
    places = [(file, at) for file in sorted(path.glob("*.log")) for at, _ in batch_places(file)]
    epochs = [_number(file, at + 12, 4) for file, at in places]
    sound = found(path)
    for number, (file, at) in enumerate(places):
        for byte, bit in itertools.product((*range(8), *range(12, 16)), ALL_BITS):
            offset = _number(file, at, 8)
            flip(file, at + byte, bit)
            is_last = number == len(places) - 1
            if byte < 8:
                unseen = is_last and offset < _number(file, at, 8) < 2**31
            else:
                low, high = max([-1, *epochs[:number][-1:]]), min([2**31, *epochs[number + 1 :][:1]])
                unseen = low <= _number(file, at + 12, 4) <= high
            assert (found(path) == sound) == unseen, f"batch {number}, byte {byte}, bit {bit}"
            flip(file, at + byte, bit)


def test_what_holes_hide_of_a_base_offset(tmp_path):
    """In a compacted log a batch may move as far as its neighbours let it, where no side file names its offsets."""
    builder = LogBuilder(tmp_path)
    for base, firsts in ((0, (0, 10, 40)), (200, (200, 210, 300))):
        builder.segment(base)
        for first in firsts:
            builder.skip(first - builder.next_offset).batch(3, leader_epoch=0)
    path = builder.write()
    places = [(file, at) for file in sorted(path.glob("*.log")) for at, _ in batch_places(file)]
    ranges = [(_number(file, at, 8), _number(file, at, 8) + 2, int(file.name[:20])) for file, at in places]
    sound = found(path)
    hidden = 0
    for number, (file, at) in list(enumerate(places))[:: 3 if JIT_DISABLED else 1]:
        low = max([ranges[number][2], *(last + 1 for _, last, _ in ranges[:number][-1:])])
        high = min([2**31, *(first for first, _, _ in ranges[number + 1 :][:1])])
        for byte, bit in itertools.product(range(8), ALL_BITS):
            flip(file, at + byte, bit)
            first = _number(file, at, 8)
            unseen = low <= first and first + 2 < high
            assert (found(path) == sound) == unseen, f"batch {number}, byte {byte}, bit {bit}: {first}"
            hidden += unseen
            flip(file, at + byte, bit)
    assert hidden


def _number(file: Path, start: int, size: int) -> int:
    return int.from_bytes(file.read_bytes()[start : start + size], "big", signed=True)
