"""Sidecar files for `kseg dump`: what each holds, as rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from typing import Any, Final

from kseg.cli.render import Output
from kseg.cli.values import parse_json
from kseg.errors import IndexFileError, KsegError
from kseg.index.checkpoint import parse_epochs, parse_offsets
from kseg.index.offset import OffsetIndex
from kseg.index.producer import ProducerEntry, parse_snapshot
from kseg.index.time import TimeIndex
from kseg.index.txn import AbortedTxn, TxnIndex
from kseg.log.checkpoints import CheckpointKind
from kseg.log.metadata import MetaProperties, PartitionMetadata
from kseg.log.names import (
    CLEAN_SHUTDOWN_FILE,
    LEADER_EPOCH_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    FileKind,
    parse_segment_file,
)
from kseg.log.properties import parse_properties
from kseg.tables import Column, format_time
from kseg.types import MAX_OFFSET

QUORUM_STATE_FILE: Final = "quorum-state"
_TIERED_EPOCHS: Final = ".leader_epoch_checkpoint"
# The names of copies in a tier: of LocalTieredStorage, and of a broker's cache of remote indexes.
# in a tier, and without the zeros in a broker's remote-log-index-cache
_TIERED_NAME = re.compile(r"(?P<base>[0-9]{1,20})[-_][A-Za-z0-9_-]{22}(?P<kind>\.[a-z_]+)")


@dataclass(frozen=True, slots=True)
class SegmentName:
    """A file of one segment."""

    base_offset: int
    kind: FileKind | str


@dataclass(frozen=True, slots=True)
class Listing:
    """A file's content: rows of named values; `single` where the file is one object and not a list of them."""

    names: tuple[str, ...]
    rows: Iterable[tuple[Any, ...]]
    problems: tuple[KsegError, ...] = ()
    single: bool = False


Reader = Callable[[bytes, int, str], Listing]


def parse_segment_name(name: str) -> SegmentName | None:
    """Take the name of a segment's file apart, in a log directory or in a tier; None where it is no such name."""
    local = parse_segment_file(name)
    if local is not None:
        return SegmentName(local.base_offset, local.kind)
    tiered = _TIERED_NAME.fullmatch(name)
    if tiered is None or (tiered["kind"] not in FORMATS and tiered["kind"] != FileKind.LOG.value):
        return None
    if (base := int(tiered["base"])) > MAX_OFFSET:
        return None
    kinds = {kind.value: kind for kind in FileKind}
    return SegmentName(base, kinds.get(tiered["kind"], tiered["kind"]))


def render(kind: str, data: bytes, path: str, base_offset: int, as_json: bool, out: Output) -> None:
    """Show a file whose name or suffix is `kind`; what is sound of a damaged one is shown first."""
    listing = FORMATS[kind](data, base_offset, path)
    if as_json:
        for row in listing.rows:
            out.json(dict(zip(listing.names, row, strict=True)))
    elif listing.single:
        pairs = [pair for row in listing.rows for pair in zip(listing.names, row, strict=True)]
        out.table([Column("NAME"), Column("VALUE", at_least=16)], [(name, _text(name, value)) for name, value in pairs])
    else:
        rows = ([_text(name, value) for name, value in zip(listing.names, row, strict=True)] for row in listing.rows)
        out.long_table([_column(name) for name in listing.names], rows)
    for problem in listing.problems:
        out.damage(problem)


def _column(name: str) -> Column:
    if name == "topic":
        return Column("TOPIC", at_least=16)
    title = _TITLES.get(name) or re.sub("([A-Z])", r" \1", name).upper()
    return Column(title, right=True, droppable=_DROPPABLE.get(name, 0))


def _text(name: str, value: Any) -> object:
    if name == "timestamp":
        return format_time(value)
    if isinstance(value, list | dict):
        return json.dumps(value, separators=(",", ":"))
    return None if value == -1 and name not in ("partition", "votedId") else value


