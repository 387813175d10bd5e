"""Where a topic's settings come from, and who wins.

As in Kafka, from the strongest to the weakest:

| origin              | said by                                                             |
|---------------------|---------------------------------------------------------------------|
| `given`             | flags or arguments, for topics that were named                      |
| `topic`             | the metadata log: the topic's own settings                          |
| `broker`            | the metadata log: settings of the broker whose directory it is      |
| `cluster`           | the metadata log: settings for all brokers                          |
| `server.properties` | the broker's file                                                   |
| `default`           | Kafka, where the broker's file was given and is silent              |
| `assumed`           | Kafka's default too, where nothing was asked that could know better |

Nothing is guessed: a value for which a stronger source was not given is unknown, and what needs it is refused. Only
settings that a job calls optional, because they change how and not what is kept, are then `assumed`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol

from kseg.errors import LogError, OptionError
from kseg.log.logdir import LogDir, open_dir
from kseg.log.metadata import MetaProperties, read_meta_properties
from kseg.log.metadata_image import CLUSTER_DEFAULT, MetadataImage
from kseg.log.names import METADATA_TOPIC
from kseg.log.partition import Log
from kseg.log.properties import parse_properties
from kseg.os_errors import storage_errors
from kseg.settings.definitions import (
    BROKER_ONLY,
    DEFINITIONS,
    Definition,
    SettingValue,
    parse_broker_setting,
    parse_setting,
)
from kseg.settings.values import Origin, Refusal, Setting, TopicSettings
from kseg.storage import Store
from kseg.types import TopicPartition
from kseg.views.metadata_log import find_image

PathLike = str | os.PathLike[str]
INTERNAL_PREFIX: Final = "__"
MAX_PROPERTIES_BYTES: Final = 16 << 20


class Place(Protocol):
    """One copy of a partition: a log, or where one should be."""

    @property
    def topic(self) -> str:
        """Its topic."""

    @property
    def partition(self) -> int:
        """Its number."""

    @property
    def store(self) -> Store:
        """Where the directory is."""

    @property
    def directory(self) -> str:
        """Its directory."""


class _Unknown(Exception):
    """A setting is not known; the text says what would tell."""


class SettingsSource:
    """What was given to tell topics' settings by: a metadata log, a broker's file, values for named topics.

    Args:
        metadata: A log directory that holds `__cluster_metadata-0`, or that directory itself.
        server_properties: The configuration file of the broker whose directories these are.
        overrides: Values by Kafka's topic names; they hold for `topics`, which have to be named then.
        topics: The topics that were asked for; None: all but internal ones.
    """

    def __init__(
        self,
        *,
        metadata: PathLike | None = None,
        server_properties: PathLike | None = None,
        overrides: Mapping[str, object] | None = None,
        topics: Iterable[str] | None = None,
    ) -> None:
        self.topics = None if topics is None else frozenset(topics)
        self.overrides = {name: parse_setting(name, value) for name, value in (overrides or {}).items()}
        if self.overrides and self.topics is None:
            names = ", ".join(self.overrides)
            raise OptionError(f"{names} was given for no topic", hint="name the topics that it is to hold for")
        self.image: MetadataImage | None = None
        self._cluster_id: str | None = None
        if metadata is not None:
            self._read_metadata(metadata)
        self._file = None if server_properties is None else _read_properties(server_properties)

    def _read_metadata(self, path: PathLike) -> None:
        directory = open_dir(path)
        self.image = find_image(directory.partitions)
        if self.image is None:
            raise OptionError(f"no {METADATA_TOPIC} in {os.fspath(path)}")
        log = next(log for log in directory.partitions if log.topic == METADATA_TOPIC)
        meta = _meta_of(log)
        self._cluster_id = None if meta is None else meta.cluster_id

    def refuse_topic(self, topic: str) -> Refusal | None:
        """Why a topic is not touched whatever its settings: it was not asked for, or is internal and was not named."""
        if topic == METADATA_TOPIC:
            return Refusal(topic, "the metadata log is kept by raft alone", is_usual=self.topics is None)
        if self.topics is not None:
            return None if topic in self.topics else Refusal(topic, "it was not asked for")
        if topic.startswith(INTERNAL_PREFIX):
            return Refusal(topic, "an internal topic is touched only where it is named", is_usual=True)
        return None

    def resolve_log(self, log: Log, names: Iterable[str], *, optional: Iterable[str] = ()) -> TopicSettings | Refusal:
        """The settings of a log's topic on the broker whose directory holds it, or why they are not known.

        The directory has to be of the cluster, the topic and the broker that the sources speak of, as far as its
        files tell.

        Args:
            names: Settings that have to be known.
            optional: Settings for which Kafka's default is good enough where they are not known.
        """
        refusal = self.refuse_topic(log.topic) or self.refuse_other(log)
        if refusal is not None:
            return refusal
        meta = _meta_of(log)
        return self.resolve(log.topic, names, optional=optional, node_id=None if meta is None else meta.node_id)

    def refuse_cluster(self, place: Place) -> Refusal | None:
        """Why the sources do not speak of a place: it is another cluster's, as far as its files tell."""
        meta = _meta_of(place)
        cluster_id = None if meta is None else meta.cluster_id
        if self._cluster_id is not None and cluster_id is not None and cluster_id != self._cluster_id:
            return Refusal(place.topic, f"it belongs to cluster {cluster_id}, and the metadata to {self._cluster_id}")
        return None

    def refuse_other(self, log: Log) -> Refusal | None:
        """Why the sources do not speak of a log: its cluster, topic or broker is another one, as far as files tell."""
        refusal = self.refuse_cluster(log)
        if refusal is not None:
            return refusal
        known = None if self.image is None else self.image.topics.get(log.topic)
        if known is not None and log.topic_id is not None and log.topic_id != known.topic_id:
            return Refusal(
                log.topic, f"its id is {log.topic_id}, and that of the topic in the metadata {known.topic_id}"
            )
        meta = _meta_of(log)
        node_id = None if meta is None else meta.node_id
        if self._file_node_id is not None and node_id is not None and node_id != self._file_node_id:
            return Refusal(log.topic, f"it is on broker {node_id}, and server.properties is of {self._file_node_id}")
        return None

    def resolve(
        self, topic: str, names: Iterable[str], *, optional: Iterable[str] = (), node_id: int | None = None
    ) -> TopicSettings | Refusal:
        """The settings of a topic, or why they are not known (see `resolve_log`)."""
        found = {}
        for name in names:
            try:
                found[name] = self._setting(topic, DEFINITIONS[name], node_id)
            except _Unknown as error:
                return Refusal(topic, str(error))
        for name in optional:
            try:
                found[name] = self._setting(topic, DEFINITIONS[name], node_id)
            except _Unknown:
                found[name] = Setting(DEFINITIONS[name].default, Origin.ASSUMED)
        return TopicSettings(topic, found)

    def _setting(self, topic: str, definition: Definition, node_id: int | None) -> Setting:
        if definition.name in self.overrides and topic in (self.topics or ()):
            return Setting(self.overrides[definition.name], Origin.GIVEN)
        flag = definition.flag
        if self.image is None:
            if definition.name not in BROKER_ONLY:
                raise _Unknown(f"{definition.name} is not known: give the metadata log, or {flag} for named topics")
        elif (found := self._from_metadata(topic, definition, node_id)) is not None:
            return found
        if not definition.broker:
            return Setting(definition.default, Origin.DEFAULT)
        if self._file is None:
            raise _Unknown(
                f"{definition.name} is set neither for the topic nor for the cluster: "
                f"give the broker's server.properties, or {flag} for named topics"
            )
        found = _from_broker(self._file, definition, Origin.FILE, topic)
        return Setting(definition.default, Origin.DEFAULT) if found is None else found

    def _from_metadata(self, topic: str, definition: Definition, node_id: int | None) -> Setting | None:
        assert self.image is not None
        if topic not in self.image.topics:
            raise _Unknown("the metadata log knows no such topic")
        own = self.image.topic_configs(topic)
        for name in (*definition.topic, definition.name):
            if name in own and definition.name not in BROKER_ONLY:
                return Setting(_checked(topic, definition, own[name]), Origin.TOPIC)
        node_id = self._file_node_id if node_id is None else node_id
        if node_id is not None:
            broker = self.image.configs.get(("broker", str(node_id)), {})
            if (found := _from_broker(broker, definition, Origin.BROKER, topic)) is not None:
                return found
        elif self._is_set_for_some_broker(definition):
            raise _Unknown(
                f"{definition.name} is set for single brokers, and no meta.properties tells which one this is"
            )
        return _from_broker(self.image.configs.get(CLUSTER_DEFAULT, {}), definition, Origin.CLUSTER, topic)

    def _is_set_for_some_broker(self, definition: Definition) -> bool:
        assert self.image is not None
        names = {name for name, _ in definition.broker}
        brokers = (item for item in self.image.configs.items() if item[0][0] == "broker" and item[0] != CLUSTER_DEFAULT)
        return any(names & settings.keys() for _, settings in brokers)

    @property
    def _file_node_id(self) -> int | None:
        text = None if self._file is None else self._file.get("node.id", self._file.get("broker.id"))
        return int(text) if text is not None and text.strip().isdecimal() else None

    def replicas_of(self, tp: TopicPartition) -> tuple[int, ...] | None:
        """The brokers that hold a partition, None where no metadata tells."""
        topic = None if self.image is None else self.image.topics.get(tp.topic)
        partition = None if topic is None else topic.partitions.get(tp.partition)
        return None if partition is None else partition.replicas

    def replicas_not_among(self, tp: TopicPartition, logs: Iterable[Place]) -> tuple[int, ...]:
        """The brokers that hold a partition and of which no directory was given; none where no metadata tells.

        A directory without meta.properties stands for one broker that is not known by name.
        """
        metas = [_meta_of(log) for log in logs if (log.topic, log.partition) == (tp.topic, tp.partition)]
        nodes = {meta.node_id for meta in metas if meta is not None}
        nameless = sum(meta is None or meta.node_id is None for meta in metas)
        missing = tuple(node for node in self.replicas_of(tp) or () if node not in nodes)
        return missing if len(missing) > nameless else ()

    def check_replicas(self, tp: TopicPartition, logs: Iterable[Place], *, this_replica_only: bool) -> Refusal | None:
        """Refuse a change of what is stored that other replicas would not follow, or would overrule."""
        missing = self.replicas_not_among(tp, logs)
        if not missing or this_replica_only:
            return None
        brokers = ", ".join(str(node) for node in missing)
        return Refusal(
            str(tp),
            f"broker{'s' if len(missing) > 1 else ''} {brokers} hold it too: "
            "give their directories as well, or ask for this replica only",
        )


