"""Producer snapshots for segments that begin where none did."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from kseg import durable
from kseg.errors import StorageError
from kseg.log.files import snapshot_offsets
from kseg.log.names import FileKind, segment_file_name
from kseg.log.partition import Log
from kseg.log.visibility import replay_producers


def write_snapshots(log: Log, base_offsets: Iterable[int]) -> None:
    """Write the producers at base offsets that have no snapshot, as a roll does; a broker that tiers cannot do without.

    Each costs a look at the batches behind the snapshot before it. What they say is true before the new segments are in
    their place too, and a broker that starts then deletes snapshots of no segment. After a failure none is left.
    """
    bases = sorted(base_offsets)
    if bases:
        log.refresh()
    begun: list[Path] = []
    try:
        for base in bases:
            there = snapshot_offsets(log.store.list(log.directory))
            if base not in there:
                state = replay_producers(log.segments, there, upto=base)
                begun.append(Path(log.directory) / segment_file_name(base, FileKind.SNAPSHOT))
                durable.publish(begun[-1], state.to_snapshot_bytes())
    except BaseException:
        with suppress(StorageError):  # what failed before is what counts
            for path in begun:
                durable.unlink(path, missing_ok=True)
        raise
