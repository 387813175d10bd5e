"""Tiers for tests: partitions copied to a directory in either layout, by the formats alone."""

from __future__ import annotations

import base64
import hashlib
import threading
from pathlib import Path

import pyarrow as pa

import kseg
from kseg.index.epoch import LeaderEpochs
from kseg.tiering.chunks import Transform, iter_chunks, store_chunks, store_indexes
from kseg.tiering.layout import ChunkedPart, PlainPart, RemoteName
from kseg.tiering.manifest import RemoteSegmentMetadata, SegmentManifest

TOPIC_ID = "l3iqc78KThSrt73HgwZwSw"


def uuid_of(*parts: object) -> str:
    """The same id for the same parts."""
    digest = hashlib.sha256(repr(parts).encode()).digest()[:16]
    return base64.urlsafe_b64encode(digest)[:-2].decode()


def write_log(folder: Path, name: str = "orders-0", *, segments: int = 4, count: int = 100, value: bytes = b"") -> Path:
    """A partition of `segments` segments of `count` records each."""
    path = folder / name
    with kseg.append_to(path) if path.exists() else kseg.create_log(path, topic_id=TOPIC_ID) as writer:
        for _ in range(segments):
            if writer.next_offset:
                writer.roll()
            first = writer.next_offset
            values = [b"%d:" % (first + i) + value for i in range(count)]
            writer.append(pa.table({"value": values}), batch_records=10)
    return path


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def upload(
    partition: Path,
    root: Path,
    *,
    bases: list[int] | None = None,
    layout: str = "chunked",
    chunk_size: int = 4096,
    transform: Transform | None = None,
    encryption=None,
    segment_id: str = "",
    epochs: tuple = ((0, 0),),
    event_ms: int = 1,
) -> list[RemoteName]:
    """Copy closed segments to a tier; all but the last, unless `bases` are given."""
    log = kseg.open_log(partition)
    transform = transform or Transform()
    names = []
    for segment in log.segments[:-1]:
        if bases is not None and segment.base_offset not in bases:
            continue
        name = RemoteName(
            log.topic, log.partition, log.topic_id, segment.base_offset, segment_id or uuid_of(segment.base_offset)
        )
        names.append(name)
        stem = f"{segment.base_offset:020d}"

        def side(suffix: str, stem: str = stem) -> bytes:
            return (partition / f"{stem}{suffix}").read_bytes()

        snapshot = (partition / f"{segment.next_offset:020d}.snapshot").read_bytes()
        history = LeaderEpochs.parse(b"0\n%d\n" % len(epochs) + b"".join(b"%d %d\n" % e for e in epochs))
        checkpoint = history.truncate_from_end(segment.next_offset).to_bytes()
        has_txn = (partition / f"{stem}.txnindex").exists()
        if layout == "plain":
            parts = {
                PlainPart.LOG: side(".log"),
                PlainPart.OFFSET_INDEX: side(".index"),
                PlainPart.TIME_INDEX: side(".timeindex"),
                PlainPart.SNAPSHOT: snapshot,
                PlainPart.LEADER_EPOCHS: checkpoint,
            } | ({PlainPart.TXN_INDEX: side(".txnindex")} if has_txn else {})
            for part, data in parts.items():
                put(root / name.key(part), data)
            continue
        data = side(".log")
        stored = list(store_chunks(iter_chunks([data], chunk_size, len(data)), transform))
        indexes, places = store_indexes(
            transform,
            offset=side(".index"),
            timestamp=side(".timeindex"),
            producer_snapshot=snapshot,
            leader_epoch=checkpoint,
            transaction=side(".txnindex") if has_txn else None,
        )
        inside = history.truncate_from_end(segment.next_offset).truncate_from_start(segment.base_offset).entries
        manifest = SegmentManifest(
            transform.index_of(chunk_size, segment.size, [len(chunk) for chunk in stored]),
            places,
            transform.compression,
            encryption,
            RemoteSegmentMetadata(
                name, segment.next_offset - 1, segment.max_timestamp, 1, event_ms, inside, not has_txn
            ),
        )
        put(root / name.key(ChunkedPart.LOG), b"".join(stored))
        put(root / name.key(ChunkedPart.INDEXES), indexes)
        put(root / name.key(ChunkedPart.MANIFEST), manifest.to_bytes())
    return names


def delete_local(partition: Path, *, below: int) -> None:
    """Delete the files of local segments, as a broker's local retention does."""
    for file in partition.iterdir():
        if file.name[:20].isdigit() and int(file.name[:20]) < below:
            file.unlink()


def values(log: kseg.Log, *args, **options) -> list[bytes]:
    """The values that a read gives."""
    return [value for batch in log.read(*args, columns=["value"], **options) for value in batch.column(0).to_pylist()]


class CountingStore:
    """A store that notes what is fetched: (kind of object, position, bytes)."""

    def __init__(self, store) -> None:
        self._store = store
        self.fetched: list[tuple[str, int, int]] = []
        self.threads: set[str] = set()

    def __getattr__(self, name):
        return getattr(self._store, name)

    def read(self, path, limit=None):
        data = self._store.read(path, limit)
        self.fetched.append((path.rpartition(".")[2], 0, len(data)))
        return data

    def open(self, path):
        file = self._store.open(path)
        read_into = file.read_into

        def counted(position, view):
            got = read_into(position, view)
            self.threads.add(threading.current_thread().name)
            self.fetched.append((path.rpartition(".")[2], position, got))
            return got

        file.read_into = counted
        return file