def _from_broker(settings: Mapping[str, str], definition: Definition, origin: Origin, topic: str) -> Setting | None:
    for name, unit in definition.broker:
        if name in settings:
            try:
                return Setting(parse_broker_setting(definition, name, unit, settings[name]), origin)
            except OptionError as error:
                raise _Unknown(f"{error} ({origin})") from None
    return None


def _checked(topic: str, definition: Definition, text: str) -> SettingValue:
    try:
        return parse_setting(definition.name, text)
    except OptionError as error:
        raise _Unknown(f"{error} (set for the topic)") from None


def _meta_of(log: Place) -> MetaProperties | None:
    parent = log.directory.rstrip("/").rpartition("/")[0]
    try:
        return read_meta_properties(log.store, parent)
    except LogError:  # as good as none: it tells no broker and no cluster
        return None


def _read_properties(path: PathLike) -> dict[str, str]:
    with storage_errors(path):
        data = Path(path).read_bytes()
    if len(data) > MAX_PROPERTIES_BYTES:
        raise OptionError(f"{len(data)} bytes are too many for a properties file", path=os.fspath(path))
    return parse_properties(data, os.fspath(path))


def named_topic(directory: LogDir) -> str | None:
    """The topic that a path names by itself, where it is one partition's directory; None for a log directory."""
    logs = directory.partitions
    return logs[0].topic if len(logs) == 1 and logs[0].directory == directory.path else None
