"""Fsck: what a tier holds against what its manifests and the cluster's metadata say that it holds."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

from kseg.errors import FormatError, KsegError, OptionError, StorageError
from kseg.log.logdir import open_dir
from kseg.log.names import METADATA_TOPIC
from kseg.progress import SILENT, Progress
from kseg.runner import run_tasks
from kseg.settings.source import SettingsSource
from kseg.storage import open_store
from kseg.tiering.cleaned import NAME as CLEANED
from kseg.tiering.crypto import KeyRing
from kseg.tiering.fsck_checks import SegmentCheck, check_segment, neighbours
from kseg.tiering.fsck_report import Finding, FsckReport, Kind
from kseg.tiering.layout import COMMIT_PARTS, ChunkedPart, kept_manifest
from kseg.tiering.listing import RemoteObjects, group_objects, read_mark
from kseg.tiering.marks import Mark, is_mark
from kseg.tiering.metadata_records import (
    COPY_STARTED,
    DELETE_FINISHED,
    DELETE_STARTED,
    TOPIC,
    SegmentRecord,
    metadata_partition,
)
from kseg.tiering.metadata_topic import read_metadata
from kseg.tiering.objects import RetryPolicy, StoredObject, TierObjects, open_tier

PathLike = str | os.PathLike[str]
MIN_AGE_MS: Final = 24 * 3_600_000
"""How old an orphan has to be before it may go: an upload under way looks like one."""


class Metadata:
    """What the cluster's metadata says of the tier, as far as the given directories hold it."""

    def __init__(self, directories: Sequence[PathLike], partitions: int | None) -> None:
        self._known: dict[tuple[str, int], dict[str, SegmentRecord]] = {}
        self._numbers: set[int] = set()
        self.partitions = partitions
        for directory in directories:
            store, path = open_store(directory)
            logs = open_dir(directory).partitions
            self._numbers |= {log.partition for log in logs if log.topic == TOPIC}
            for place, segments in read_metadata(store, path).partitions.items():
                self._known.setdefault(place, {}).update(segments)
            if self.partitions is None and any(log.topic == METADATA_TOPIC for log in logs):
                image = SettingsSource(metadata=directory).image
                topic = None if image is None else image.topics.get(TOPIC)
                self.partitions = None if topic is None else len(topic.partitions)
        if not self._numbers:
            raise OptionError(f"no {TOPIC} in {', '.join(os.fspath(place) for place in directories)}")

    def of(self, topic_id: str, partition: int) -> Mapping[str, SegmentRecord] | None:
        """What is said of a partition; None where the directories cannot tell."""
        if self.partitions is not None and metadata_partition(topic_id, partition, self.partitions) in self._numbers:
            return self._known.get((topic_id, partition), {})
        return self._known.get((topic_id, partition))

    def all(self) -> Iterator[SegmentRecord]:
        """Everything that is said."""
        for segments in self._known.values():
            yield from segments.values()


