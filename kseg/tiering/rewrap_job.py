"""Rewrap: rotate the key pair of an encrypted tier, by its manifests alone; data stay as they are."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping

from kseg.errors import FormatError, KsegError, OptionError
from kseg.progress import SILENT, Progress
from kseg.runner import run_tasks
from kseg.tiering.crypto import KeyRing, SegmentCipher
from kseg.tiering.layout import ChunkedPart, kept_manifest
from kseg.tiering.listing import RemoteObjects, group_objects
from kseg.tiering.objects import RetryPolicy, open_tier
from kseg.tiering.rewrap_report import RewrappedSegment, RewrapReport, Status
from kseg.tiering.rewrap_segment import Rewrapped, RewrapTask, rewrap_segment

PathLike = str | os.PathLike[str]


def rewrap(
    remote: str,
    *,
    keys: Mapping[str, PathLike],
    to: str,
    topics: Iterable[str] | None = None,
    allow_shared_keys: bool = False,
    retry: RetryPolicy | None = None,
    dry_run: bool = False,
    workers: int | None = None,
    progress: Progress = SILENT,
) -> RewrapReport:
    """Wrap the data keys of encrypted segments with another key pair: each manifest gets a new data key, nothing else.

    A segment whose data key cannot be unwrapped is reported and left alone. A run that died is continued by the next
    one; a run over what is done changes nothing.

    Args:
        remote: The tier, as `kseg.tiering.offload` takes it; of the layout `chunked`.
        keys: Files of private keys by id: those that manifests name, and the new one.
        to: The id of the new key.
        topics: These only.
        allow_shared_keys: Take key files that others can read.
        dry_run: Unwrap and wrap, write nothing, and report what would be done.
        workers: Threads; by default one per core.

    Raises:
        OptionError: The new key was not given, or is a public one: that could not prove what it wraps. Or there is no
            manifest.
        StorageError: The tier cannot be listed.
    """
    began = time.monotonic()
    ring = KeyRing(keys, allow_shared=allow_shared_keys)
    cipher = SegmentCipher.random()
    if ring.unwrap(ring.wrap(cipher, to)) != cipher:  # before anything is listed
        raise OptionError(f"key {to!r} does not unwrap what it has wrapped")
    tier = open_tier(remote, retry=retry)
    groups, others = group_objects(tier.list())
    kept = {kept_manifest(found.key) for found in others}
    wanted = None if topics is None else frozenset(topics)
    chosen = [
        group
        for group in groups
        if group.layout == "chunked"
        and (wanted is None or group.name.topic in wanted)
        and (
            ChunkedPart.MANIFEST in group.parts
            or (group.missing == (ChunkedPart.MANIFEST,) and group.key(ChunkedPart.MANIFEST) in kept)
        )
    ]
    if not chosen:  # a mistaken URI must not look like a rotation that is done
        raise OptionError(f"{remote} holds no manifest that was asked for", hint="'kseg fsck' lists what there is")
    tasks = [
        RewrapTask(remote, group, ring, to, group.key(ChunkedPart.MANIFEST) in kept, dry_run, tier.retry)
        for group in chosen
    ]
    progress.begin("rewrap", len(tasks))
    try:
        results = run_tasks(rewrap_segment, tasks, workers=workers, progress=progress)
    finally:
        progress.end()
    segments = tuple(_described(group, result) for group, result in zip(chosen, results, strict=True))
    return RewrapReport(
        dry_run,
        remote,
        to,
        segments,
        sum(found.status is Status.REWRAPPED for found in segments),
        sum(found.status is Status.FAILED for found in segments),
        time.monotonic() - began,
    )


def _described(group: RemoteObjects, result: Rewrapped | KsegError) -> RewrappedSegment:
    name = group.name
    place = (name.topic, name.partition, name.start_offset, name.segment_id)
    if isinstance(result, KsegError):
        is_damage = isinstance(result, FormatError)
        return RewrappedSegment(*place, None, Status.FAILED, str(result), is_damage)
    return RewrappedSegment(*place, result.key_id, result.status)
