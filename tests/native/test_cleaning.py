"""Fates of batches, records that stay, and what is written of them, against the slow round of tests/reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kseg.format.codec import PackFunctions
from kseg.native import cleaning, compress, encode, sifting
from kseg.native import table as t
from kseg.native.records import TOTALS
from kseg.types import Codec
from tests.native.harness import Decoder
from tests.reference import batch as v2
from tests.reference import legacy
from tests.reference.compaction import Producer, Settings, Transaction, clean, latest_of, latest_offsets
from tests.reference.record import Record
from tests.reference.varint import encode_varint, encode_varlong

START = 1_700_000_000_000
NOW = START + 500
HORIZONS = st.sampled_from([NOW + 1000, NOW + 1000, -2, -(2**63) + START])  # of a long retention: too late for 64 bits
KEYS = st.sampled_from([None, b"", b"a", b"b", b"c", b"a longer key"])
VALUES = st.sampled_from([None, b"", b"x", b"value" * 20])
HEADERS = st.sampled_from([(), ((b"h", b"1"), (b"", None))])
DATA, MARKER, EMPTY = "data", "marker", "empty"


def odd_batch(records, fields):
    """The same batch in bytes that Kafka reads, but would not write: numbers too long, nulls, attributes."""
    header = v2.read_header(v2.encode_batch(records, fields))
    payload = b""
    for number, record in enumerate(records):
        plain = number % 3 == 1  # some as Kafka writes them, between the others
        body = bytes([0 if plain else number % 2])
        body += encode_varlong(record.timestamp - header.base_timestamp)
        body += (encode_varint if plain else padded)(record.offset - header.base_offset)
        for part in (record.key, record.value):
            body += encode_varint(-1 - number) if part is None else encode_varint(len(part)) + part
        body += encode_varint(len(record.headers))
        for name, part in record.headers:
            body += encode_varint(len(name)) + name
            body += encode_varint(-1) if part is None else encode_varint(len(part)) + part
        payload += (padded if number % 4 == 3 else encode_varint)(len(body)) + body
    closed = {"base_timestamp": header.base_timestamp, "max_timestamp": header.max_timestamp}
    return v2.encode_payload(payload, len(records), replace(fields, **closed))


def padded(number):
    shortest = encode_varint(number)
    return shortest[:-1] + bytes([shortest[-1] | 0x80, 0])


@st.composite
def logs(draw):
    """Batches one behind the other, with holes; a batch may have been cleaned before."""
    offset, made = draw(st.integers(0, 3)), []
    for _ in range(draw(st.integers(0, 8))):
        producer = draw(st.integers(-1, 2))
        kind = draw(st.sampled_from([DATA, DATA, DATA, MARKER, EMPTY]))
        flags = draw(st.sampled_from([0, v2.LAT_BIT])) if kind == DATA else 0
        if producer >= 0 and (kind == MARKER or draw(st.booleans())):
            flags |= v2.TXN_BIT
        if kind == MARKER:
            flags |= v2.TXN_BIT | v2.CONTROL_BIT
        records = []
        for delta in sorted(draw(st.sets(st.integers(0, 6), min_size=1, max_size=5))):
            stamp = START + draw(st.integers(-5, 5))
            records.append(Record(offset + delta, stamp, draw(KEYS), draw(VALUES), draw(HEADERS)))
        if kind == MARKER:
            records = [Record(offset, START, bytes(2) + draw(st.integers(0, 1)).to_bytes(2, "big"), bytes(6))]
        if kind == EMPTY:
            records = []
        horizon = draw(st.sampled_from([None, None, NOW - 1, NOW, NOW + 1])) if records else None
        span = (records[-1].offset - offset if records else 0) + draw(st.integers(0, 2))
        fields = v2.Fields(
            base_offset=offset,
            last_offset_delta=span,
            codec=draw(st.sampled_from([0, 0, 3, 4])) if kind == DATA else 0,
            flags=flags | (0 if horizon is None else v2.HORIZON_BIT),
            base_timestamp=horizon,
            max_timestamp=START + 9 if flags & v2.LAT_BIT else None,
            producer_id=producer,
            producer_epoch=draw(st.integers(0, 1)) if producer >= 0 else -1,
            base_sequence=draw(st.integers(0, 9)) if producer >= 0 and kind == DATA else -1,
        )
        is_odd = kind == DATA and draw(st.sampled_from([False, False, True]))
        made.append((odd_batch if is_odd else v2.encode_batch)(records, fields))
        offset += span + 1 + draw(st.integers(0, 2))
    return made, offset


@st.composite
def settings(draw, end):
    """Aborted transactions, markers without data, producers: anything may be said of a log."""
    aborted, behind = [], {}
    for _ in range(draw(st.integers(0, 2))):
        producer, first = draw(st.integers(0, 2)), draw(st.integers(0, max(end, 1)))
        if first > behind.get(producer, -1):
            aborted.append(Transaction(producer, first, first + draw(st.integers(0, 20))))
            behind[producer] = aborted[-1].last_offset
    producers = {
        number: Producer(draw(st.integers(0, 1)), draw(st.integers(-1, max(end, 1))))
        for number in draw(st.sets(st.integers(0, 2)))
    }
    return Settings(
        now_ms=NOW,
        upper_bound=draw(st.sampled_from([end, -1, end // 2])),
        new_horizon_ms=draw(HORIZONS),
        aborted=tuple(aborted),
        empty_markers=frozenset(draw(st.sets(st.integers(0, max(end, 1)), max_size=4))),
        producers=producers,
    )


def clean_by_kernels(batches, latest, said, kept=None):
    """Run the kernels over all batches at once; gives the bytes, the table of what was written, counts, and a row.

    With the offsets that are kept, given as bits, usual batches are sifted first; the row is where that ended.
    """
    data = b"".join(batches)
    decoder = Decoder(data)
    table, rows = decoder.walk.table, decoder.walk.rows
    rules = np.zeros(cleaning.RULES, np.int64)
    rules[cleaning.NOW], rules[cleaning.UPPER_BOUND] = said.now_ms, said.upper_bound
    rules[cleaning.NEW_HORIZON], rules[cleaning.CONVERT] = said.new_horizon_ms, True
    rules[cleaning.LEGACY_DELETES_EXPIRED] = said.legacy_deletes_expired
    ordered = sorted(said.aborted, key=lambda txn: (txn.producer_id, txn.first_offset))
    names = ("producer_id", "first_offset", "last_offset")
    aborted = [np.array([getattr(txn, name) for txn in ordered], np.int64) for name in names]
    known = sorted(said.producers.items())
    producers = np.array([(number, one.epoch, one.last_offset) for number, one in known], np.int64).reshape(-1, 3).T
    producers = np.ascontiguousarray(producers)
    fates = np.zeros(rows, np.int64)
    empty = np.array(sorted(said.empty_markers), np.int64)
    ids = producers[cleaning.LAST_ID]
    cleaning.fill_fates(table, 0, rows, *aborted, empty, producers, ids, rules, fates, decoder.skip)
    assert decoder.skip[:rows].tolist() == [fate & cleaning.DISCARD != 0 for fate in fates.tolist()]
    counts = np.zeros(cleaning.COUNTS, np.int64)
    functions = np.zeros((5, compress.PACK_FIELDS), np.int64)
    held = [PackFunctions(Codec(number), addresses=functions[number]) for number in (1, 2, 3, 4)]
    out, scratch = np.zeros(1 << 16, np.uint8), np.zeros(1 << 16, np.uint8)
    packing = np.zeros(compress.SCRATCH_BYTES, np.uint8)
    written, rebuilt = t.new_table(rows), t.new_table(rows)
    sifted = made = size = 0
    if kept is not None:
        decoder.payloads()
        sifted, made, size = sifting.sift_batches(
            decoder.array, decoder.arena, 0, table, 0, rows, decoder.starts, decoder.ends, fates, kept, 0, functions,
            packing, scratch, out, 0, written, 0, counts, np.zeros(TOTALS, np.int64),
        )  # fmt: skip
        decoder.skip[:sifted] = True
    decoded = decoder.decode()
    columns, count = decoder.columns, len(decoded.records)
    known_latest = np.array([latest.get(record.key, -1) for record in decoded.records], np.int64)
    keeps = np.zeros(count, np.bool_)
    cleaning.fill_keeps(table, fates, columns, count, known_latest, keeps, counts)
    row, made, again, size = cleaning.rewrite_batches(
        decoder.array, decoder.arena, 0, table, sifted, rows, decoder.starts, decoder.ends, columns, 0, count, fates,
        keeps, rules, functions, packing, scratch, out, size, written, made, rebuilt, counts,
    )  # fmt: skip
    assert row == rows
    encode.write_headers(out, rebuilt, again)
    del held
    return out[:size].tobytes(), written[:, :made], counts, sifted


@given(st.data())
def test_a_round_leaves_what_the_twin_leaves(data):
    batches, end = data.draw(logs())
    said = data.draw(settings(end))
    read = [v2.read_batch(batch) for batch in batches]
    first = data.draw(st.sampled_from([0, end // 2]))
    latest = latest_offsets(read, said.aborted, first)
    expected = [v2.read_batch(batch) for batch in clean(batches, latest, said)]
    made, written, counts, _ = clean_by_kernels(batches, latest, said)
    entries, stopped = v2.walk(made)
    assert stopped == len(made)
    found = [v2.read_batch(made, position) for position, _ in entries]
    assert [fields_of(batch) for batch in found] == [fields_of(batch) for batch in expected]
    for name, value in (("POSITION", 0), ("SIZE", 1)):
        assert written[getattr(t, name)].tolist() == [entry[value] for entry in entries]
    assert written[t.LAST_OFFSET].tolist() == [batch.last_offset for batch in found]
    assert written[t.MAX_TIMESTAMP].tolist() == [batch.max_timestamp for batch in found]
    copied = [made[position : position + size] for position, size in entries]
    unchanged = sum(batch in batches for batch in copied if v2.read_header(batch).count)
    if said.new_horizon_ms >= 0:
        assert counts[cleaning.COPIED_BATCHES] == unchanged
    else:  # what is written anew for a horizon that it does not get may be as it was
        assert counts[cleaning.COPIED_BATCHES] <= unchanged
    assert counts[cleaning.KEPT] == sum(batch.count for batch in found if not batch.is_control)
    assert counts[cleaning.COPIED_BATCHES : cleaning.DROPPED_BATCHES + 1].sum() == len(batches)


@st.composite
def legacy_logs(draw):
    """Messages and wrappers of magic 0 and 1, one behind the other, with holes."""
    offset, made = draw(st.integers(0, 3)), []
    for _ in range(draw(st.integers(0, 6))):
        magic, codec = draw(st.integers(0, 1)), draw(st.sampled_from([0, 0, 1, 2, 3]))
        deltas = sorted(draw(st.sets(st.integers(0, 6), min_size=1, max_size=5)))[: 5 if codec else 1]
        stamps = st.integers(-5, 5) if magic else st.just(-1 - START)
        records = [Record(offset + delta, START + draw(stamps), draw(KEYS), draw(VALUES)) for delta in deltas]
        append_time = draw(st.sampled_from([None, START + 9])) if magic else None
        made.append(legacy.encode_set(records, magic, codec, append_time=append_time))
        offset += deltas[-1] + 1 + draw(st.integers(0, 2))
    return made, offset


@given(st.data())
def test_a_round_over_legacy_messages_leaves_what_the_twin_leaves(data):
    entries, end = data.draw(legacy_logs())
    said = Settings(
        now_ms=NOW,
        upper_bound=data.draw(st.sampled_from([end, -1, end // 2])),
        new_horizon_ms=data.draw(HORIZONS),
        legacy_deletes_expired=data.draw(st.booleans()),
    )
    first = data.draw(st.sampled_from([0, end // 2]))
    records = [record for entry in entries for record in legacy.read_entry(entry)]
    latest = latest_of(record for record in records if record.offset >= first)
    expected = [v2.read_batch(batch) for batch in clean(entries, latest, said)]
    made, written, counts, _ = clean_by_kernels(entries, latest, said)
    places, stopped = v2.walk(made)
    assert stopped == len(made)
    found = [v2.read_batch(made, position) for position, _ in places]
    assert [fields_of(batch) for batch in found] == [fields_of(batch) for batch in expected]
    assert written[t.LAST_OFFSET].tolist() == [batch.last_offset for batch in found]
    assert written[t.MAX_TIMESTAMP].tolist() == [batch.max_timestamp for batch in found]
    assert counts[cleaning.COPIED_BATCHES] == 0
    assert counts[cleaning.KEPT] == sum(batch.count for batch in found)
    assert counts[cleaning.COPIED_BATCHES : cleaning.DROPPED_BATCHES + 1].sum() == len(entries)


def fields_of(batch):
    """All but what compression decides: libraries may pack the same records into other bytes."""
    return {**vars(batch), "crc": None, "size": None} if batch.codec else vars(batch)
