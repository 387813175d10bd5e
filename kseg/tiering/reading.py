"""Opening logs that a tier has a part of, or that are in a tier alone."""

from __future__ import annotations

import functools
import logging
import os

from kseg.errors import LogError, StorageError
from kseg.log.logdir import LogDir
from kseg.log.names import parse_partition_dir
from kseg.log.partition import Log, read_options
from kseg.log.select import Path, StoreOpener
from kseg.log.walk import ReadOptions
from kseg.options import SourceOptions
from kseg.storage import Store, checked_path, open_store
from kseg.tiering.crypto import KeyFiles, KeyRing
from kseg.tiering.layout import PLAIN_ROOT
from kseg.tiering.store import TieredStore
from kseg.tiering.tier import is_object_path, open_tier, place_of

logger = logging.getLogger(__name__)

MAX_DEPTH = 4  # of directories that are looked through for a tier
_NO_TIER = 0
_ROOT_LEVELS = 3  # a tier's root, its topics, their partitions


def open_log(
    path: Path,
    *,
    remote: Path | None = None,
    keys: KeyFiles | None = None,
    allow_shared_keys: bool = False,
    max_batch_bytes: int | None = None,
    max_bytes_per_second: float | None = None,
    drop_page_cache: bool = False,
) -> Log:
    """Open one partition for reading: a directory such as `data/orders-0`, by path or URI (s3://, gs://, abfs://, file://).

    With `remote` the segments that a broker moved to the tier are read before the local ones, as one log; where the
    directory is not there, from the tier alone. A partition's own directory in a tier can be opened too.

    Args:
        remote: The tier: a URI or path, with its prefix.
        keys: Private key files by key id, for a tier that is encrypted.
        allow_shared_keys: Take key files that others than their owner can read.
        max_batch_bytes: The largest batch that is read, compressed or not (128 MiB unless told).
        max_bytes_per_second: A limit on what is read.
        drop_page_cache: Tell the kernel to forget what was read, so that a live broker's page cache survives a
            backfill.
    """
    options = read_options(max_batch_bytes, max_bytes_per_second, drop_page_cache=drop_page_cache)
    ring = KeyRing(keys, allow_shared=allow_shared_keys)
    if remote is not None:
        return _open_both(path, checked_path(remote), ring, options)
    store, directory = open_store(path)
    place = place_of(directory)
    if place is None:
        return Log(store, directory, options=options)
    tiered = TieredStore(open_tier(os.fspath(path), ring), None)
    return Log(tiered, tiered.join(tiered.tier.root, str(place.topic_partition)), options=options)


def _open_both(path: Path, remote: str, ring: KeyRing, options: ReadOptions) -> Log:
    local, directory = open_store(path)
    if local.stat(directory) is not None:
        return Log(TieredStore(open_tier(remote, ring), local), directory, options=options)
    name = directory.rstrip("/").rpartition("/")[2]
    if parse_partition_dir(name) is None:
        raise LogError("no such directory, and no name of a partition in the tier either", path=directory)
    tiered = TieredStore(open_tier(remote, ring), None)
    try:
        log = Log(tiered, tiered.join(tiered.tier.root, name), options=options)
    except StorageError as error:
        if not error.missing:
            raise
        raise LogError(f"{name} is neither here nor in the tier {remote}", path=directory) from error
    logger.warning("%s is not there: only what is in the tier is read", directory)
    return log


def open_dir(
    path: Path,
    *,
    remote: Path | None = None,
    keys: KeyFiles | None = None,
    allow_shared_keys: bool = False,
    max_batch_bytes: int | None = None,
    max_bytes_per_second: float | None = None,
    drop_page_cache: bool = False,
) -> LogDir:
    """Open a log directory, a backup of one, a tree of them, or a tier, for reading.

    Args:
        remote: A tier that holds the older segments of the partitions here.
        keys: Private key files by key id, for a tier that is encrypted.
        allow_shared_keys: Take key files that others than their owner can read.
        max_batch_bytes: The largest batch that is read, compressed or not (128 MiB unless told).
        max_bytes_per_second: A limit on what is read, of all partitions together.
        drop_page_cache: Tell the kernel to forget what was read, so that a live broker's page cache survives a
            backfill.
    """
    options = read_options(max_batch_bytes, max_bytes_per_second, drop_page_cache=drop_page_cache)
    ring = KeyRing(keys, allow_shared=allow_shared_keys)
    store, directory = open_tiered_store(path, None if remote is None else checked_path(remote), ring)
    if isinstance(store, TieredStore) and store.tier.store.stat(store.tier.root) is None:
        store.tier.partitions()  # raises where there is no such tier; a prefix may end within a name
    return LogDir(store, directory, options=options)


def open_tiered_store(path: Path, remote: str | None, keys: KeyRing) -> tuple[Store, str]:
    """Choose the store for a path or URI, as `open_store` does, with the tier behind it or as a tier itself."""
    if remote is not None and os.fspath(path) != remote:
        store, directory = open_store(path)
        return TieredStore(open_tier(remote, keys), store), directory
    store, directory = open_store(path)
    if remote is None and not holds_tier(store, directory):
        return store, directory
    tier = open_tier(os.fspath(path), keys)
    return TieredStore(tier, None), tier.root


def open_any_file(path: Path, remote: str | None, keys: KeyRing) -> tuple[Store, str]:
    """The same for the path of one file or of a partition's directory, here or in a tier."""
    store, directory = open_store(path)
    if remote is not None:
        return TieredStore(open_tier(remote, keys), store), directory
    place = place_of(directory)
    if place is not None:
        tiered = TieredStore(open_tier(os.fspath(path), keys), None)
        return tiered, tiered.join(tiered.tier.root, str(place.topic_partition))
    if is_object_path(directory) and place_of(directory.rpartition("/")[0]) is not None:
        return TieredStore(open_tier(os.fspath(path).rpartition("/")[0], keys), None), directory
    return store, directory


def store_opener(options: SourceOptions) -> StoreOpener:
    """How the paths of a read are opened, by its options `remote` and `remoteKeys`."""
    keys = KeyRing(dict(options.remote_keys), allow_shared=options.allow_shared_keys)
    return functools.partial(open_tiered_store, remote=options.remote, keys=keys)


def holds_tier(store: Store, directory: str) -> bool:
    """Whether a directory is a tier: a partition's objects are there or below, and no partition is."""
    return (_levels_above(store, directory, MAX_DEPTH) or _NO_TIER) > _NO_TIER


def _levels_above(store: Store, directory: str, depth: int) -> int | None:
    """How far a directory is above a tier's objects; _NO_TIER where a partition is below too, None where neither is."""
    if place_of(directory) is not None:
        return 1
    if directory.rstrip("/").rpartition("/")[2] == PLAIN_ROOT:
        return 2
    try:
        entries = store.list(directory) if depth else []
    except StorageError:  # whoever lists the directory to read it tells this better
        return None
    names = [entry.name for entry in entries if entry.is_dir and not entry.name.startswith(".")]
    if any(parse_partition_dir(name) is not None for name in names):
        return _NO_TIER
    found = None
    for name in names:
        below = _levels_above(store, store.join(directory, name), depth - 1)
        if below == _NO_TIER:
            return _NO_TIER
        if below is not None:
            found = below + 1
            if found <= _ROOT_LEVELS:  # what is beside a topic of a tier is another: a bucket may have thousands
                break
    return found
