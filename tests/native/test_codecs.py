"""Framings inside the kernels: xxHash32, LZ4 frames, snappy streams, and the payloads of whole runs of batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.native import codecs as native
from kseg.native import table as t
from kseg.native.memory import as_array
from tests.native.harness import FUNCTIONS, Decoder
from tests.reference import batch as v2
from tests.reference import codecs as twin
from tests.reference import legacy
from tests.reference.errors import RejectedError
from tests.reference.record import Record
from tests.reference.xxh32 import xxh32

GUARD = 16
TEXT = b"a sentence that repeats, a sentence that repeats, and repeats " * 4


def unframe(data, *, codec=twin.LZ4, magic=2, capacity=1 << 18):
    """Decompress into a guarded buffer; None where the kernel refuses."""
    out = np.full(3 + capacity + GUARD, 0xEE, np.uint8)
    source = as_array(b"\x11\x22" + data)
    if codec == twin.LZ4:
        end = native.unframe_lz4(
            source, 2, 2 + len(data), magic > 0, out, 3, 3 + capacity, FUNCTIONS.addresses[native.LZ4]
        )
    else:
        end = native.unframe_snappy(source, 2, 2 + len(data), out, 3, 3 + capacity, 0)
        package = FUNCTIONS.addresses[native.SNAPPY]  # takes large blocks
        other = np.full_like(out, 0xEE)
        assert native.unframe_snappy(source, 2, 2 + len(data), other, 3, 3 + capacity, package) == end
        assert end < 0 or bytes(other[3:end]) == bytes(out[3:end])
    assert bytes(out[3 + capacity :]) == b"\xee" * GUARD, "wrote past its limit"
    assert bytes(out[:3]) == b"\xee" * 3, "wrote before its start"
    return None if end < 0 else bytes(out[3:end])


def by_twin(data, *, codec=twin.LZ4, magic=2):
    try:
        return twin.decompress(codec, data, magic)
    except RejectedError:
        return None


@given(st.binary(max_size=70), st.integers(0, 5))
def test_xxhash32(data, start):
    assert native.xxhash32(as_array(data), min(start, len(data)), len(data)) == xxh32(data[start:])


@pytest.mark.parametrize(
    ("text", "value"), [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"Nobody inspects the spammish repetition", 0xE2293B2F)]
)
def test_xxhash32_known_values(text, value):
    assert native.xxhash32(as_array(text), 0, len(text)) == value == xxh32(text)


LZ4_FRAMES = {
    "as Kafka writes it": (twin.lz4_compress(TEXT), TEXT),
    "several blocks": (twin.lz4_compress(TEXT * 600), TEXT * 600),
    "stored block": (twin.lz4_compress(b"xyz"), b"xyz"),
    "no block": (twin.lz4_header() + bytes(4), b""),
    "content size": (twin.lz4_header(0x68, content_size=len(TEXT)) + twin.lz4_block(TEXT) + bytes(4), TEXT),
    "wrong content size": (twin.lz4_header(0x68, content_size=3) + twin.lz4_block(TEXT) + bytes(4), TEXT),
    "block checksums": (twin.lz4_header(0x70) + twin.lz4_block(TEXT, checksum=True) * 2 + bytes(4), TEXT * 2),
    "stored block with checksum": (twin.lz4_header(0x70) + twin.lz4_block(b"xyz", checksum=True) + bytes(4), b"xyz"),
    "content checksum": (
        twin.lz4_header(0x64) + twin.lz4_block(TEXT) + bytes(4) + xxh32(TEXT).to_bytes(4, "little"),
        TEXT,
    ),
    "wrong content checksum": (twin.lz4_header(0x64) + twin.lz4_block(TEXT) + bytes(4) + b"\x01\x02\x03\x04", TEXT),
    "blocks of 4 MiB": (twin.lz4_header(block=0x70) + twin.lz4_block(TEXT * 400) + bytes(4), TEXT * 400),
    "bytes behind the end mark": (twin.lz4_compress(TEXT) + b"anything", TEXT),
    "a second frame, ignored": (twin.lz4_compress(TEXT) + twin.lz4_compress(b"two"), TEXT),
    "end mark with the stored bit": (twin.lz4_header() + twin.lz4_block(TEXT) + b"\x00\x00\x00\x80", TEXT),
}


@pytest.mark.parametrize("name", LZ4_FRAMES)
def test_lz4_frames_that_kafka_reads(name):
    frame, text = LZ4_FRAMES[name]
    assert unframe(frame) == text == by_twin(frame)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        twin.LZ4_MAGIC,
        twin.lz4_header(),
        twin.lz4_header()[:-1],
        twin.lz4_header(0x68, content_size=1)[:9],
        twin.lz4_compress(TEXT)[:-4],
        twin.lz4_compress(TEXT)[:-1],
        twin.lz4_compress(TEXT)[:40],
        b"\x05" + twin.lz4_compress(TEXT)[1:],
        twin.lz4_header(0x40) + twin.lz4_block(TEXT) + bytes(4),
        twin.lz4_header(0x61) + twin.lz4_block(TEXT) + bytes(4),
        twin.lz4_header(0x62) + twin.lz4_block(TEXT) + bytes(4),
        twin.lz4_header(0xA0) + twin.lz4_block(TEXT) + bytes(4),
        twin.lz4_header(0x20) + twin.lz4_block(TEXT) + bytes(4),
        twin.lz4_header(block=0x30) + twin.lz4_block(TEXT) + bytes(4),
        twin.lz4_header(block=0x41) + twin.lz4_block(TEXT) + bytes(4),
        twin.lz4_header(block=0xC0) + twin.lz4_block(TEXT) + bytes(4),
        twin.lz4_header(0x70) + twin.lz4_block(TEXT) + b"\x00\x00\x00\x01" + bytes(4),
        twin.lz4_header(0x70) + twin.lz4_block(TEXT)[:-2] + bytes(4),
        twin.lz4_header(0x64) + twin.lz4_block(TEXT) + bytes(4) + b"\x01\x02\x03",
        twin.lz4_header() + (65537).to_bytes(4, "little") + bytes(65537) + bytes(4),
        twin.lz4_header() + (65537 | 1 << 31).to_bytes(4, "little") + bytes(65537) + bytes(4),
        twin.lz4_header() + (5).to_bytes(4, "little") + b"\xff\xff\xff\xff\xff" + bytes(4),
        twin.lz4_header() + twin.lz4_block(TEXT * 400) + bytes(4),
    ],
    ids=range(24),
)
def test_lz4_frames_that_kafka_refuses(frame):
    assert by_twin(frame) is None
    assert unframe(frame) is None


def test_the_wrong_checksum_of_magic_0():
    frame, right = twin.lz4_compress(TEXT, magic=0), twin.lz4_compress(TEXT)
    assert (frame[6], right[6]) == (0x1A, 0x82)
    assert (
        unframe(frame, magic=0) == unframe(right, magic=0) == unframe(frame[:6] + b"\x00" + frame[7:], magic=0) == TEXT
    )
    assert unframe(frame, magic=1) is None
    assert unframe(frame, magic=2) is None


@given(st.binary(max_size=40), st.sampled_from([0, 1, 2]))
def test_any_bytes_behind_an_lz4_magic_end_as_in_the_twin(tail, magic):
    for frame in (twin.LZ4_MAGIC + tail, twin.lz4_header(magic=magic) + tail, tail):
        assert unframe(frame, magic=magic) == by_twin(frame, magic=magic)


def chunk(data):
    packed = twin.snappy_raw(data)
    return len(packed).to_bytes(4, "big") + packed


SNAPPY_STREAMS = {
    "as Kafka writes it": (twin.snappy_compress(TEXT), TEXT),
    "several chunks": (twin.snappy_compress(TEXT * 600), TEXT * 600),
    "raw": (twin.snappy_raw(TEXT), TEXT),
    "raw and shorter than a header": (twin.snappy_raw(b"xyz"), b"xyz"),
    "raw and empty": (twin.snappy_raw(b""), b""),
    "no chunk": (twin.XERIAL_HEADER, b""),
    "two streams": (twin.snappy_compress(TEXT) + twin.snappy_compress(b"two"), TEXT + b"two"),
    "three streams, one without chunks": (
        twin.snappy_compress(b"1") + twin.XERIAL_HEADER + twin.snappy_compress(b"3"),
        b"13",
    ),
    "other versions": (twin.XERIAL_MAGIC + b"\x00\x00\x00\x02\x00\x00\x00\x01" + chunk(TEXT), TEXT),
    "small chunks": (twin.XERIAL_HEADER + chunk(b"abc") + chunk(b"def"), b"abcdef"),
    "an empty chunk": (twin.XERIAL_HEADER + chunk(b"") + chunk(b"def"), b"def"),
    "a torn chunk length": (twin.snappy_compress(TEXT) + b"\x00\x00", TEXT),
}


@pytest.mark.parametrize("name", SNAPPY_STREAMS)
def test_snappy_streams_that_kafka_reads(name):
    stream, text = SNAPPY_STREAMS[name]
    assert unframe(stream, codec=twin.SNAPPY) == text == by_twin(stream, codec=twin.SNAPPY)


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        twin.XERIAL_MAGIC,
        twin.XERIAL_HEADER[:15],
        twin.snappy_compress(TEXT)[:-1],
        twin.XERIAL_HEADER + b"\xff\xff\xff\xff" + TEXT,
        twin.XERIAL_HEADER + b"\x7f\xff\xff\xff" + TEXT,
        twin.XERIAL_HEADER + b"\x20\x00\x00\x01" + TEXT,
        twin.XERIAL_HEADER + bytes(4),
        twin.XERIAL_HEADER + b"\x00\x00\x00\x03" + b"\xff\xff\xff",
        twin.snappy_compress(TEXT) + twin.XERIAL_HEADER[:10],
        b"\x83" + twin.snappy_compress(TEXT)[1:],
        twin.snappy_raw(TEXT)[:-1],
    ],
    ids=range(12),
)
def test_snappy_streams_that_kafka_refuses(stream):
    assert by_twin(stream, codec=twin.SNAPPY) is None
    assert unframe(stream, codec=twin.SNAPPY) is None


@given(st.binary(max_size=60))
def test_any_bytes_behind_a_xerial_header_end_as_in_the_twin(tail):
    for stream in (tail, twin.XERIAL_HEADER + tail, twin.snappy_compress(b"first") + tail):
        assert unframe(stream, codec=twin.SNAPPY) == by_twin(stream, codec=twin.SNAPPY)


RECORDS = [Record(10 + index, 1000, b"key", TEXT) for index in range(4)]
RUN = [v2.encode_batch(RECORDS, v2.Fields(base_offset=10, codec=codec)) for codec in (0, 1, 2, 3, 4)]
PLAIN = RUN[0][61:]


def payload(decoder, row):
    start, end = int(decoder.starts[row]), int(decoder.ends[row])
    if start < len(decoder.data):
        return decoder.data[start:end]
    return bytes(decoder.arena[start - len(decoder.data) : end - len(decoder.data)])


def test_payloads_of_a_run_of_all_codecs():
    decoder = Decoder(b"".join(RUN))
    assert decoder.payloads() == (5, native.DONE)
    assert [payload(decoder, row) for row in range(5)] == [PLAIN] * 5
    assert decoder.starts[0] == 61


def test_a_full_arena_is_resumed():
    decoder = Decoder(b"".join(RUN[1:]), arena=len(PLAIN) + 100)
    row, seen = 0, []
    while row < 4:
        stopped, status = native.fill_payloads(
            decoder.array, 0, decoder.walk.table, row, 4, decoder.skip, decoder.arena, decoder.limit,
            FUNCTIONS.addresses, decoder.starts, decoder.ends,
        )  # fmt: skip
        assert status == (native.ARENA_FULL if stopped < 4 else native.DONE)
        assert stopped > row, "an arena that holds one payload must get on"
        seen += [payload(decoder, done) for done in range(row, stopped)]
        row = stopped
    assert seen == [PLAIN] * 4


def test_skipped_rows_are_passed_over():
    broken = bytearray(RUN[4])
    broken[61] ^= 0xFF
    decoder = Decoder(RUN[1] + bytes(broken) + RUN[3])
    decoder.skip[1] = True
    assert decoder.payloads() == (3, native.DONE)
    assert [payload(decoder, 0), payload(decoder, 2)] == [PLAIN] * 2


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_broken_payload_names_its_row(codec):
    broken = bytearray(RUN[codec])
    broken[61] ^= 0xFF
    row, status = Decoder(RUN[0] + bytes(broken)).payloads()
    assert (row, status) == (1, native.BAD_PAYLOAD)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(codec):
    unknown = v2.repair(RUN[0][:22] + bytes([codec]) + RUN[0][23:])
    assert Decoder(unknown).payloads() == (0, native.BAD_CODEC)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_no_payload_is_larger_than_the_limit(codec):
    bomb = v2.encode_payload(bytes(300_000), 1, v2.Fields(codec=codec))
    row, status = Decoder(bomb, arena=1 << 20, limit=100_000).payloads()
    assert row == 0
    assert status != native.DONE
    assert Decoder(bomb, arena=1 << 20, limit=300_000).payloads() == (1, native.DONE)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [1, 2, 3])
def test_count_and_base_of_a_wrapper_become_known(magic, codec):
    decoder = Decoder(legacy.encode_set(RECORDS, magic, codec))
    assert (decoder.walk.table[t.COUNT, 0], decoder.walk.table[t.BASE_OFFSET, 0]) == (-1, -1)
    assert decoder.payloads() == (1, native.DONE)
    assert (decoder.walk.table[t.COUNT, 0], decoder.walk.table[t.BASE_OFFSET, 0]) == (4, 10)


@pytest.mark.parametrize("members", [1, 3])
def test_gzip_asks_for_room_until_it_has_enough(members):
    parts = [bytes([65 + index]) * 300 for index in range(members)]
    packed = b"".join(twin.gzip_compress(part) for part in parts)
    data = v2.encode_payload(packed, 1, v2.Fields(codec=twin.GZIP), compress=bytes)
    decoder = Decoder(data, arena=300 * members - 1)
    assert decoder.payloads() == (0, native.ARENA_FULL)
    decoder.arena = np.zeros(300 * members, np.uint8)
    assert decoder.payloads() == (1, native.DONE)
    assert bytes(decoder.arena) == b"".join(parts)
