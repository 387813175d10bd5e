"""Every framing that Kafka's readers accept or refuse, inside whole batches.

The answers were checked against Kafka's own classes, one by one.
"""

from __future__ import annotations

import zlib

import pytest
import zstandard

from kseg.errors import FormatError, UnsupportedError
from tests.format.decoding import decode
from tests.reference import batch as v2
from tests.reference import codecs, legacy
from tests.reference.errors import RejectedError
from tests.reference.record import Record, encode_record
from tests.reference.xxh32 import xxh32

RECORDS = [Record(index, 1000 + index, b"key-%d" % index, b"a value that repeats " * 9) for index in range(5)]
PLAIN = b"".join(encode_record(record, 0, 1000) for record in RECORDS)
HALF = len(PLAIN) // 2
FIRST, SECOND = PLAIN[:HALF], PLAIN[HALF:]
GZIP, ZSTD = codecs.gzip_compress(PLAIN), codecs.zstd_compress(PLAIN)
SKIPPABLE = bytes.fromhex("502a4d1803000000") + b"abc"


def chunk(data):
    packed = codecs.snappy_raw(data)
    return len(packed).to_bytes(4, "big") + packed


def member(data, flags=0, extra=b""):
    plain = codecs.gzip_compress(data)
    return plain[:3] + bytes([flags]) + plain[4:10] + extra + plain[10:]


def with_header_checksum(data):
    header = member(data, 0x02)[:10]
    return member(data, 0x02, (zlib.crc32(header) & 0xFFFF).to_bytes(2, "little"))


def sized(data, **options):
    return zstandard.ZstdCompressor(**options).compress(data)


def stored(data):
    packer = zlib.compressobj(0, zlib.DEFLATED, -15)
    return GZIP[:10] + packer.compress(data) + packer.flush() + GZIP[-8:]


