"""What manifests of an encrypted tier say, for tests of key rotation."""

from __future__ import annotations

import kseg
from kseg.tiering.crypto import KeyRing
from kseg.tiering.manifest import SegmentManifest

SUFFIX = ".kseg-old"


def files(tier):
    return {path.relative_to(tier).as_posix(): path.read_bytes() for path in sorted(tier.rglob("*")) if path.is_file()}


def manifests(tier):
    return sorted(tier.rglob("*.rsm-manifest"))


def key_ids(tier):
    return [SegmentManifest.parse(path.read_bytes()).encryption.key_id for path in manifests(tier)]


def data_keys(tier, keys):
    """Each segment's cipher; a manifest that nobody can unwrap raises."""
    ring = KeyRing(keys)
    return [ring.unwrap(SegmentManifest.parse(path.read_bytes()).encryption) for path in manifests(tier)]


def read(tier, keys):
    return sum(batch.num_rows for log in kseg.open_dir(tier, keys=keys) for batch in log.read())
