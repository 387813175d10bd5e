"""Which other brokers hold a replica: what one replica loses alone, its leader elsewhere overrules."""

from __future__ import annotations

from collections.abc import Iterable

from kseg.errors import OptionError
from kseg.log.logdir import open_dir
from kseg.types import TopicPartition
from kseg.views.metadata_log import find_image


def check_replicas(metadata: str | None, partitions: Iterable[TopicPartition], *, this_replica_only: bool) -> list[str]:
    """Refuse to change one of several replicas unless that is what is wanted; return a note for each that has others.

    Args:
        metadata: A directory that holds the cluster's metadata log; None: not known, so not asked.

    Raises:
        OptionError: There are other replicas, or no metadata is there.
    """
    if metadata is None:
        return []
    image = find_image(open_dir(metadata).partitions)
    if image is None:
        raise OptionError(f"no cluster metadata in {metadata}", hint="give the directory with __cluster_metadata-0")
    notes = []
    for tp in partitions:
        topic = image.topics.get(tp.topic)
        found = None if topic is None else topic.partitions.get(tp.partition)
        if found is not None and len(found.replicas) > 1:
            brokers = ", ".join(str(broker) for broker in found.replicas)
            notes.append(f"{tp} has replicas on brokers {brokers}: only the one given here is changed")
    if notes and not this_replica_only:
        raise OptionError(
            notes[0].replace("only the one given here is changed", "a leader elsewhere would overrule the change"),
            hint="use --this-replica-only to change this one all the same",
        )
    return notes
