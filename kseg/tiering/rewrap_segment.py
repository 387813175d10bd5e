"""Wrap the data key of one segment anew: only its manifest is written.

| step                                                                      | a run that dies in it leaves           |
|---------------------------------------------------------------------------|----------------------------------------|
| 1 unwrap the data key, wrap it with the new key, unwrap that              | all as it was                          |
| 2 copy the manifest to `<manifest>.kseg-old`, and read the copy back      | the old manifest, and perhaps its copy |
| 3 replace the manifest                                                    | the old or the new one, and the copy   |
| 4 read it back, and unwrap its data key; else put the old manifest back   | the new one, and the copy              |
| 5 delete the copy                                                         | the new one                            |

The next run goes on from any of these. A store whose writes are not atomic may lose the manifest in step 3: then the
copy is put back first.
"""

from __future__ import annotations

from dataclasses import dataclass

from kseg.errors import FormatError, KsegError, StorageError
from kseg.tiering.crypto import KeyRing, SegmentCipher
from kseg.tiering.layout import KEPT_SUFFIX, ChunkedPart
from kseg.tiering.listing import RemoteObjects
from kseg.tiering.manifest import SegmentManifest, replace_data_key
from kseg.tiering.objects import RetryPolicy, TierObjects, open_tier
from kseg.tiering.rewrap_report import Status


@dataclass(frozen=True, slots=True)
class RewrapTask:
    """A segment whose data key is to be wrapped with the key `to`; `kept`: an earlier run left a copy."""

    remote: str
    group: RemoteObjects
    keys: KeyRing
    to: str
    kept: bool
    dry_run: bool
    retry: RetryPolicy


@dataclass(frozen=True, slots=True)
class Rewrapped:
    """What became of a segment's data key, and what had wrapped it before."""

    status: Status
    key_id: str | None


def rewrap_segment(task: RewrapTask) -> Rewrapped:
    """Wrap the data key anew.

    Raises:
        KsegError: It cannot be unwrapped, or the manifest is broken, or the tier failed; the manifest is as it was.
    """
    tier = open_tier(task.remote, retry=task.retry)
    key = task.group.key(ChunkedPart.MANIFEST)
    path, copy = tier.path(key), key + KEPT_SUFFIX
    try:
        data = _read(tier, task, key, copy)
    except StorageError as error:
        if not error.missing:
            raise
        return Rewrapped(Status.GONE, None)
    encryption = SegmentManifest.parse(data, path).encryption
    if encryption is None:
        return Rewrapped(Status.PLAIN, None)
    cipher = task.keys.unwrap(encryption, path)
    if encryption.key_id == task.to:
        if task.kept and not task.dry_run:
            _check_copy(tier, task, copy, cipher)
            tier.delete(copy)
        return Rewrapped(Status.CURRENT, encryption.key_id)
    wrapped = task.keys.wrap(cipher, task.to)
    changed = replace_data_key(data, wrapped, path)
    if task.keys.unwrap(wrapped, path) != cipher:
        raise FormatError("the data key does not come back from its new wrapping", path=path)
    if not task.dry_run and not _replace(tier, task, data, changed, cipher):
        return Rewrapped(Status.GONE, encryption.key_id)
    return Rewrapped(Status.REWRAPPED, encryption.key_id)


def _read(tier: TierObjects, task: RewrapTask, key: str, copy: str) -> bytes:
    """The manifest; where it was lost or torn when it was replaced, its copy, put back in its place."""
    try:
        data = tier.read(key)
        SegmentManifest.parse(data, tier.path(key))
        return data
    except (FormatError, StorageError) as error:
        if not task.kept or (isinstance(error, StorageError) and not error.missing):
            raise
    data = tier.read(copy)
    SegmentManifest.parse(data, tier.path(copy))
    if not task.dry_run:
        tier.put_bytes(key, data)
    return data


def _check_copy(tier: TierObjects, task: RewrapTask, copy: str, cipher: SegmentCipher) -> None:
    """Refuse to drop a copy that tells another data key than the manifest does."""
    kept = SegmentManifest.parse(tier.read(copy), tier.path(copy)).encryption
    if kept is None or kept.aad != cipher.aad or task.keys.unwrap(kept, tier.path(copy)) != cipher:
        raise FormatError("the kept manifest tells another data key than the manifest", path=tier.path(copy))


def _replace(tier: TierObjects, task: RewrapTask, data: bytes, changed: bytes, cipher: SegmentCipher) -> bool:
    """Steps 2 to 5; False where the segment was deleted by somebody else meanwhile."""
    key = task.group.key(ChunkedPart.MANIFEST)
    copy = key + KEPT_SUFFIX
    tier.put_bytes(copy, data)
    if tier.read(copy) != data:
        raise StorageError("the copy of the manifest that was read back is another", path=tier.path(copy))
    tier.put_bytes(key, changed)
    try:
        _prove(tier, task, key, changed, cipher)
    except KsegError:
        tier.put_bytes(key, data)
        raise
    is_here = all(tier.stat(task.group.key(part)) is not None for part in (ChunkedPart.LOG, ChunkedPart.INDEXES))
    if not is_here:  # a manifest alone would promise a segment
        tier.delete(key)
    tier.delete(copy)
    return is_here


def _prove(tier: TierObjects, task: RewrapTask, key: str, expected: bytes, cipher: SegmentCipher) -> None:
    data = tier.read(key)
    encryption = SegmentManifest.parse(data, tier.path(key)).encryption
    if data != expected or encryption is None or task.keys.unwrap(encryption, tier.path(key)) != cipher:
        raise StorageError("the manifest that was read back is another; the old one is back", path=tier.path(key))
