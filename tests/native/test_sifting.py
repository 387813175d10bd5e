"""Pass 2 in one go against the general steps, which are tested against the slow round of tests/reference."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kseg.native import table as t
from tests.native.test_cleaning import HEADERS, KEYS, START, clean_by_kernels, logs, odd_batch
from tests.native.test_cleaning import settings as round_settings
from tests.reference import batch as v2
from tests.reference import codecs
from tests.reference.compaction import is_aborted, latest_offsets
from tests.reference.record import Record, decode_record, encode_record
from tests.scale import counts

COLUMNS = [column for column in range(t.COLUMNS) if column not in (t.CRC, t.MAGIC)]  # filled with the header


def is_usual(data: bytes, kept: set[int], end: int, said) -> bool:
    """The twin of what the kernel takes on."""
    batch = v2.read_batch(data)
    if batch.is_control or batch.attributes & (v2.HORIZON_BIT | v2.LAT_BIT) or is_aborted(batch, said.aborted):
        return False
    if not batch.records or batch.records[-1].offset >= end:
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


@st.composite
def usual_logs(draw):
    """Batches of which most are usual, and an offset behind them."""
    offset, made = draw(st.integers(0, 3)), []
    for _ in range(draw(st.integers(1, 6))):
        usual, records = draw(st.sampled_from([True, True, True, True, False])), []
        for delta in sorted(draw(st.sets(st.integers(0, 9), min_size=1, max_size=7))):
            stamp = START + draw(st.sampled_from([0, 0, 1, 70, -70, 10**7]))
            value = draw(st.sampled_from([b"", b"x", b"value" * 20] if usual else [None, b"x"]))
            key = draw(st.one_of(KEYS, st.just(b"%d" % (offset + delta))))
            records.append(Record(offset + delta, stamp, key, value, draw(HEADERS)))
        span = records[-1].offset - offset + draw(st.integers(0, 2))
        producer = draw(st.integers(-1, 1))
        fields = v2.Fields(
            base_offset=offset,
            last_offset_delta=span,
            codec=draw(st.sampled_from([0, 0, 3, 4])),
            flags=draw(st.sampled_from([0, v2.TXN_BIT])) if producer >= 0 else 0,
            base_timestamp=draw(st.sampled_from([None, START])),
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=offset if producer >= 0 else -1,
        )
        made.append((v2.encode_batch if usual or draw(st.booleans()) else odd_batch)(records, fields))
        offset += span + 1 + draw(st.integers(0, 2))
    return made, offset


@settings(max_examples=counts(300))
@given(st.data())
def test_sifting_leaves_what_the_general_steps_leave(data):
    batches, end = data.draw(st.one_of(usual_logs(), logs()))
    said = data.draw(round_settings(end))
    latest = latest_offsets([v2.read_batch(batch) for batch in batches], said.aborted)
    kept = set(latest.values())
    bits = np.zeros(data.draw(st.sampled_from([end + 8, end])) // 8, np.uint8)
    for offset in kept:
        if offset < 8 * len(bits):
            bits[offset // 8] |= 1 << offset % 8
    made, written, totals, _ = clean_by_kernels(batches, latest, said)
    found, rows, numbers, sifted = clean_by_kernels(batches, latest, said, bits)
    taken = [is_usual(batch, kept, 8 * len(bits), said) for batch in batches]
    assert sifted == [*taken, False].index(False)
    assert found == made
    assert rows[COLUMNS].tolist() == written[COLUMNS].tolist()
    assert numbers.tolist() == totals.tolist()