def _offset_index(data: bytes, base_offset: int, path: str) -> Listing:
    index = OffsetIndex.parse(data, base_offset, path)
    return Listing(("offset", "position"), iter(index), index.parse_problems)


def _time_index(data: bytes, base_offset: int, path: str) -> Listing:
    index = TimeIndex.parse(data, base_offset, path)
    return Listing(("timestamp", "offset"), iter(index), index.parse_problems)


def _txn_index(data: bytes, base_offset: int, path: str) -> Listing:
    index = TxnIndex.parse(data, path)
    return Listing(_camel(AbortedTxn), map(astuple, index), tuple(index.check(base_offset)))


def _snapshot(data: bytes, base_offset: int, path: str) -> Listing:
    return Listing(_camel(ProducerEntry), map(astuple, parse_snapshot(data, path)))


def _offsets(data: bytes, base_offset: int, path: str) -> Listing:
    rows = [(tp.topic, tp.partition, offset) for tp, offset in parse_offsets(data, path).items()]
    return Listing(("topic", "partition", "offset"), rows)


def _epochs(data: bytes, base_offset: int, path: str) -> Listing:
    return Listing(("epoch", "startOffset"), parse_epochs(data, path))


def _partition_metadata(data: bytes, base_offset: int, path: str) -> Listing:
    metadata = PartitionMetadata.parse(data, path)
    return _object({"version": metadata.version, "topicId": metadata.topic_id})


def _meta_properties(data: bytes, base_offset: int, path: str) -> Listing:
    MetaProperties.parse(data, path)  # refuses what a broker would refuse
    return _object(parse_properties(data, path))


def _clean_shutdown(data: bytes, base_offset: int, path: str) -> Listing:
    """A broker asks only whether the file is there, so any content will do."""
    try:
        return _json_object(data, base_offset, path)
    except IndexFileError:
        return _object({"content": data.decode("utf-8", "backslashreplace")})


def _json_object(data: bytes, base_offset: int, path: str) -> Listing:
    try:
        content = parse_json(data)
    except ValueError as error:
        raise IndexFileError(f"not JSON: {str(error)[:80]}", path=path) from None
    if not isinstance(content, dict):
        raise IndexFileError("not a JSON object", path=path)
    return _object(content)


def _object(content: Mapping[str, Any]) -> Listing:
    return Listing(tuple(content), [tuple(content.values())], single=True)


def _camel(kind: type[AbortedTxn | ProducerEntry]) -> tuple[str, ...]:
    return tuple(re.sub("_([a-z])", lambda match: match[1].upper(), field.name) for field in fields(kind))


FORMATS: Final[Mapping[str, Reader]] = {
    FileKind.OFFSET_INDEX.value: _offset_index,
    FileKind.TIME_INDEX.value: _time_index,
    FileKind.TXN_INDEX.value: _txn_index,
    FileKind.SNAPSHOT.value: _snapshot,
    _TIERED_EPOCHS: _epochs,
    **{kind.value: _offsets for kind in CheckpointKind},
    LEADER_EPOCH_FILE: _epochs,
    PARTITION_METADATA_FILE: _partition_metadata,
    META_PROPERTIES_FILE: _meta_properties,
    CLEAN_SHUTDOWN_FILE: _clean_shutdown,
    QUORUM_STATE_FILE: _json_object,
}
_TITLES: Final = {
    "producerId": "PRODUCER",
    "coordinatorEpoch": "COORD",
    "firstOffset": "FIRST",
    "lastOffset": "LAST",
    "lastSequence": "SEQ",
    "offsetDelta": "DELTA",
    "txnFirstOffset": "OPEN TXN",
    "lastStableOffset": "STABLE",
}
_DROPPABLE: Final = {"offsetDelta": 2, "coordinatorEpoch": 1}
KNOWN_FILES: Final = ", ".join(f"*{name}" if name[0] == "." and name[1:].isalpha() else name
                               for name in (FileKind.LOG.value, *FORMATS) if name != _TIERED_EPOCHS)  # fmt: skip
