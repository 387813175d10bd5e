"""The metadata of a cluster, found among logs."""

from __future__ import annotations

from collections.abc import Iterable

from kseg.internal import cluster_metadata
from kseg.log.metadata_image import MetadataImage
from kseg.log.metadata_log import read_image
from kseg.log.partition import Log
from kseg.views.places import one_each

__all__ = ["find_image", "read_image"]


def find_image(logs: Iterable[Log]) -> MetadataImage | None:
    """The metadata that these logs hold; None where no metadata log is among them."""
    found = one_each(log for log in logs if log.topic == cluster_metadata.TOPIC)
    return read_image(found[0]) if found else None
