"""LogBuilder: partition directories for tests, a step at a time, on top of the twins and not of kseg.

    log = LogBuilder(tmp).segment(base=0).batch(records=5, codec="lz4").tombstone(b"k").control("abort", producer_id=9)
    path = log.corrupt(byte=70).write()

Every step that adds bytes takes the next free offset; `log.records` is what a consumer of all of it would read,
`log.batches` what stands in the files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from tests.reference import batch as v2
from tests.reference import codecs, legacy
from tests.reference.record import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE, Header, Record

START_TIME = 1_700_000_000_000
MARKERS = {"abort": 0, "commit": 1}

Sample = Callable[[int], tuple[bytes | None, bytes | None, tuple[Header, ...]]]


def sample(index: int) -> tuple[bytes | None, bytes | None, tuple[Header, ...]]:
    """Key, value and headers of the record at an offset: nulls, empties and headers all occur within seven records."""
    key = None if index % 7 == 3 else b"" if index % 7 == 5 else b"key-%d" % (index % 11)
    value = None if index % 7 == 4 else b"" if index % 7 == 6 else b"value-%d-" % index + b"x" * (index % 40)
    headers: tuple[Header, ...] = ((b"h", b"%d" % index), (b"h", None), (b"", b"")) if index % 3 == 1 else ()
    return key, value, headers


@dataclass
class Entry:
    """One batch (or legacy entry) of a segment: its bytes, where it is known what they mean, and its place."""

    data: bytes
    records: tuple[Record, ...] = ()
    control: bool = False
    fields: v2.Fields = field(default_factory=v2.Fields)


@dataclass
class SegmentFile:
    """A segment in the making."""

    base: int
    entries: list[Entry] = field(default_factory=list)
    tail: bytes = b""

    @property
    def data(self) -> bytes:
        """The bytes of the .log file."""
        return b"".join(entry.data for entry in self.entries) + self.tail


def codec_number(codec: str | int) -> int:
    """A codec by its number or Kafka's name."""
    return codec if isinstance(codec, int) else codecs.NAMES.index(codec)


