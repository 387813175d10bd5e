"""Small files that say what a directory is: partition.metadata, meta.properties, the clean-shutdown marker."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kseg import durable
from kseg.errors import FormatError, LogError
from kseg.log.names import CLEAN_SHUTDOWN_FILE, META_PROPERTIES_FILE, PARTITION_METADATA_FILE
from kseg.log.properties import format_properties, parse_properties
from kseg.storage import LocalStore, Store

_UUID_LENGTH: Final = 22  # 16 bytes in base64url without padding
_ZERO_UUID: Final = "A" * _UUID_LENGTH
_LIMIT: Final = 1 << 20  # far above any true file of these kinds
_INT32 = re.compile(r"[+-]?[0-9]{1,10}")


def is_uuid(text: str) -> bool:
    """True for a Kafka uuid: 16 bytes in base64url."""
    if len(text) != _UUID_LENGTH or not text.isascii():
        return False
    try:
        return len(base64.b64decode(text + "==", altchars=b"-_", validate=True)) == 16
    except binascii.Error:
        return False


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """partition.metadata: the id of the topic that a partition directory belongs to."""

    topic_id: str
    version: int = 0

    @classmethod
    def parse(cls, data: bytes, path: str | None = None) -> PartitionMetadata:
        """Read the file's bytes.

        Raises:
            LogError: The file is malformed, or the id is the zero one.
        """
        values = [re.split(r":\s+", line) for line in data.decode("utf-8", "replace").splitlines()[:2]]
        if len(values) < 2 or any(len(value) != 2 for value in values) or not _INT32.fullmatch(values[0][1]):
            raise LogError("malformed partition metadata", path=path)
        version, topic_id = int(values[0][1]), values[1][1].rstrip("=")
        if version < 0:
            raise LogError(f"version {version} of partition metadata is unknown", path=path)
        if not is_uuid(topic_id) or topic_id == _ZERO_UUID:
            raise LogError(f"{topic_id[:40]!r} is no topic id", path=path)
        return cls(topic_id, version)

    def to_bytes(self) -> bytes:
        """The file's bytes."""
        return f"version: {self.version}\ntopic_id: {self.topic_id}".encode()


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """meta.properties: whose log directory this is. Version 0 calls the node broker.id; other keys are kept."""

    version: int = 1
    node_id: int | None = None
    cluster_id: str | None = None
    directory_id: str | None = None
    others: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: bytes, path: str | None = None) -> MetaProperties:
        """Read the file's bytes.

        Raises:
            LogError: The version is unknown, or a number is malformed.
        """
        try:
            values = parse_properties(data, path)
        except FormatError as error:
            raise LogError(error.message, path=path) from error
        version = _number(values.pop("version", "0"), "version", path)
        if version not in (0, 1):
            raise LogError(f"version {version} of {META_PROPERTIES_FILE} is unknown", path=path)
        node = values.pop("node.id" if version else "broker.id", None)
        node_id = None if node is None else _number(node, "node id", path)
        return cls(version, node_id, values.pop("cluster.id", None), values.pop("directory.id", None), values)

    def to_bytes(self) -> bytes:
        """The file's bytes."""
        node = None if self.node_id is None else str(self.node_id)
        values = {
            "version": str(self.version),
            "node.id" if self.version else "broker.id": node,
            "cluster.id": self.cluster_id,
            "directory.id": self.directory_id,
            **self.others,
        }
        return format_properties({key: value for key, value in values.items() if value is not None})


def _number(text: str, what: str, path: str | None) -> int:
    if not _INT32.fullmatch(text):
        raise LogError(f"{what} {text[:40]!r} is no number", path=path)
    return int(text)


def _read(store: Store, directory: str, name: str) -> tuple[bytes | None, str]:
    path = store.join(directory, name)
    return (None if store.stat(path) is None else store.read(path, _LIMIT)), path


def read_partition_metadata(store: Store, directory: str) -> PartitionMetadata | None:
    """The partition.metadata of a partition directory, None where there is none."""
    data, path = _read(store, directory, PARTITION_METADATA_FILE)
    return None if data is None else PartitionMetadata.parse(data, path)


def write_partition_metadata(directory: str, metadata: PartitionMetadata) -> None:
    """Write partition.metadata durably; Kafka does so before any data."""
    durable.publish(Path(directory, PARTITION_METADATA_FILE), metadata.to_bytes())


def read_meta_properties(store: Store, log_dir: str) -> MetaProperties | None:
    """The meta.properties of a log directory, None where there is none."""
    data, path = _read(store, log_dir, META_PROPERTIES_FILE)
    return None if data is None else MetaProperties.parse(data, path)


def write_meta_properties(log_dir: str, properties: MetaProperties) -> None:
    """Write meta.properties durably."""
    durable.publish(Path(log_dir, META_PROPERTIES_FILE), properties.to_bytes())


def read_clean_shutdown(store: Store, log_dir: str) -> bytes | None:
    """Content of the clean-shutdown marker, None where there is none; that it is there is all that a broker asks."""
    return _read(store, log_dir, CLEAN_SHUTDOWN_FILE)[0]


def remove_clean_shutdown(log_dir: str) -> bytes | None:
    """Take the marker away, durably, before the first change to a log; return what is to be put back.

    One that was being written when the power went is no marker, and goes too.
    """
    content = read_clean_shutdown(LocalStore(), log_dir)
    unfinished = Path(log_dir, CLEAN_SHUTDOWN_FILE + durable.TEMPORARY_SUFFIX)
    if unfinished.exists():
        durable.unlink(unfinished, missing_ok=True)
    if content is not None:
        durable.unlink(Path(log_dir, CLEAN_SHUTDOWN_FILE))
        durable.fsync_dir(log_dir)
    return content


def restore_clean_shutdown(log_dir: str, content: bytes | None) -> None:
    """Put the marker back, durably, as the last step; nothing where there was none."""
    if content is not None:
        durable.publish(Path(log_dir, CLEAN_SHUTDOWN_FILE), content)
