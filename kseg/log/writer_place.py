"""Where a log may be written, and under which topic id."""

from __future__ import annotations

import base64
import contextlib
import os
import threading
import uuid
from pathlib import Path
from typing import Final

from kseg import durable
from kseg.errors import KsegError, LogError, OptionError
from kseg.log.metadata import PartitionMetadata, is_uuid, read_partition_metadata, write_partition_metadata
from kseg.log.names import DirKind, parse_partition_dir
from kseg.storage import LocalStore, checked_path, open_store
from kseg.types import TopicPartition

_ids_lock = threading.Lock()
_RESERVED_IDS: Final = ("A" * 22, "AAAAAAAAAAAAAAAAAAAAAQ")  # Kafka's zero and one uuids


def partition_path(path: str | os.PathLike[str]) -> tuple[Path, TopicPartition]:
    """The local directory of a partition that is to be written, and what its name says.

    Raises:
        OptionError: It is a URI of another store, or no name of a partition that kseg writes.
    """
    text = checked_path(path)
    if "://" in text and not text.startswith("file://"):  # asked before the store, which may ask the network
        raise OptionError(f"a log is written to a local directory, not to {text!r}")
    _, text = open_store(text)
    directory = Path(os.path.abspath(text))  # noqa: PTH100  (resolving would follow links above it, which are fine)
    if directory.is_symlink():  # the lock that guards it is beside the directory itself, not beside the link
        raise OptionError(f"{str(directory)!r} is a symbolic link; give the directory that it points to")
    name = parse_partition_dir(directory.name)
    if name is None or name.kind is not DirKind.CURRENT:
        raise OptionError(f"{directory.name!r} is no name of a partition directory, such as 'orders-0'")
    if name.is_cluster_metadata:
        raise OptionError(f"{directory.name!r} is the cluster's own metadata log, which kseg never writes")
    if directory.name != str(name.topic_partition):  # its checkpoints are those of the partition of that name
        raise OptionError(f"{directory.name!r} is {str(name.topic_partition)!r} to a broker; give it that name")
    return directory, name.topic_partition


def make_log_dir(path: Path) -> None:
    """Make a directory and what is missing above it, durably."""
    if path.is_dir():
        return
    make_log_dir(path.parent)
    durable.make_dir(path, exist_ok=True)
    durable.fsync_dir(path.parent)


def refuse_content(directory: Path) -> None:
    """Refuse a partition directory that holds anything."""
    store = LocalStore()
    if store.stat(str(directory)) is not None and store.list(str(directory)):
        raise LogError("the directory is not empty", path=str(directory), hint="use append_to to write on in it")


def make_partition_dir(directory: Path, topic: str, topic_id: str | None) -> None:
    """Make a partition directory, durably, with the topic's id in it: that comes before any data."""
    with _ids_lock:  # threads that make two partitions of a new topic agree on its id
        topic_id = topic_id or _topic_id_beside(directory, topic) or random_topic_id()
        durable.make_dir(directory, exist_ok=True)
        durable.fsync_dir(directory.parent)
        write_partition_metadata(str(directory), PartitionMetadata(topic_id))


def _topic_id_beside(directory: Path, topic: str) -> str | None:
    """The id of the topic's other partitions in the same log directory: two ids would be two topics of one name."""
    store, ids = LocalStore(), set()
    for entry in store.list(str(directory.parent)):
        name = parse_partition_dir(entry.name) if entry.is_dir else None
        if name is not None and name.kind is DirKind.CURRENT and name.topic_partition.topic == topic:
            with contextlib.suppress(KsegError):  # a broken file says nothing
                found = read_partition_metadata(store, store.join(str(directory.parent), entry.name))
                ids |= {found.topic_id} if found else set()
    return ids.pop() if len(ids) == 1 else None


def check_topic_id(topic_id: str) -> str:
    """Refuse what is no topic id: 16 bytes in base64url, none of those that Kafka keeps for itself."""
    if not isinstance(topic_id, str) or not is_uuid(topic_id) or topic_id in _RESERVED_IDS:
        raise OptionError(f"topic_id {str(topic_id)[:40]!r} is no topic id: 16 bytes in base64url are wanted")
    return topic_id


def random_topic_id() -> str:
    """A new topic id."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):  # Kafka avoids these: tools would take them for options
            return text
