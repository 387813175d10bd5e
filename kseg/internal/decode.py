"""One door to the records of all internal topics: the topic's name picks the decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kseg.errors import OptionError
from kseg.internal import cluster_metadata, consumer_offsets, remote_log_metadata, share_group_state, transaction_state
from kseg.internal.schema import Fields

_DECODERS: Final[Mapping[str, Callable[[bytes | None, bytes | None], Fields]]] = {
    consumer_offsets.TOPIC: consumer_offsets.decode,
    transaction_state.TOPIC: transaction_state.RECORDS.decode,
    share_group_state.TOPIC: share_group_state.RECORDS.decode,
    cluster_metadata.TOPIC: cluster_metadata.decode,
    remote_log_metadata.TOPIC: remote_log_metadata.decode,
}
_ENCODERS: Final[Mapping[str, Callable[[Mapping[str, Any]], tuple[bytes | None, bytes | None]]]] = {
    consumer_offsets.TOPIC: consumer_offsets.encode,
    transaction_state.TOPIC: transaction_state.RECORDS.encode,
    share_group_state.TOPIC: share_group_state.RECORDS.encode,
    cluster_metadata.TOPIC: cluster_metadata.RECORDS.encode,
    remote_log_metadata.TOPIC: remote_log_metadata.RECORDS.encode,
}

INTERNAL_TOPICS: Final = frozenset(_DECODERS)


def decode_record(topic: str, key: bytes | None, value: bytes | None) -> Fields | None:
    """Decode a record of an internal topic; None for any other topic.

    The result is ready for JSON: `type` (Kafka's name of the record), `typeId`, `version`, `key`, `value`, with the
    fields named as Kafka's own tools name them, and a tagged field at its default left out. A deleted key has `value`
    None. Record types and versions that are not known are kept: `{"type": "unknown", "reason": ..., "key": base64,
    "value": base64}`. Secrets in `__cluster_metadata` are shown as `<redacted>`.

    Records of control batches are not for this function: see `kseg.internal.control_records`.

    Raises:
        CorruptRecordError: The bytes contradict themselves, or end too early; the message has the path of the field.
    """
    decoder = _DECODERS.get(topic)
    return None if decoder is None else decoder(_plain(key), _plain(value))


def encode_record(topic: str, decoded: Mapping[str, Any]) -> tuple[bytes | None, bytes | None]:
    """Undo `decode_record`: the key and the value.

    Fields that have a default may be left out; fields that the version does not have may not be there.

    Raises:
        OptionError: The topic is not internal, a field is missing, wrong, or was redacted.
    """
    encoder = _ENCODERS.get(topic)
    if encoder is None:
        raise OptionError(f"{topic!r} is not an internal topic; these are {', '.join(sorted(INTERNAL_TOPICS))}")
    try:
        return encoder(decoded)
    except (KeyError, TypeError) as error:
        raise OptionError(f"not a decoded record of {topic}: {error}") from None


def coordinator_partition(name: str, partitions: int) -> int:
    """Find the partition of `__consumer_offsets` or `__transaction_state` that holds a group or a transactional id.

    Kafka takes Java's String.hashCode, over UTF-16 units, and Utils.abs, which makes 0 of the smallest int.

    Args:
        name: The group id or transactional id.
        partitions: How many partitions the topic has (50 unless the cluster says otherwise).
    """
    if partitions < 1:
        raise OptionError(f"partitions is {partitions}; it must be 1 or more")
    units = name.encode("utf-16-be", "surrogatepass")
    code = 0
    for i in range(0, len(units), 2):
        code = (31 * code + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >> 31 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


def _plain(data: bytes | bytearray | memoryview | None) -> bytes | None:
    return None if data is None else bytes(data)
