"""Records that Kafka's own classes wrote, with Kafka's own words for them (made by make_vectors/MakeVectors.java)."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kseg.internal import (
    cluster_metadata,
    consumer_offsets,
    consumer_protocol,
    control_records,
    remote_log_metadata,
    share_group_state,
    transaction_state,
)
from kseg.internal.schema import UNKNOWN_TAGS, Message

COORDINATORS = {module.TOPIC: module.RECORDS for module in (consumer_offsets, transaction_state, share_group_state)}
FRAMED = {module.TOPIC: module.RECORDS for module in (cluster_metadata, remote_log_metadata)}
BARE: dict[str, Message] = {kind.name: kind for _, kind in control_records.TYPES} | {
    kind.name: kind for kind in (consumer_protocol.SUBSCRIPTION, consumer_protocol.ASSIGNMENT)
}


@dataclass(frozen=True)
class Vector:
    """One record: its bytes, and what Kafka's JSON converters say of them."""

    topic: str
    name: str
    version: int
    key: bytes | None
    value: bytes
    key_json: Any
    value_json: Any

    def __str__(self) -> str:
        return f"{self.name}-v{self.version}"


def _vector(line: dict[str, Any]) -> Vector:
    key = base64.b64decode(line["key"]) if "key" in line else None
    value = base64.b64decode(line["value"])
    return Vector(line["topic"], line["name"], line["version"], key, value, line.get("keyJson"), line["valueJson"])


VECTORS = [_vector(line) for line in json.loads((Path(__file__).parent / "vectors.json").read_text(encoding="utf-8"))]


def without_unknown_tags(decoded: Any) -> Any:
    """Take away what Kafka's converters do not print."""
    if isinstance(decoded, dict):
        return {name: without_unknown_tags(value) for name, value in decoded.items() if name != UNKNOWN_TAGS}
    if isinstance(decoded, list):
        return [without_unknown_tags(value) for value in decoded]
    return decoded


def decode(vector: Vector, value: bytes | None = None) -> tuple[Any, Any]:
    """Decode a vector's key and value (or another value in its place) by its tables, with nothing redacted."""
    value = vector.value if value is None else value
    if vector.topic in COORDINATORS:
        decoded = COORDINATORS[vector.topic].decode(vector.key, value)
        return decoded["key"], decoded["value"]
    if vector.topic in FRAMED:
        decoded = FRAMED[vector.topic].decode(None, value, redact=False)
        return None, decoded["value"]
    return None, BARE[vector.name].decode(value, vector.version)
