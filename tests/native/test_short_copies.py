"""Copies of fields: all of their bytes, none before them, and nothing behind the arrays."""

from __future__ import annotations

import random

import numba
import pytest

from kseg.native._jit import JIT_ENABLED
from kseg.native.short_copies import BEYOND, copy_beyond, copy_field
from tests.native.guarded import PAGE, Guarded

LENGTHS = [1, 2, 31, 32, 33, 63, 64, 65, 95, 96, 97, 127, 128, 129, 160, 191, 192, 193, 511, 512, 513, 600]
SLACKS = [0, 1, BEYOND - 1, BEYOND, BEYOND + 1]
BEFORE = 5


def compiled(function):
    def run(target, at, source, start, length):
        function(target, at, source, start, length)

    return numba.njit(run) if JIT_ENABLED else run


COPY_BEYOND, COPY_FIELD = compiled(copy_beyond), compiled(copy_field)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_field_is_copied_whatever_lies_behind_it(length):
    origin, goal = Guarded(PAGE), Guarded(PAGE)
    content = random.Random(length).randbytes(BEFORE + length)
    for behind_source in SLACKS:
        for behind_target in SLACKS:
            source = origin.holding(content + bytes(behind_source))
            target = goal.holding(b"\xee" * (BEFORE + length + behind_target))
            COPY_FIELD(target, BEFORE, source, BEFORE, length)
            assert bytes(target[: BEFORE + length]) == b"\xee" * BEFORE + content[BEFORE:]


@pytest.mark.parametrize("length", LENGTHS)
def test_no_more_than_the_slack_is_touched_behind_a_field(length):
    content = random.Random(length).randbytes(length)
    source = Guarded(PAGE).holding(content + b"\x11" * BEYOND)
    target = Guarded(PAGE).holding(b"\xee" * (length + BEYOND))
    COPY_BEYOND(target, 0, source, 0, length)
    assert bytes(target[:length]) == content
