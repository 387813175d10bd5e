"""Read a cluster's metadata from `__cluster_metadata`: the newest complete snapshot, then the log behind it."""

from __future__ import annotations

import logging
from typing import Final

from kseg.errors import FormatError, KsegError, LogError
from kseg.internal import cluster_metadata
from kseg.log.metadata_image import MetadataImage
from kseg.log.names import SnapshotFile, parse_snapshot_file
from kseg.log.partition import Log
from kseg.log.replay import Event, Marker, iter_events, iter_file_events
from kseg.log.walk import BatchWalker
from kseg.native import table as t

logger = logging.getLogger(__name__)

_SNAPSHOT_FOOTER: Final = 4


def read_image(log: Log) -> MetadataImage:
    """Replay a metadata log to its end; records of a transaction that has not ended there do not count.

    Raises:
        LogError: The log does not reach back to the start or to a complete snapshot.
        FormatError: The log is damaged, or contradicts itself.
    """
    image = _from_newest_snapshot(log)
    if log.start_offset > image.end_offset:
        raise LogError(
            f"metadata of offsets {image.end_offset} to {log.start_offset - 1} is missing", path=log.directory
        )
    for event in iter_events(log, image.end_offset):
        _replay(image, event, log.directory)
    if image.unknown:
        reason = image.unknown[0]["reason"]
        logger.warning("%d metadata records are not known, the first for its %s", len(image.unknown), reason)
    return image


def _from_newest_snapshot(log: Log) -> MetadataImage:
    named = [(entry.name, parse_snapshot_file(entry.name)) for entry in log.store.list(log.directory)]
    complete = [(name, snapshot) for name, snapshot in named if snapshot is not None and not snapshot.suffix]
    for name, snapshot in sorted(complete, key=lambda item: (item[1].end_offset, item[1].epoch), reverse=True):
        path = log.store.join(log.directory, name)
        try:
            return _read_snapshot(log, path, snapshot)
        except FormatError as error:  # an older one and a longer piece of the log say the same
            logger.warning("%s; an older snapshot is tried", error)
    return MetadataImage()


def _read_snapshot(log: Log, path: str, snapshot: SnapshotFile) -> MetadataImage:
    image = MetadataImage()
    last_marker = -1
    with log.store.open(path) as file:
        walker = BatchWalker(file, log.options, check=True)
        for chunk, events in iter_file_events(walker, path, log.options.max_batch_bytes):
            last_marker = int(chunk.table[t.MARKER_TYPE, chunk.rows - 1])
            for event in events:
                _replay(image, event, path)
    if last_marker != _SNAPSHOT_FOOTER:
        raise FormatError("the snapshot has no footer: it is not complete", path=path)
    image.end_offset = snapshot.end_offset  # its own records are numbered from 0
    return image


def _replay(image: MetadataImage, event: Event, path: str) -> None:
    if isinstance(event, Marker):  # no transactions of producers here
        return
    columns = (event.column(name).to_pylist() for name in ("offset", "key", "value"))
    for offset, key, value in zip(*columns, strict=True):
        try:
            image.replay(cluster_metadata.decode(key, value), offset)
        except KsegError as error:
            raise error.with_context(path=path, offset=offset) from None
