"""The directories that hold a cluster's groups and topics."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from kseg.errors import OptionError
from kseg.internal import consumer_offsets
from kseg.log.logdir import open_dir
from kseg.log.names import METADATA_TOPIC
from kseg.log.partition import Log
from kseg.settings.source import SettingsSource

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class GroupLogs:
    """All partitions of some log directories, `__consumer_offsets` among them."""

    logs: tuple[Log, ...]

    @property
    def coordinator(self) -> list[Log]:
        """Those of `__consumer_offsets`, all replicas."""
        return [log for log in self.logs if log.topic == consumer_offsets.TOPIC]

    def source(self, metadata: PathLike | None) -> SettingsSource:
        """The metadata of the cluster: what was given, else what the directories themselves hold."""
        own = next((log.directory for log in self.logs if log.topic == METADATA_TOPIC), None)
        return SettingsSource(metadata=own if metadata is None else metadata)


def find_group_logs(path: PathLike | Sequence[PathLike]) -> GroupLogs:
    """Open log directories, or trees of them.

    Raises:
        OptionError: None of them has `__consumer_offsets`.
    """
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    found = {log.directory: log for place in paths for log in open_dir(place).partitions}
    logs = GroupLogs(tuple(found.values()))
    if not logs.coordinator:
        places = ", ".join(os.fspath(place) for place in paths)
        raise OptionError(
            f"no {consumer_offsets.TOPIC} in {places}",
            hint="brokers make it when the first group commits; groups may be on other brokers",
        )
    return logs
