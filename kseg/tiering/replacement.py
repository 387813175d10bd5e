"""Put new segments in the place of others in a tier: what compaction and erasure do there.

The new segments are there as complete `.cleaned` files, in a folder outside of any log. They are uploaded under new
ids, with the layout, chunks, compression and encryption key of what they replace, and read back. Until all of them are
proved they are hidden; then, in one step, they count and the old ones are retired (`retirement.py`). So whoever reads
sees the old or the new, and a run that died leaves uploads that nobody sees, which a sweep takes away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kseg.errors import ConflictError, KsegError, LogError
from kseg.index.epoch import EpochStart, LeaderEpochs
from kseg.log.names import FileKind, FileState, segment_file_name
from kseg.log.segment import Segment
from kseg.log.visibility import replay_producers
from kseg.log.writer_place import random_topic_id
from kseg.os_errors import storage_errors
from kseg.runner import run_tasks
from kseg.storage import Entry, LocalStore
from kseg.tiering.layout import ChunkedPart, PlainPart, RemoteName
from kseg.tiering.marks import Mark
from kseg.tiering.metadata_records import SegmentRecord
from kseg.tiering.metadata_writer import NoTopic
from kseg.tiering.objects import RetryPolicy, TierObjects
from kseg.tiering.parts import CheckedLog, SegmentParts
from kseg.tiering.plan import epochs_within
from kseg.tiering.retirement import PartitionTier, hide, retire
from kseg.tiering.segments import RemoteSegment
from kseg.tiering.tier_log import TierLog, read_tier_log, root_of
from kseg.tiering.upload import MadeSegment, TierOptions, Uploaded, UploadTask, upload_files


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Neighbouring segments, and the folder with the `.cleaned` files of the one that shall take their place."""

    old: tuple[RemoteSegment, ...]
    folder: Path

    @property
    def base_offset(self) -> int:
        """Where the new segment begins: where the first of the old ones does."""
        return self.old[0].start_offset

    def path(self, kind: FileKind) -> Path:
        """A file of the new segment."""
        return self.folder / segment_file_name(self.base_offset, kind, FileState.CLEANED)


@dataclass(frozen=True, slots=True)
class Replaced:
    """Segments that were retired, and the one that counts instead."""

    old: tuple[RemoteName, ...]
    new: RemoteName
    stored_bytes: int