def fsck(
    remote: str,
    *,
    metadata: PathLike | Sequence[PathLike] | None = None,
    remote_metadata_partitions: int | None = None,
    deep: bool = False,
    keys: Mapping[str, PathLike] | None = None,
    allow_shared_keys: bool = False,
    delete_orphans: bool = False,
    retry: RetryPolicy | None = None,
    workers: int | None = None,
    progress: Progress = SILENT,
) -> FsckReport:
    """Check a tier: orphans, missing or short objects, overlaps, gaps, and the metadata topic against the objects.

    Args:
        remote: The tier, as `kseg.tiering.offload` takes it.
        metadata: Log directories that hold `__remote_log_metadata`.
        remote_metadata_partitions: How many partitions that topic has, where no metadata log there tells.
        deep: Read every segment, through encryption and compression, and check every batch and its indexes.
        keys: Files of private keys by id, for encrypted segments.
        allow_shared_keys: Take key files that others can read.
        delete_orphans: Delete orphans that are older than 24 hours by the store's clock, and of which the metadata does
            not say that their upload is under way. Needs `metadata`.

    Raises:
        OptionError: Orphans cannot be told from uploads under way.
        StorageError: The tier cannot be listed.
    """
    began = time.monotonic()
    places = [metadata] if isinstance(metadata, str | os.PathLike) else list(metadata or ())
    known = Metadata(places, remote_metadata_partitions) if places else None
    if delete_orphans and (known is None or known.partitions is None):
        raise OptionError(
            "without the cluster's metadata an orphan cannot be told from an upload under way",
            hint=f"give the directories that hold {TOPIC}, and how many partitions it has",
        )
    tier = open_tier(remote, retry=retry)
    objects = tier.list()
    found_groups, others = group_objects(objects)
    marks, findings = _read_marks(tier, others)
    retired = [*_retired(found_groups, marks, known)]
    unwanted = {found.segment_id for found in retired}
    groups = [group for group in found_groups if group.name.segment_id not in unwanted]
    kept = {original: found for found in others if (original := kept_manifest(found.key)) is not None}
    findings += [
        *retired,
        *_incomplete(groups, known, kept),
        *_rewraps(groups, kept),
        *_strangers(others, found_groups),
    ]
    complete = [group for group in groups if not group.missing]
    ring = KeyRing(keys, allow_shared=allow_shared_keys)
    checks = [
        SegmentCheck(remote, group, ring, deep, tier.retry, before, behind)
        for group, (before, behind) in zip(complete, neighbours(complete), strict=True)
    ]
    progress.begin("fsck", sum(group.bytes for group in complete))
    try:
        weights = [group.bytes for group in complete]
        results = run_tasks(check_segment, checks, workers=workers, progress=progress, weights=weights)
    finally:
        progress.end()
    ends: dict[str, int | None] = {}
    for group, result in zip(complete, results, strict=True):
        if isinstance(result, KsegError):
            kind = _kind_of(result)
            findings.append(_finding(kind, group, str(result)))
        else:
            ends[group.name.segment_id] = result
    if known is not None:
        findings += _against_metadata(groups, known)
    unwanted |= {found.segment_id for found in findings if found.kind in (Kind.ORPHAN, Kind.UNFINISHED)}
    findings += _order([group for group in complete if group.name.segment_id not in unwanted], ends)
    if delete_orphans:
        told = {g.name.segment_id for g in groups if known and known.of(g.name.topic_id, g.name.partition) is not None}
        findings = _delete(tier, findings, {found.key: found for found in objects}, told)
    findings.sort(key=lambda f: (f.topic or "", f.partition or 0, f.offset or 0, f.kind.value, f.text))
    return FsckReport(
        remote,
        len(complete),
        len(objects),
        sum(found.size for found in objects),
        tuple(findings),
        sum(found.bytes for found in findings if found.deleted),
        time.monotonic() - began,
    )


def _kind_of(error: KsegError) -> Kind:
    if isinstance(error, StorageError):
        return Kind.MISSING if error.missing else Kind.UNREAD
    return Kind.SIZE if isinstance(error, FormatError) and "manifest says" in error.message else Kind.DAMAGE


def _finding(kind: Kind, group: RemoteObjects, text: str) -> Finding:
    name = group.name
    keys = tuple(found.key for found in group.parts.values())
    return Finding(kind, name.topic, name.partition, name.start_offset, name.segment_id, text, keys, group.bytes)


def _incomplete(groups: Iterable[RemoteObjects], metadata: Metadata | None, kept: Container[str]) -> Iterator[Finding]:
    for group in groups:
        if not group.missing:
            continue
        parts = ", ".join(part.value for part in group.missing)
        told = None if metadata is None else metadata.of(group.name.topic_id, group.name.partition)
        known = None if told is None else told.get(group.name.segment_id)
        if known is not None and known.state == COPY_STARTED:
            continue  # the metadata tells more of it
        if group.missing == (ChunkedPart.MANIFEST,) and group.key(ChunkedPart.MANIFEST) in kept:
            yield _finding(Kind.MISSING, group, f"no {parts}, but a copy that 'kseg rewrap' kept: run that again")
            continue
        if COMMIT_PARTS[group.layout] in group.missing and (known is None or not known.is_finished):
            yield _finding(Kind.ORPHAN, group, f"an upload that did not end: no {parts}")
        else:
            yield _finding(Kind.MISSING, group, f"no {parts}")


def _read_marks(tier: TierObjects, objects: Iterable[StoredObject]) -> tuple[list[Mark], list[Finding]]:
    """The marks of a tier, and what is wrong with them."""
    marks, findings = [], []
    for found in objects:
        if not is_mark(found.key):
            continue
        try:
            marks.append(read_mark(tier, found))
        except FormatError as error:
            findings.append(Finding(Kind.DAMAGE, None, None, None, None, str(error), (found.key,), found.size))
    return marks, findings


def _retired(groups: Iterable[RemoteObjects], marks: Sequence[Mark], metadata: Metadata | None) -> Iterator[Finding]:
    """Segments that do not count any more, or not yet; their objects go once the grace period is over."""
    marked = {name.segment_id: mark for mark in marks for name in mark.hidden}
    for group in groups:
        told = None if metadata is None else metadata.of(group.name.topic_id, group.name.partition)
        known = None if told is None else told.get(group.name.segment_id)
        mark = marked.get(group.name.segment_id)
        if known is not None and known.state == DELETE_STARTED:
            why = "the metadata says that its deletion was begun" if mark is None else _why(mark)
            yield _finding(Kind.RETIRED, group, why)
        elif mark is not None and (known is None or known.state == DELETE_FINISHED):
            yield _finding(Kind.RETIRED, group, _why(mark))


