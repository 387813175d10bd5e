"""The transaction index."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import IndexFileError
from kseg.index.txn import ENTRY_SIZE, AbortedTxn, TxnIndex

TXNS = st.lists(st.builds(AbortedTxn, *[st.integers(0, 60)] * 4), max_size=12)


@given(TXNS, st.integers(0, 60), st.integers(0, 60), st.integers(0, 33))
def test_collect_is_kafkas_loop(txns, fetch, upper, cut):
    data = b"".join(struct.pack(">hqqqq", 0, *vars_of(txn)) for txn in txns)
    index = TxnIndex.parse(data + b"\x07" * cut, "x.txnindex")
    expected, complete = [], False
    for txn in txns:
        if txn.last_offset >= fetch and txn.first_offset < upper:
            expected.append(txn)
        if txn.last_stable_offset >= upper:
            complete = True
            break
    assert index.collect(fetch, upper) == (expected, complete)
    assert list(index) == txns
    assert index.to_bytes() == data
    assert TxnIndex.of(txns).to_bytes() == data
    assert list(index.truncated(fetch)) == [txn for txn in txns if txn.last_offset < fetch]


def vars_of(txn):
    return txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset


def test_an_unknown_version_cannot_be_read():
    data = struct.pack(">hqqqq", 0, 1, 2, 3, 4) + struct.pack(">hqqqq", 256, 1, 2, 4, 5)
    with pytest.raises(IndexFileError, match=r"x\.txnindex, byte 34: version 256 of entry 1"):
        TxnIndex.parse(data, "x.txnindex")


@pytest.mark.parametrize("version", [1, 255, -1, -32768])
def test_a_version_whose_first_byte_is_not_positive_is_read_as_brokers_do_and_is_a_problem(version):
    data = struct.pack(">hqqqq", 0, 1, 2, 3, 4) + 2 * struct.pack(">hqqqq", version, 1, 2, 4, 5)
    index = TxnIndex.parse(data, "x.txnindex")
    assert list(index)[1] == AbortedTxn(1, 2, 4, 5)
    assert f"x.txnindex, byte 34: version {version} of entry 1" in str(index.check(0)[0])


def test_check_tells_what_is_wrong():
    assert TxnIndex.of([AbortedTxn(1, 2, 3, 4), AbortedTxn(2, 2, 5, 6)]).check(3) == []
    problems = TxnIndex.of([AbortedTxn(1, 2, 3, 4), AbortedTxn(2, 9, 3, 6)], "t").check(4)
    assert [p.message.split(" ")[0:2] for p in problems] == [
        ["the", "marker's"],
        ["the", "transaction"],
        ["the", "marker's"],
    ]
    assert "cut off after 2 of 34" in str(TxnIndex.parse(b"\0\0").check(0)[0])


@given(st.binary(max_size=200), st.integers(0, 2**63 - 1))
def test_any_bytes_give_an_index_or_an_error(data, base):
    try:
        index = TxnIndex.parse(data)
    except IndexFileError:
        return
    index.check(base)
    index.collect(base, base + 5)
    whole = bytearray(data[: len(data) - len(data) % ENTRY_SIZE])
    for at in range(0, len(whole), ENTRY_SIZE):
        whole[at : at + 2] = b"\0\0"  # odd versions that a broker reads are not kept
    assert index.to_bytes() == whole
