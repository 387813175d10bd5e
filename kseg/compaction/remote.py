"""A tier as the jobs of this package need it: what it holds, who is told of changes, where files are made."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from kseg.errors import OptionError
from kseg.log.logdir import LogDir
from kseg.log.partition import Log
from kseg.log.staging import staging, temporary_staging
from kseg.settings.select import PathLike, Selection
from kseg.storage import LocalStore, open_store
from kseg.tiering.crypto import KeyRing
from kseg.tiering.metadata_topic import read_metadata
from kseg.tiering.metadata_writer import MetadataTopic, NoTopic, StoppedTopic, choose_topic
from kseg.tiering.objects import RetryPolicy, TierObjects, check_remote, open_tier
from kseg.tiering.reading import holds_tier
from kseg.tiering.replacement import Replacer
from kseg.tiering.retirement import GRACE_MS, PartitionTier, sweep
from kseg.tiering.store import TieredStore
from kseg.tiering.tier import Tier, TierPartition
from kseg.tiering.tier_log import TierLog, read_tier_log


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """How a job reaches a tier, and tells a cluster of what it changes there.

    Attributes:
        keys: Files of private keys by id, for encrypted segments; new segments are encrypted for the same keys.
        allow_shared_keys: Take key files that others than their owner can read.
        remote_metadata: Log directories of all brokers that hold `__remote_log_metadata`; by default that of the path.
        remote_metadata_partitions: How many partitions that topic has, where no metadata log tells.
        bootstrap_server: Write the records to this live cluster instead.
        grace_ms: How long objects stay after their segment was retired; 0 deletes those of this run too.
        staging: A directory, of this job alone and outside of any log, for new segments until they are uploaded; by
            default one for temporary files.
    """

    keys: Mapping[str, PathLike] | None = None
    allow_shared_keys: bool = False
    remote_metadata: Sequence[PathLike] = ()
    remote_metadata_partitions: int | None = None
    bootstrap_server: str | None = None
    grace_ms: int = GRACE_MS
    staging: PathLike | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    def key_ring(self) -> KeyRing:
        """The keys, read when they are needed."""
        return KeyRing(self.keys, allow_shared=self.allow_shared_keys)


@dataclass(frozen=True, slots=True)
class TierAccess:
    """A tier that a job changes.

    Attributes:
        tier: To read from.
        objects: To write to.
        places: The partitions that it holds.
        topic: Who is told; nobody, where it is an archive that no cluster knows of.
        is_alone: No local logs were given.
    """

    tier: Tier
    objects: TierObjects
    places: tuple[TierPartition, ...]
    topic: MetadataTopic
    options: RemoteOptions
    now_ms: int
    is_alone: bool

    @property
    def is_archive(self) -> bool:
        """Whether no cluster knows of the tier."""
        return isinstance(self.topic, NoTopic)

    def refusal(self, place: TierPartition, local: Log | None) -> str | None:
        """Why a partition of the tier is not changed, None where it may be."""
        where = place.place
        if self.is_archive:
            if local is not None and _is_named(local, where.topic_id, where.partition):
                return "a cluster's metadata names its segments in the tier: it is no archive"
            return None
        if local is None:
            return "no directory of it was given, and who leads it has to be told of changes in the tier"
        return self.topic.refusal(where.topic_id, where.partition)

    def open(self, place: TierPartition) -> tuple[TierLog, PartitionTier]:
        """A partition as it is now."""
        where = PartitionTier.of(self.objects, place, self.topic)
        known = None if self.is_archive else where.records()
        return read_tier_log(self.tier, place, known), where

    def replacer(self, log: TierLog, where: PartitionTier, reason: str) -> Replacer:
        """What puts new segments in the place of others."""
        return Replacer(log, where, reason=reason, now_ms=self.now_ms, retry=self.options.retry)

    def sweep(self, where: PartitionTier) -> None:
        """Delete the objects of retired segments whose grace period is over, and settle what a dead run left undone.

        What another run has begun to upload is given up at once only where the lock on a stopped cluster's directory
        says that this run is dead: a bucket has no lock.
        """
        grace_ms = self.options.grace_ms
        if isinstance(self.topic, StoppedTopic):
            self.topic.complete(now_ms=self.now_ms)
        pending_ms = grace_ms if isinstance(self.topic, StoppedTopic) else max(grace_ms, GRACE_MS)
        sweep(where, grace_ms=grace_ms, pending_ms=pending_ms, now_ms=self.now_ms)
        if not grace_ms:  # what was announced is given up by the first sweep, and deleted by the second
            sweep(where, grace_ms=grace_ms, pending_ms=pending_ms, now_ms=self.now_ms)

    def staging(self) -> AbstractContextManager[Path]:
        """A folder for files under way; it is gone at the end, and so are those of runs that died in the same place."""
        return temporary_staging() if self.options.staging is None else staging(Path(self.options.staging))


def _is_named(local: Log, topic_id: str, partition: int) -> bool:
    """Whether the metadata topic beside a local log says that the tier holds segments of it."""
    known = read_metadata(LocalStore(), posixpath.dirname(local.directory)).of(topic_id, partition)
    return any(told.is_finished for told in (known or {}).values())


def tier_of(path: PathLike, remote: str | None, *, archive: bool) -> str | None:
    """The URI of the tier that a job is to work on; None where it is asked for local logs alone.

    Raises:
        OptionError: The path is a tier, and nobody said that it is an archive; or an archive was asked for, and there
            is none.
    """
    if remote is not None:
        return check_remote(remote)
    store, directory = open_store(path)
    if isinstance(store, LocalStore) and (store.stat(directory) is None or not holds_tier(store, directory)):
        if archive:
            raise OptionError(f"{os.fspath(path)} is no tier", hint="give the tier's URI with --remote")
        return None
    if not archive:
        raise OptionError(
            f"{os.fspath(path)} is a tier, and a cluster may know of its segments",
            hint="give the brokers' directory and the tier as --remote; or --archive, if no broker will ever read it",
        )
    return check_remote(os.fspath(path))


def open_access(
    uri: str, chosen: Selection, options: RemoteOptions, *, archive: bool, is_alone: bool, now_ms: int
) -> TierAccess:
    """Open a tier for a job over some local logs, or none."""
    if archive and options.bootstrap_server is not None:
        raise OptionError("archive says that no broker needs records, and bootstrap_server names one")
    if options.grace_ms < 0:
        raise OptionError(f"grace_ms is {options.grace_ms}; it must be 0 or more")
    topic = choose_topic(
        chosen,
        options.remote_metadata,
        options.remote_metadata_partitions,
        options.bootstrap_server,
        archive=archive,
    )
    # of its own, and not the one that readers share: what is kept of manifests must not outlive the job
    tier = Tier(uri if "://" in uri else os.path.abspath(uri), options.key_ring(), options.retry)  # noqa: PTH100
    places = tuple(options.retry.run(tier.partitions))
    return TierAccess(tier, open_tier(uri, retry=options.retry), places, topic, options, now_ms, is_alone)


def tiered_dir(path: PathLike, uri: str, options: RemoteOptions, *, is_alone: bool) -> LogDir:
    """The logs of a path and a tier behind it, or of a tier alone."""
    tier = Tier(uri if "://" in uri else os.path.abspath(uri), options.key_ring(), options.retry)  # noqa: PTH100
    if is_alone:
        return LogDir(TieredStore(tier, None), tier.root)
    store, directory = open_store(path)
    return LogDir(TieredStore(tier, store), directory)
