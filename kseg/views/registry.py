"""The views by name: what their rows look like, how their work is divided, and how a part of it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kseg.errors import OptionError
from kseg.internal import cluster_metadata, consumer_offsets
from kseg.log.partition import Log
from kseg.views import batches, groups, offsets, segments, topics, transactions
from kseg.views.places import Unit

RECORDS: Final = "records"  # the default of the option `view`: the records themselves, which are no view


@dataclass(frozen=True, slots=True)
class View:
    """A table about logs.

    Attributes:
        plan: Divides the work over logs into units that can be pickled. One log for each partition is wanted; a
            `LogDir` will do. All but `batches` and `segments` need the internal topics among the logs.
        needs: The internal topic without which there are no rows.
        per_partition: Whether each row is about one of the given logs, so that leaving out topics leaves out their
            rows and nothing else.
    """

    name: str
    schema: pa.Schema
    plan: Callable[[Iterable[Log]], list[Unit]]
    per_partition: bool = False
    needs: str | None = None

    def read(self, unit: Unit) -> Iterator[pa.RecordBatch]:
        """Give the rows of one unit, as record batches of `schema`."""
        return unit.read()


VIEWS: Final[Mapping[str, View]] = {
    view.name: view
    for view in (
        View("batches", batches.SCHEMA, batches.plan, per_partition=True),
        View("segments", segments.SCHEMA, segments.plan, per_partition=True),
        View("offsets", offsets.SCHEMA, offsets.plan, needs=consumer_offsets.TOPIC),
        View("groups", groups.SCHEMA, groups.plan, needs=consumer_offsets.TOPIC),
        View("transactions", transactions.SCHEMA, transactions.plan),
        View("topics", topics.SCHEMA, topics.plan, needs=cluster_metadata.TOPIC),
    )
}


def get_view(name: str) -> View:
    """The view of a name.

    Raises:
        OptionError: There is none.
    """
    view = VIEWS.get(name)
    if view is None:
        raise OptionError(f"unknown view {name!r}; valid values are {', '.join((RECORDS, *VIEWS))}")
    return view


def read_view(name: str, logs: Iterable[Log]) -> Iterator[pa.RecordBatch]:
    """All rows of a view, in this process."""
    view = get_view(name)
    for unit in view.plan(logs):
        yield from view.read(unit)