ACCEPTED = {
    "gzip as Kafka writes it": (codecs.GZIP, GZIP),
    "gzip of another operating system": (codecs.GZIP, GZIP[:9] + b"\x00" + GZIP[10:]),
    "gzip with a time": (codecs.GZIP, GZIP[:4] + b"\x01\x02\x03\x04" + GZIP[8:]),
    "gzip with a name": (codecs.GZIP, member(PLAIN, 0x08, b"name\x00")),
    "gzip with a comment": (codecs.GZIP, member(PLAIN, 0x10, b"words\x00")),
    "gzip with an extra field": (codecs.GZIP, member(PLAIN, 0x04, b"\x03\x00abc")),
    "gzip with a checksum of its header": (codecs.GZIP, with_header_checksum(PLAIN)),
    "gzip with flags that mean nothing": (codecs.GZIP, member(FIRST, 0xE0) + member(SECOND, 0x28, b"name\x00")),
    "gzip stored": (codecs.GZIP, stored(PLAIN)),
    "gzip level 1": (codecs.GZIP, codecs.gzip_compress(PLAIN, 1)),
    "gzip of two members": (codecs.GZIP, codecs.gzip_compress(FIRST) + codecs.gzip_compress(SECOND)),
    "gzip with an empty member first": (codecs.GZIP, codecs.gzip_compress(b"") + GZIP),
    "gzip with an empty member between": (
        codecs.GZIP,
        codecs.gzip_compress(FIRST) + codecs.gzip_compress(b"") + codecs.gzip_compress(SECOND),
    ),
    "gzip of a member per byte": (
        codecs.GZIP,
        b"".join(codecs.gzip_compress(PLAIN[i : i + 1]) for i in range(len(PLAIN))),
    ),
    "gzip with bytes behind": (codecs.GZIP, GZIP + b"garbage"),
    "gzip with many bytes behind": (codecs.GZIP, GZIP + b"garbage" * 10),
    "xerial as Kafka writes it": (codecs.SNAPPY, codecs.snappy_compress(PLAIN)),
    "xerial of small chunks": (
        codecs.SNAPPY,
        codecs.XERIAL_HEADER + b"".join(chunk(PLAIN[i : i + 10]) for i in range(0, len(PLAIN), 10)),
    ),
    "xerial with an empty chunk": (codecs.SNAPPY, codecs.XERIAL_HEADER + chunk(FIRST) + chunk(b"") + chunk(SECOND)),
    "xerial of another version": (
        codecs.SNAPPY,
        codecs.XERIAL_MAGIC + b"\x00\x00\x00\x02\x00\x00\x00\x01" + chunk(PLAIN),
    ),
    "xerial twice": (codecs.SNAPPY, codecs.snappy_compress(FIRST) + codecs.snappy_compress(SECOND)),
    "xerial with a torn length behind": (codecs.SNAPPY, codecs.snappy_compress(PLAIN) + b"\x00\x00"),
    "snappy without framing": (codecs.SNAPPY, codecs.snappy_raw(PLAIN)),
    "lz4 as Kafka writes it": (codecs.LZ4, codecs.lz4_compress(PLAIN)),
    "lz4 with a content size": (
        codecs.LZ4,
        codecs.lz4_header(0x68, content_size=len(PLAIN)) + codecs.lz4_block(PLAIN) + bytes(4),
    ),
    "lz4 with a wrong content size": (
        codecs.LZ4,
        codecs.lz4_header(0x68, content_size=1) + codecs.lz4_block(PLAIN) + bytes(4),
    ),
    "lz4 with block checksums": (
        codecs.LZ4,
        codecs.lz4_header(0x70)
        + codecs.lz4_block(FIRST, checksum=True)
        + codecs.lz4_block(SECOND, checksum=True)
        + bytes(4),
    ),
    "lz4 with a content checksum": (
        codecs.LZ4,
        codecs.lz4_header(0x64) + codecs.lz4_block(PLAIN) + bytes(4) + xxh32(PLAIN).to_bytes(4, "little"),
    ),
    "lz4 with a wrong content checksum": (codecs.LZ4, codecs.lz4_header(0x64) + codecs.lz4_block(PLAIN) + bytes(8)),
    "lz4 with blocks of 256 KiB": (codecs.LZ4, codecs.lz4_header(block=0x50) + codecs.lz4_block(PLAIN) + bytes(4)),
    "lz4 with blocks of 1 MiB": (codecs.LZ4, codecs.lz4_header(block=0x60) + codecs.lz4_block(PLAIN) + bytes(4)),
    "lz4 with blocks of 4 MiB": (codecs.LZ4, codecs.lz4_header(block=0x70) + codecs.lz4_block(PLAIN) + bytes(4)),
    "lz4 with bytes behind": (codecs.LZ4, codecs.lz4_compress(PLAIN) + b"anything"),
    "lz4 with the stored bit on its end mark": (
        codecs.LZ4,
        codecs.lz4_header() + codecs.lz4_block(PLAIN) + b"\x00\x00\x00\x80",
    ),
    "zstd as Kafka writes it": (codecs.ZSTD, ZSTD),
    "zstd with content size": (codecs.ZSTD, sized(PLAIN)),
    "zstd with a checksum": (codecs.ZSTD, sized(PLAIN, write_checksum=True)),
    "zstd at level 19": (codecs.ZSTD, sized(PLAIN, level=19, write_content_size=False)),
    "zstd of two frames": (codecs.ZSTD, codecs.zstd_compress(FIRST) + codecs.zstd_compress(SECOND)),
    "zstd of two sized frames": (codecs.ZSTD, sized(FIRST) + sized(SECOND)),
    "zstd with an empty frame behind": (codecs.ZSTD, ZSTD + codecs.zstd_compress(b"")),
    "zstd with a skippable frame before": (codecs.ZSTD, SKIPPABLE + ZSTD),
    "zstd with a skippable frame behind": (codecs.ZSTD, ZSTD + SKIPPABLE),
}
REFUSED = {
    "gzip of nothing": (codecs.GZIP, b""),
    "gzip with a wrong checksum": (codecs.GZIP, GZIP[:-8] + bytes(4) + GZIP[-4:]),
    "gzip with a wrong size": (codecs.GZIP, GZIP[:-4] + bytes(4)),
    "gzip with a wrong checksum of its header": (codecs.GZIP, member(PLAIN, 0x02, b"\x00\x00")),
    "gzip with such a second member": (codecs.GZIP, GZIP + member(PLAIN, 0x02, b"\x00\x00")),
    "gzip without trailer": (codecs.GZIP, GZIP[:-8]),
    "gzip cut short": (codecs.GZIP, GZIP[:-20]),
    "gzip with a broken second member": (
        codecs.GZIP,
        codecs.gzip_compress(FIRST) + codecs.gzip_compress(SECOND)[:-9] + bytes(9),
    ),
    "zlib instead of gzip": (codecs.GZIP, zlib.compress(PLAIN)),
    "xerial of nothing": (codecs.SNAPPY, codecs.XERIAL_HEADER),
    "snappy of nothing": (codecs.SNAPPY, b""),
    "xerial cut short": (codecs.SNAPPY, codecs.snappy_compress(PLAIN)[:-1]),
    "xerial with a negative chunk": (codecs.SNAPPY, codecs.XERIAL_HEADER + b"\x80\x00\x00\x00" + chunk(PLAIN)),
    "xerial with a huge chunk": (codecs.SNAPPY, codecs.XERIAL_HEADER + b"\x7f\xff\xff\xff" + chunk(PLAIN)),
    "xerial with a chunk of no bytes": (codecs.SNAPPY, codecs.snappy_compress(PLAIN) + bytes(4)),
    "xerial with a torn second header": (codecs.SNAPPY, codecs.snappy_compress(PLAIN) + codecs.XERIAL_HEADER[:9]),
    "raw snappy with a byte behind": (codecs.SNAPPY, codecs.snappy_raw(PLAIN) + b"\x00"),
    "snappy's own framing": (codecs.SNAPPY, b"\xff\x06\x00\x00sNaPpY" + chunk(PLAIN)),
    "lz4 of nothing": (codecs.LZ4, b""),
    "lz4 with linked blocks": (codecs.LZ4, codecs.lz4_header(0x40) + codecs.lz4_block(PLAIN) + bytes(4)),
    "lz4 with a dictionary": (codecs.LZ4, codecs.lz4_header(0x61) + codecs.lz4_block(PLAIN) + bytes(4)),
    "lz4 of another version": (codecs.LZ4, codecs.lz4_header(0xA0) + codecs.lz4_block(PLAIN) + bytes(4)),
    "lz4 with blocks of 16 KiB": (codecs.LZ4, codecs.lz4_header(block=0x30) + codecs.lz4_block(PLAIN) + bytes(4)),
    "lz4 with the header checksum of magic 0": (codecs.LZ4, codecs.lz4_compress(PLAIN, magic=0)),
    "lz4 with a wrong block checksum": (
        codecs.LZ4,
        codecs.lz4_header(0x70) + codecs.lz4_block(PLAIN) + b"\x01\x02\x03\x04" + bytes(4),
    ),
    "lz4 with a torn content checksum": (
        codecs.LZ4,
        codecs.lz4_header(0x64) + codecs.lz4_block(PLAIN) + bytes(4) + b"\x01\x02\x03",
    ),
    "lz4 without end mark": (codecs.LZ4, codecs.lz4_compress(PLAIN)[:-4]),
    "lz4 with a block above its size": (
        codecs.LZ4,
        codecs.lz4_header() + b"\x01\x00\x01\x80" + bytes(65537) + bytes(4),
    ),
    "lz4 in a legacy frame": (codecs.LZ4, b"\x02\x21\x4c\x18" + codecs.lz4_block(PLAIN)),
    "zstd of nothing": (codecs.ZSTD, b""),
    "zstd cut short": (codecs.ZSTD, ZSTD[:-1]),
    "zstd without its last block": (codecs.ZSTD, ZSTD[:-3]),
    "zstd with a wrong checksum": (codecs.ZSTD, sized(PLAIN, write_checksum=True)[:-4] + bytes(4)),
    "zstd with bytes behind": (codecs.ZSTD, ZSTD + b"garbage"),
    "lz4 called zstd": (codecs.ZSTD, codecs.lz4_compress(PLAIN)),
}


