"""Pass 2 in one go against the general steps, which are tested against the slow round of tests/reference."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kseg.native import table as t
from tests.native.test_cleaning import clean_by_kernels, logs, settings
from tests.reference import batch as v2
from tests.reference import codecs
from tests.reference.compaction import is_aborted, latest_offsets
from tests.reference.record import decode_record, encode_record

COLUMNS = [column for column in range(t.COLUMNS) if column not in (t.CRC, t.MAGIC)]  # filled with the header


def is_usual(data: bytes, kept: set[int], end: int, said) -> bool:
    """The twin of what the kernel takes on."""
    batch = v2.read_batch(data)
    if batch.is_control or batch.attributes & (v2.HORIZON_BIT | v2.LAT_BIT) or is_aborted(batch, said.aborted):
        return False
    if not batch.records or batch.last_offset >= end:
        return False
    payload, position = codecs.decompress(batch.codec, data[t.HEADER_SIZE :]), 0
    for _ in range(batch.count):
        start = position
        record, position = decode_record(payload, start, batch.base_offset, batch.base_timestamp)
        if record.key is None or record.offset not in kept:
            continue
        plain = encode_record(record, batch.base_offset, batch.base_timestamp)
        if record.value is None or payload[start:position] != plain:
            return False
    return True


@given(st.data())
def test_sifting_leaves_what_the_general_steps_leave(data):
    batches, end = data.draw(logs())
    said = data.draw(settings(end))
    latest = latest_offsets([v2.read_batch(batch) for batch in batches], said.aborted)
    kept = set(latest.values())
    bits = np.zeros(data.draw(st.sampled_from([end + 8, end])) // 8, np.uint8)
    for offset in kept:
        if offset < 8 * len(bits):
            bits[offset // 8] |= 1 << offset % 8
    made, written, counts, _ = clean_by_kernels(batches, latest, said)
    found, rows, numbers, sifted = clean_by_kernels(batches, latest, said, bits)
    usual = [is_usual(batch, kept, 8 * len(bits), said) for batch in batches]
    assert sifted == [*usual, False].index(False)
    assert found == made
    assert rows[COLUMNS].tolist() == written[COLUMNS].tolist()
    assert numbers.tolist() == counts.tolist()