class Replacer:
    """Replaces segments of one partition of a tier.

    Args:
        reason: `compaction` or `erase`, for people who look at the tier.
        now_ms: The time of the records and manifests.
    """

    def __init__(self, log: TierLog, where: PartitionTier, *, reason: str, now_ms: int, retry: RetryPolicy) -> None:
        self._log = log
        self._where = where
        self._reason = reason
        self._now_ms = now_ms
        self._retry = retry
        self._root = root_of(log.tier, log.place)

    def replace(self, wave: Sequence[Rewritten], *, spark: Any = None, workers: int | None = None) -> list[Replaced]:
        """Upload all of a wave, prove it, and let it count; or change nothing that anybody sees.

        Raises:
            FormatError: What was rewritten, or was read back of the copy, is damaged.
            StorageError: A file or the tier failed, again and again.
            ConflictError: Somebody else has changed the same segments meanwhile.
        """
        known = self._where.records()
        made = [self._made(item, known) for item in wave]
        records = [found.task.record for found in made]
        old = tuple(segment.name for item in wave for segment in item.old)
        mark = hide(self._where, Mark(self._reason, old, tuple(record.name for record in records)))
        self._where.write([record.started_value() for record in records], self._now_ms)
        results = run_tasks(upload_files, made, spark=spark, workers=workers)
        uploaded = [self._published(result) for result in results]
        self._refuse_changed(old)
        retire(self._where, mark, finished=records, now_ms=self._now_ms)
        return [
            Replaced(tuple(s.name for s in item.old), found.record.name, found.stored_bytes)
            for item, found in zip(wave, uploaded, strict=True)
        ]

    def _made(self, item: Rewritten, known: Mapping[str, SegmentRecord]) -> MadeSegment:
        tier, last = self._log.tier, item.old[-1]
        path = item.path(FileKind.LOG)
        size = path.stat().st_size
        entry = Entry(path.name, size, 0, False)
        segment = Segment(LocalStore(), str(item.folder), item.base_offset, {FileKind.LOG: entry})
        next_base = last.next_offset or self._log.segment(last).next_offset
        builder = CheckedLog(segment, next_base).indexes
        transactions = _read(item.path(FileKind.TXN_INDEX))
        told, latest = known.get(last.name.segment_id), max(s.max_timestamp or -1 for s in item.old)
        record = SegmentRecord(
            last.name.topic,
            last.name.topic_id,
            last.name.partition,
            random_topic_id(),
            item.base_offset,
            next_base - 1,
            builder.max_timestamp if builder.max_timestamp >= 0 else latest,
            -1 if told is None else told.broker_id,
            self._now_ms,
            size,
            self._epochs(item.old, next_base),
            not transactions,
        )
        parts = SegmentParts(
            _read(item.path(FileKind.OFFSET_INDEX)),
            _read(item.path(FileKind.TIME_INDEX)),
            transactions or None,
            self._snapshot(last, next_base),
            LeaderEpochs(tier.leader_epochs(last)).to_bytes() if tier.leader_epochs(last) else b"",
        )
        task = UploadTask(str(item.folder), next_base, record, self._options(last), verify=True)
        return MadeSegment(str(path), parts, task)

    def _epochs(self, old: Sequence[RemoteSegment], next_base: int) -> tuple[EpochStart, ...]:
        """The leader epochs inside what is replaced, from where the history of the last one puts them."""
        history = self._log.tier.leader_epochs(old[-1])
        found = epochs_within(history, old[0].start_offset, next_base)
        if not found:
            entries: dict[int, EpochStart] = {}
            for entry in (entry for segment in old for entry in segment.leader_epochs or ()):
                entries.setdefault(entry.epoch, entry)
            found = tuple(entries.values())
        if not found and not isinstance(self._where.topic, NoTopic):
            raise LogError("no leader epoch is known of the segment", path=old[0].directory)
        return found

    def _snapshot(self, last: RemoteSegment, next_base: int) -> bytes:
        """The producers behind the last of the old segments: rewriting takes none away."""
        if PlainPart.SNAPSHOT in last.sidecars:
            return self._log.tier.read(f"{last.directory}/{last.name.stem}{PlainPart.SNAPSHOT.value}")
        segments = [self._log.segment(s) for s in self._log.current if s.start_offset <= last.start_offset]
        return replay_producers(segments, (), upto=next_base).to_snapshot_bytes()

    def _options(self, old: RemoteSegment) -> TierOptions:
        """How the old segment was stored, so that the new one is stored alike."""
        tier = self._log.tier
        if old.layout == "plain":
            return TierOptions(self._root, "plain", keys=tier.keys, retry=self._retry)
        manifest = tier.manifest(old)
        key_id = None if manifest.encryption is None else manifest.encryption.key_id
        return TierOptions(
            self._root,
            "chunked",
            manifest.chunk_index.original_chunk_size,
            manifest.compression,
            # a private key holds the public one; without it the old segment could not have been read
            None if key_id is None else (key_id, tier.keys.files[key_id]),
            tier.keys,
            retry=self._retry,
        )

    def _published(self, found: Uploaded | KsegError) -> Uploaded:
        """What was uploaded, with its manifest, where it has one, in place and read back."""
        if isinstance(found, KsegError):
            raise found
        if found.manifest is not None:
            objects: TierObjects = self._where.objects
            key = found.record.name.stem + ChunkedPart.MANIFEST.value
            objects.put_bytes(key, found.manifest)
            if objects.read(key) != found.manifest:
                raise LogError("the manifest that was read back is another", path=objects.path(key))
        return found

    def _refuse_changed(self, old: Sequence[RemoteName]) -> None:
        """Refuse to replace what does not count any more: another job was here."""
        known = None if isinstance(self._where.topic, NoTopic) else self._where.records()
        current = {segment.name for segment in read_tier_log(self._log.tier, self._log.place, known).current}
        for name in old:
            if name not in current:
                raise ConflictError(
                    f"segment {name.stem} was replaced or retired by another job meanwhile",
                    path=self._log.place.directory,
                    hint="run one job over a tier at a time, and start this one again",
                )


def _read(path: Path) -> bytes:
    with storage_errors(path):
        return path.read_bytes() if path.exists() else b""