def _why(mark: Mark) -> str:
    if mark.state == "pending":
        return f"shall replace {len(mark.segments)} others ({mark.reason}), which did not come to its end"
    by = f", replaced by {', '.join(name.stem for name in mark.replaced_by)}" if mark.replaced_by else ""
    return f"retired by {mark.reason}{by}; its objects go after the grace period"


def _rewraps(groups: Iterable[RemoteObjects], kept: Mapping[str, StoredObject]) -> Iterator[Finding]:
    """Manifests that are kept beside their replacements: a run died before it had proved those."""
    for group in groups:
        found = kept.get(group.key(ChunkedPart.MANIFEST)) if group.layout == "chunked" else None
        if found is not None and ChunkedPart.MANIFEST in group.parts:
            finding = _finding(Kind.REWRAP, group, "a rewrap of its data key did not end: run 'kseg rewrap' again")
            yield dataclasses.replace(finding, keys=(found.key,), bytes=found.size)


def _strangers(objects: Iterable[StoredObject], groups: Iterable[RemoteObjects]) -> Iterator[Finding]:
    manifests = {group.key(ChunkedPart.MANIFEST) for group in groups if group.layout == "chunked"}
    for found in objects:
        original = kept_manifest(found.key)
        if is_mark(found.key) or found.key.endswith("/" + CLEANED) or original in manifests:
            continue
        text = f"{found.key} is no object of a segment"
        if original is not None:
            text = f"{found.key} is a manifest that 'kseg rewrap' kept, of a segment that is gone: delete it"
        yield Finding(Kind.STRANGER, None, None, None, None, text, (found.key,), found.size)


def _against_metadata(groups: Sequence[RemoteObjects], metadata: Metadata) -> Iterator[Finding]:
    there = {group.name.segment_id: group for group in groups}
    for group in groups:
        told = metadata.of(group.name.topic_id, group.name.partition)
        if told is None:
            continue
        known = told.get(group.name.segment_id)
        if known is None and not group.missing:
            yield _finding(Kind.ORPHAN, group, "the metadata does not know it")
        elif known is not None and known.state == DELETE_FINISHED:
            yield _finding(Kind.ORPHAN, group, "the metadata says that it was deleted")
        elif known is not None and known.state == COPY_STARTED:
            yield _finding(Kind.UNFINISHED, group, "the metadata says that its copy was begun and did not end")
    for known in metadata.all():
        if known.is_finished and known.name.segment_id not in there:
            name, text = known.name, "the metadata says that it is here, and no object is"
            yield Finding(Kind.MISSING, name.topic, name.partition, name.start_offset, name.segment_id, text)


def _order(groups: Sequence[RemoteObjects], ends: Mapping[str, int | None]) -> Iterator[Finding]:
    """Overlaps and gaps between the complete segments of each partition."""
    before: tuple[object, ...] | None = None
    end: int | None = None
    for group in sorted(groups, key=lambda g: (g.prefix, g.layout, g.name)):
        place = (group.prefix, group.layout, group.name.topic, group.name.topic_id, group.name.partition)
        start, own_end = group.name.start_offset, ends.get(group.name.segment_id)
        if place != before:
            before, end = place, own_end
            continue
        if end is not None and start < end:
            yield _finding(Kind.OVERLAP, group, f"begins before offset {end}, where another segment ends")
        elif end is not None and start > end and group.layout == "chunked":
            yield _finding(Kind.GAP, group, f"offsets {end} to {start - 1} before it are in no segment")
        end = own_end if end is None or own_end is None else max(end, own_end)


def _deletion_order(key: str) -> int:
    """What makes a segment count goes first: what a run that dies leaves is then an upload that did not end."""
    return next((rank for rank, part in enumerate(COMMIT_PARTS.values()) if key.endswith(part.value)), 2)


def _delete(
    tier: TierObjects, findings: Iterable[Finding], objects: Mapping[str, StoredObject], told: Container[str | None]
) -> list[Finding]:
    """Delete the orphans that may go; the object that makes a segment count goes first.

    Args:
        told: Ids of the segments of which the metadata could tell whether their upload is under way.
    """
    now = tier.now_ms()
    done = []
    for found in findings:
        is_old = all(now - objects[key].mtime_ms >= MIN_AGE_MS for key in found.keys)
        if found.kind is Kind.ORPHAN and is_old and found.segment_id in told:
            for key in sorted(found.keys, key=_deletion_order):
                tier.delete(key)
            done.append(dataclasses.replace(found, deleted=True))
        else:
            done.append(found)
    return done