class LogBuilder:
    """Builds one partition directory below `root`; see the module's docstring."""

    def __init__(self, root: Path, topic: str = "orders", partition: int = 0) -> None:
        self.path = root / f"{topic}-{partition}"
        self.segments: list[SegmentFile] = []
        self.next_offset = 0
        self.clock = START_TIME

    @property
    def batches(self) -> list[Entry]:
        """All entries of all segments."""
        return [entry for segment in self.segments for entry in segment.entries]

    @property
    def records(self) -> list[Record]:
        """What a consumer with read_uncommitted reads."""
        return [record for entry in self.batches if not entry.control for record in entry.records]

    def segment(self, base: int | None = None) -> Self:
        """Start a segment; its base is the next offset, or above it where a hole is wanted."""
        self.next_offset = self.next_offset if base is None else base
        self.segments.append(SegmentFile(self.next_offset))
        return self

    def _add(self, entry: Entry, next_offset: int) -> Self:
        if not self.segments:
            self.segment()
        self.segments[-1].entries.append(entry)
        self.next_offset = next_offset
        return self

    def make(self, count: int, *, step: int = 1, content: Sample = sample) -> list[Record]:
        """Records at the next offsets, `step` apart, a few milliseconds apart, each third one out of order."""
        made = []
        for index in range(count):
            offset = self.next_offset + index * step
            self.clock += 5
            made.append(Record(offset, self.clock - (20 if index % 3 == 2 else 0), *content(offset)))
        return made

    def batch(self, records: int | Sequence[Record] = 5, codec: str | int = "none", **fields: Any) -> Self:
        """Add a magic 2 batch of so many sample records, or of the records given; `fields` as in `Fields`."""
        made = self.make(records) if isinstance(records, int) else list(records)
        filled = v2.Fields(**{"base_offset": self.next_offset, "codec": codec_number(codec), **fields})
        data = v2.encode_batch(made, filled)
        read = v2.read_batch(data)
        return self._add(Entry(data, read.records, read.is_control, filled), read.last_offset + 1)

    def record(self, key: bytes | None, value: bytes | None, headers: Sequence[Header] = (), **fields: Any) -> Self:
        """Add a batch of one record."""
        self.clock += 5
        return self.batch([Record(self.next_offset, self.clock, key, value, tuple(headers))], **fields)

    def tombstone(self, key: bytes, **fields: Any) -> Self:
        """Add a batch of one record that deletes a key."""
        return self.record(key, None, **fields)

    def append_time(self, records: int = 5, codec: str | int = "none", **fields: Any) -> Self:
        """Add a batch with LogAppendTime: every record has the batch's max timestamp."""
        fields = {"flags": v2.LAT_BIT, "max_timestamp": self.clock + 1000, **fields}
        return self.batch(records, codec, **fields)

    def transaction(self, records: int = 3, *, producer_id: int, producer_epoch: int = 0, **fields: Any) -> Self:
        """Add a transactional batch; a `control` step ends the transaction."""
        fields = {"flags": v2.TXN_BIT, "base_sequence": 0, **fields}
        return self.batch(records, producer_id=producer_id, producer_epoch=producer_epoch, **fields)

    def control(
        self,
        kind: Literal["abort", "commit"] | int = "commit",
        *,
        producer_id: int,
        producer_epoch: int = 0,
        coordinator_epoch: int = 0,
        **fields: Any,
    ) -> Self:
        """Add a transaction marker."""
        self.clock += 5
        number = MARKERS[kind] if isinstance(kind, str) else kind
        value = bytes(2) + coordinator_epoch.to_bytes(4, "big", signed=True)
        marker = Record(self.next_offset, self.clock, bytes(2) + number.to_bytes(2, "big"), value)
        fields = {"flags": v2.TXN_BIT | v2.CONTROL_BIT, **fields}
        return self.batch([marker], producer_id=producer_id, producer_epoch=producer_epoch, **fields)

    def empty(self, span: int = 1, **fields: Any) -> Self:
        """Add a batch without records that covers `span` offsets, as a cleaner leaves it."""
        filled = v2.Fields(
            **{"base_offset": self.next_offset, "last_offset_delta": span - 1, "max_timestamp": self.clock, **fields}
        )
        return self._add(Entry(v2.encode_batch([], filled), (), False, filled), self.next_offset + span)

    def legacy(
        self,
        records: int | Sequence[Record] = 3,
        *,
        magic: int = 1,
        codec: str | int = "none",
        append_time: int | None = None,
    ) -> Self:
        """Add messages of magic 0 or 1, wrapped where there is a codec."""
        made = self.make(records) if isinstance(records, int) else list(records)
        made = [replace(record, headers=(), timestamp=record.timestamp if magic else -1) for record in made]
        data = legacy.encode_set(made, magic, codec_number(codec), append_time=append_time)
        kind = NO_TIMESTAMP_TYPE if magic == 0 else CREATE_TIME if append_time is None else LOG_APPEND_TIME
        stamped = [
            replace(r, timestamp_type=kind, timestamp=r.timestamp if append_time is None else append_time) for r in made
        ]
        next_offset = made[-1].offset + 1
        if codec_number(codec):
            return self._add(Entry(data, tuple(stamped)), next_offset)
        for (position, size), record in zip(v2.walk(data)[0], stamped, strict=True):
            self._add(Entry(data[position : position + size], (record,)), next_offset)
        return self

    def skip(self, offsets: int) -> Self:
        """Leave a hole."""
        self.next_offset += offsets
        return self

    def raw(self, data: bytes, records: Sequence[Record] = ()) -> Self:
        """Add bytes as they are; `records` is what they mean, if anything."""
        next_offset = records[-1].offset + 1 if records else self.next_offset
        return self._add(Entry(data, tuple(records)), next_offset)

    def torn(self, data: bytes) -> Self:
        """Put bytes behind the last batch of the segment that are no whole batch."""
        self.segments[-1].tail += data
        return self

    def corrupt(self, byte: int, *, xor: int = 0xFF, repair: bool = False) -> Self:
        """Change a byte of the last batch; `repair` gives it a fitting checksum again."""
        entry = self.segments[-1].entries[-1]
        changed = bytearray(entry.data)
        changed[byte] ^= xor
        entry.data = bytes(changed)
        if repair:
            entry.data = v2.repair(entry.data) if entry.data[16] == 2 else legacy.repair(entry.data)
        return self

    def truncate(self, size: int) -> Self:
        """Cut the last batch to so many bytes, as a crash in the middle of a write leaves it."""
        segment = self.segments[-1]
        segment.tail = segment.entries.pop().data[:size]
        return self

    def write(self) -> Path:
        """Write the .log files, without any sidecar; gives the partition directory."""
        self.path.mkdir(parents=True, exist_ok=True)
        for segment in self.segments:
            (self.path / f"{segment.base:020d}.log").write_bytes(segment.data)
        return self.path
