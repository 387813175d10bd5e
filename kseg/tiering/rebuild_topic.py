"""The metadata topic in the directories of stopped brokers, with partitions that were lost made anew.

A broker that starts without them knows of nothing in the tier, and moves the log starts of tiered topics up to their
first local segments: so what it has to be told must be there before.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from kseg.errors import OptionError
from kseg.log.logdir import open_dir
from kseg.log.metadata import MetaProperties, read_meta_properties
from kseg.log.metadata_image import MetadataImage
from kseg.log.names import METADATA_TOPIC, partition_dir_name
from kseg.log.partition import Log
from kseg.log.writer import append_to, create_log
from kseg.settings.source import SettingsSource
from kseg.storage import LocalStore, open_store
from kseg.tiering.metadata_records import TOPIC
from kseg.types import TopicPartition

PathLike = str | os.PathLike[str]


class Directories:
    """The log directories that were given, and the cluster's metadata where one of them holds it."""

    def __init__(self, paths: Sequence[PathLike]) -> None:
        for path in paths:
            if not isinstance(open_store(path)[0], LocalStore):
                raise OptionError(f"records are written to local directories, not to {os.fspath(path)!r}")
        self._paths = [os.fspath(path) for path in paths]
        self.reopen()
        own = next((log.directory for log in self.logs if log.topic == METADATA_TOPIC), None)
        self.source = SettingsSource(metadata=own)
        self.parents = sorted({str(Path(log.directory).parent) for log in self.logs} | set(map(str, self._roots())))

    def _roots(self) -> Iterable[Path]:
        """Those of the paths that are log directories themselves, be they without partitions."""
        return (Path(path).absolute() for path in self._paths if read_meta_properties(LocalStore(), path) is not None)

    def reopen(self) -> None:
        """Look again at what is there."""
        found = (log for path in self._paths for log in open_dir(path).partitions)
        self.logs = list({log.directory: log for log in found}.values())

    @property
    def image(self) -> MetadataImage | None:
        """The cluster's metadata."""
        return self.source.image

    def replicas(self, number: int) -> list[Log]:
        """The replicas of a partition of the metadata topic that are here."""
        return [log for log in self.logs if log.topic == TOPIC and log.partition == number]

    def plan_lost(self, number: int) -> list[Path]:
        """The directories to be made of a partition that was lost: no replica has any record of it, and all are told.

        Where a replica has records, the others get them from it when the cluster starts.
        """
        topic = None if self.image is None else self.image.topics.get(TOPIC)
        partition = None if topic is None else topic.partitions.get(number)
        here = self.replicas(number)
        if partition is None or any(log.end_offset for log in here):
            return []
        metas = {parent: read_meta_properties(LocalStore(), parent) for parent in self.parents}
        places = []
        for node, directory_id in itertools.zip_longest(partition.replicas, partition.directories):
            mine = [parent for parent, meta in metas.items() if meta is not None and meta.node_id == node]
            own = [parent for parent in mine if _directory_id(metas[parent]) == directory_id]
            if len(own or mine) != 1:
                return []  # the broker's directory was not given, or which of its directories is not known
            places.append(Path((own or mine)[0], partition_dir_name(TopicPartition(TOPIC, number))))
        return [place for place in places if str(place) not in {log.directory for log in here}]

    def make(self, places: Iterable[Path]) -> None:
        """Make empty partitions of the metadata topic."""
        for place in places:
            assert self.image is not None  # which has told of them
            if place.is_dir():  # a run died when it had made the directory
                append_to(place).close()
            else:
                create_log(place, topic_id=self.image.topics[TOPIC].topic_id).close()


def _directory_id(meta: MetaProperties | None) -> str | None:
    return None if meta is None else meta.directory_id
