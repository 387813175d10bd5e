"""Compile every kernel, or load it from the cache, before the first record comes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kseg.native import (
    building,
    cleaning,
    codecs,
    compress,
    crc32c,
    encode,
    gather,
    hash,
    header_reads,
    headers,
    indexing,
    keymap,
    keys,
    markers,
    producers,
    records,
    row_block,
    rows,
    sifting,
    straight,
    visibility,
)
from kseg.native import table as t

Flags = NDArray[np.bool_]


def warm_up() -> None:
    """Call each kernel of the read and write path once, on next to no data."""
    data = np.zeros(64, np.uint8)
    table = t.new_table(1)
    numbers = np.zeros(5, np.int64)
    flags = np.zeros(1, np.bool_)
    columns = np.zeros((records.RECORD_COLUMNS, 1), np.int64)
    offsets = np.zeros(2, np.int32)
    crc32c.crc32c(data, 0, 0)
    crc32c.crc32(data, 0, 0)
    headers.fill_headers(data, 0, 0, 0, table, 0)
    headers.fill_checked(data, 0, 0, 0, table, 0)
    headers.scan_candidate(data, 0, 0, 0, 0, 0)
    header_reads.read_headers(0, 0, 0, 0, data, table)
    header_reads.read_checked(0, 0, 0, 0, data, table, 0)
    headers.scan_checksums(data, 0, table, 0, 0)
    headers.find_disorder(table, 0, 0, 0)
    visibility.fill_hidden(table, 0, 0, numbers, numbers, numbers, flags)
    codecs.fill_payloads(data, 0, table, 0, 0, flags, data, 0, numbers, numbers, numbers)
    totals = np.zeros(records.TOTALS, np.int64)
    cursor = np.zeros(records.CURSOR, np.int64)
    records.fill_records(data, data, table, 0, 0, flags, numbers, numbers, 0, 0, columns, totals, cursor)
    state = np.zeros(rows.STATE, np.int64)
    rows.measure_rows(table, 0, 0, flags, numbers, numbers)
    rows.fill_rows(
        data, data, table, 0, 0, flags, numbers, numbers, 0, 0, 0, numbers, numbers, 1, 1,
        offsets, data, data, offsets, data, data, columns[:2], numbers, state,
    )  # fmt: skip
    straight.read_rows(
        0, 0, 0, 0, data, table, flags, numbers, numbers, numbers, 0, data, 0, numbers, numbers, numbers, 0, 0, data,
        np.zeros(row_block.LAYOUT, np.int64), columns[:2], numbers, np.zeros(straight.CURSOR, np.int64), state,
    )  # fmt: skip
    gather.gather_headers(data, data, columns[:2], 0, offsets, data, offsets, data, offsets, data, data)
    gather.fill_offsets(numbers[:0], numbers[:0], flags[:0], 0, 0, numbers)
    limits = np.zeros(encode.LIMITS, np.int64)
    header_columns = np.zeros((encode.HEADER_COLUMNS, 0), np.int64)
    encode.fill_batches(columns, 0, data, data, header_columns, data, data, limits, data, 0, table, 0, 0)
    encode.write_headers(data, table, 0)
    packing = np.zeros(compress.PACK_FIELDS, np.int64)
    compress.pack_payload(codecs.LZ4, data, 0, 0, data, 0, packing, data)
    compress.pack_batches(codecs.LZ4, data, table, 0, 0, data, 0, packing, data)
    shared = np.zeros((t.COLUMNS, 1), np.int64)
    building.build_batches(
        columns, 0, data, data, header_columns, data, data, limits, shared, data, packing, data, data, table
    )
    state, roll_limits = np.zeros(indexing.STATE_FIELDS, np.int64), np.zeros(indexing.LIMIT_FIELDS, np.int64)
    entries = np.zeros((2, 1), np.int64)
    indexing.fill_index_entries(table, 0, 0, state, roll_limits, entries, entries)
    known, completed = np.zeros((8, 1), np.int64), np.zeros((producers.DONE_FIELDS, 1), np.int64)
    producers.fill_producers(table, 0, 0, numbers, known, numbers, numbers, np.zeros(2, np.int64), completed)
    hash.fill_murmur2(data, numbers, numbers, 0, numbers)
    hash.fill_hash128(data, numbers, numbers, 0, np.zeros(2, np.uint64), np.zeros((1, 2), np.uint64))
    _warm_up_compaction(data, table, numbers, flags, columns)


def _warm_up_compaction(data: t.Bytes, table: t.Table, numbers: t.Table, flags: Flags, columns: t.Table) -> None:
    key, hashes, entries = np.zeros(2, np.uint64), np.zeros((1, 2), np.int64), np.zeros((1, 3), np.int64)
    slots, ends = np.zeros((keymap.REGIONS, 3), np.int64), np.zeros(keymap.REGIONS, np.int64)
    keys.fill_key_hashes(data, data, columns, 0, key, hashes)
    keys.fill_entries(data, data, table, range(0), flags, numbers, numbers, 0, key, entries, 0)
    keys.scan_entries(
        (0, 0, 0), data, table, flags, (numbers, numbers, numbers), 0, data, 0, numbers, numbers, numbers, (0, 0), 0,
        key, entries, np.zeros(keys.CURSOR, np.int64),
    )  # fmt: skip
    keymap.sort_by_region(entries, 0, ends, entries)
    keymap.put_keys(slots, 0, 0, entries, ends, ends, 0, 0, data)
    keymap.move_keys(slots, slots, numbers)
    keymap.fill_latest(slots, hashes, flags, 0, numbers)
    keymap.mark_latest(slots, 0, data)
    keymap.fill_latest_marked(data, 0, columns, 0, numbers)
    keymap.fill_latest_dropped(numbers, columns, 0, numbers)
    lasts, rules, counts = (
        np.zeros((3, 1), np.int64),
        np.zeros(cleaning.RULES, np.int64),
        np.zeros(cleaning.COUNTS, np.int64),
    )
    functions = np.zeros((5, compress.PACK_FIELDS), np.int64)
    cleaning.fill_fates(table, 0, 0, numbers, numbers, numbers, numbers, lasts, lasts[0], rules, numbers, flags)
    cleaning.codecs_of(table, 0, 0)
    cleaning.fill_keeps(table, numbers, columns, 0, numbers, flags, counts)
    cleaning.rewrite_batches(
        data, data, 0, table, 0, 0, numbers, numbers, columns, 0, 0, numbers, flags, rules, functions, data, data, data,
        0, table, 0, table, counts,
    )  # fmt: skip
    sifting.sift_batches(
        data, data, 0, table, 0, 0, numbers, numbers, numbers, data, 0, functions, data, data, data, 0, table, 0,
        counts, numbers,
    )  # fmt: skip
    sifting.sift_file(
        0, 0, 0, data, table, 0, data, 0, numbers, numbers, numbers, 0, 0, numbers, numbers, numbers, numbers, lasts,
        lasts[0], rules, numbers, flags, data, 0, functions, data, data, data, 0, table, counts,
        np.zeros(sifting.CURSOR, np.int64), numbers,
    )  # fmt: skip
    cleaning.room_for(table, 0, 0, flags, numbers, numbers)
    markers.settle_markers(
        numbers, numbers, numbers, numbers, numbers, 0, numbers, numbers, 0, numbers, flags, flags, flags, numbers
    )