def batch_of(codec, packed):
    fields = v2.Fields(0, len(RECORDS) - 1, 0, codec, 0, 1000, 1004)
    return v2.encode_payload(packed, len(RECORDS), fields, compress=bytes)


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name):
    data = batch_of(*ACCEPTED[name])
    assert v2.read_batch(data).records == tuple(RECORDS)
    assert decode(data) == RECORDS


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    data = batch_of(*REFUSED[name])
    with pytest.raises(RejectedError):
        v2.read_batch(data)
    with pytest.raises(FormatError) as raised:
        decode(data)
    assert raised.value.position == 0


@pytest.mark.parametrize("codec", range(1, 5))
def test_payloads_of_many_blocks(codec):
    records = [Record(index, 1000, None, b"%06d" % index * 3000) for index in range(40)]
    assert decode(v2.encode_batch(records, v2.Fields(codec=codec))) == records


@pytest.mark.parametrize("codec", range(1, 5))
def test_payloads_that_do_not_compress(codec):
    noise = b"".join(zlib.crc32(bytes([i % 256, i // 256])).to_bytes(4, "big") for i in range(40_000))
    records = [Record(0, 1000, None, noise)]
    assert decode(v2.encode_batch(records, v2.Fields(codec=codec))) == records


@pytest.mark.parametrize("checksum", [b"\x1a", b"\x82", b"\x00", b"\xff"])
def test_magic_0_takes_any_lz4_header_checksum(checksum):
    frame = codecs.lz4_compress(legacy.encode_set(RECORDS, 0), 0)
    entry = legacy.encode_message(Record(4, -1, None, frame[:6] + checksum + frame[7:]), 0, codecs.LZ4)
    assert [record.key for record in decode(entry)] == [record.key for record in RECORDS]


def test_magic_1_takes_only_the_right_lz4_header_checksum():
    inner = legacy.encode_set(RECORDS, 1)
    good = legacy.encode_message(Record(4, 1004, None, codecs.lz4_compress(inner, 1)), 1, codecs.LZ4)
    assert decode(good) == RECORDS
    bad = legacy.encode_message(Record(4, 1004, None, codecs.lz4_compress(inner, 0)), 1, codecs.LZ4)
    with pytest.raises(FormatError):
        decode(bad)


@pytest.mark.parametrize("codec", [5, 6, 7])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_unknown_codecs(codec, magic):
    if magic == 2:
        data = v2.repair(batch_of(0, PLAIN)[:22] + bytes([codec]) + batch_of(0, PLAIN)[23:])
    else:
        data = legacy.encode_message(Record(4, 1004, None, GZIP), magic, codec)
    with pytest.raises(FormatError):
        decode(data)


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_has_no_place_in_legacy_sets(magic):
    packed = codecs.zstd_compress(legacy.encode_set(RECORDS, magic))
    with pytest.raises(FormatError):
        decode(legacy.encode_message(Record(4, 1004, None, packed), magic, codecs.ZSTD))


@pytest.mark.parametrize("codec", range(1, 5))
def test_a_decompression_bomb_is_refused_at_the_limit(codec):
    value = bytes(4 << 20)
    bomb = v2.encode_batch([Record(0, 1000, None, value)], v2.Fields(codec=codec))
    assert len(bomb) < 300_000
    assert decode(bomb)[0].value == value
    with pytest.raises(UnsupportedError) as raised:
        decode(bomb, max_batch_bytes=1 << 20)
    assert raised.value.position == 0


def test_a_zstd_frame_that_claims_a_huge_size_allocates_nothing():
    frame = bytearray(sized(PLAIN))
    claimed = bytes.fromhex("28b52ffd") + b"\xe0" + (1 << 45).to_bytes(8, "little") + bytes(frame[6:])
    with pytest.raises(FormatError):
        decode(batch_of(codecs.ZSTD, claimed))


def test_a_snappy_block_that_claims_a_huge_size_allocates_nothing():
    with pytest.raises(FormatError):
        decode(batch_of(codecs.SNAPPY, b"\xff\xff\xff\xff\x0f" + codecs.snappy_raw(PLAIN)[2:]))
