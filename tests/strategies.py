"""Hypothesis strategies: records, batches and whole segments, at the edges of the format as often as in its middle."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from tests.reference import batch as v2
from tests.reference import codecs, legacy
from tests.reference.record import Header, Record

I16 = st.integers(-(1 << 15), (1 << 15) - 1)
I32 = st.integers(-(1 << 31), (1 << 31) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)

offsets = st.one_of(st.integers(0, 1000), st.integers(0, 1 << 40), st.sampled_from([(1 << 31) - 1, 1 << 31, 1 << 62]))
timestamps = st.one_of(st.integers(0, 10_000), st.integers(1_600_000_000_000, 1_800_000_000_000), st.just(-1))
codec_numbers = st.sampled_from(range(5))
legacy_codec_numbers = st.sampled_from(range(4))


def blobs(longest: int = 60) -> st.SearchStrategy[bytes]:
    """Bytes: empty, short, compressible, and of lengths around the one-byte varint."""
    return st.one_of(
        st.just(b""),
        st.binary(max_size=longest),
        st.builds(lambda unit, times: (unit * times)[:300], st.binary(min_size=1, max_size=4), st.integers(1, 80)),
        st.integers(62, 66).map(bytes),
    )


def nullable_blobs(longest: int = 60) -> st.SearchStrategy[bytes | None]:
    """Bytes or null."""
    return st.one_of(st.none(), blobs(longest))


header_keys = st.text(max_size=12).map(lambda text: text.encode("utf-8", "replace"))
headers: st.SearchStrategy[tuple[Header, ...]] = st.one_of(
    st.just(()), st.lists(st.tuples(header_keys, nullable_blobs(20)), max_size=5).map(tuple)
)


@st.composite
def record_lists(
    draw: st.DrawFn, *, base: int = 0, min_size: int = 1, max_size: int = 12, with_headers: bool = True
) -> list[Record]:
    """Records with rising offsets from `base` on, holes among them, and timestamps in any order."""
    count = draw(st.integers(min_size, max_size))
    offset = base + draw(st.sampled_from([0, 0, 0, 1, 70]))
    made = []
    for _ in range(count):
        extra = draw(headers) if with_headers else ()
        made.append(Record(offset, draw(timestamps), draw(nullable_blobs()), draw(nullable_blobs()), extra))
        offset += draw(st.sampled_from([1, 1, 1, 2, 64, 9000]))
    return made


@dataclass(frozen=True)
class BatchCase:
    """A drawn batch: its bytes and what the twin reads from them."""

    data: bytes
    batch: v2.Batch


@st.composite
def batches(draw: st.DrawFn, *, base: int | None = None, codec: int | None = None, min_size: int = 0) -> BatchCase:
    """Magic 2 batches with every field drawn."""
    start = draw(offsets) if base is None else base
    made = draw(record_lists(base=start, min_size=min_size))
    horizon = draw(st.booleans()) and draw(st.booleans())
    append_time = draw(st.booleans()) and draw(st.booleans())
    has_producer = draw(st.booleans())
    last = made[-1].offset - start if made else 0
    fields = v2.Fields(
        base_offset=start,
        last_offset_delta=last + draw(st.sampled_from([0, 0, 0, 1, 500])),
        leader_epoch=draw(st.one_of(st.just(-1), st.integers(0, (1 << 31) - 1))),
        codec=(draw(codec_numbers) if codec is None else codec) if made else codecs.NONE,
        flags=(v2.HORIZON_BIT if horizon else 0) | (v2.LAT_BIT if append_time else 0),
        base_timestamp=draw(timestamps) if horizon and made else None,
        max_timestamp=draw(timestamps) if append_time else None,
        producer_id=draw(st.integers(0, (1 << 63) - 1)) if has_producer else -1,
        producer_epoch=draw(st.integers(0, (1 << 15) - 1)) if has_producer else -1,
        base_sequence=draw(st.integers(0, (1 << 31) - 1)) if has_producer else -1,
    )
    data = v2.encode_batch(made, fields)
    return BatchCase(data, v2.read_batch(data))


@dataclass(frozen=True)
class SetCase:
    """A drawn legacy message set: its bytes and what the twin reads from them."""

    data: bytes
    records: list[Record]


@st.composite
def message_sets(draw: st.DrawFn, *, base: int = 0, magic: int | None = None) -> SetCase:
    """Message sets of magic 0 or 1, wrapped or not."""
    version = draw(st.sampled_from([0, 1])) if magic is None else magic
    made = draw(record_lists(base=base, with_headers=False))
    made = [replace(record, timestamp=-1) for record in made] if version == 0 else made
    append_time = draw(st.one_of(st.none(), timestamps)) if version == 1 else None
    data = legacy.encode_set(made, version, draw(legacy_codec_numbers), append_time=append_time)
    return SetCase(data, legacy.read_set(data))


@dataclass(frozen=True)
class SegmentCase:
    """A drawn segment: base offset, bytes of its .log file, and the records that a consumer reads."""

    base: int
    data: bytes
    records: list[Record]


@st.composite
def segments(draw: st.DrawFn, *, base: int | None = None, max_batches: int = 5) -> SegmentCase:
    """Segments of batches of all magics, one behind the other, with holes."""
    start = draw(st.sampled_from([0, 7, 1 << 33])) if base is None else base
    next_offset = start
    data, records = b"", []
    for _ in range(draw(st.integers(1, max_batches))):
        if draw(st.integers(0, 4)) == 0:
            message_set = draw(message_sets(base=next_offset))
            data += message_set.data
            made, next_offset = message_set.records, message_set.records[-1].offset + 1
        else:
            case = draw(batches(base=next_offset))
            data += case.data
            made, next_offset = list(case.batch.records), case.batch.last_offset + 1
        records += made
        next_offset += draw(st.sampled_from([0, 0, 0, 3]))
    return SegmentCase(start, data, records)
