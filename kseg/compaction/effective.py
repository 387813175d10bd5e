"""Which settings hold for a partition that is to be compacted, or why it is left alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from kseg.compaction.config import CleanerConfig
from kseg.errors import OptionError
from kseg.log.partition import Log
from kseg.settings.source import SettingsSource
from kseg.settings.values import Refusal

POLICY: Final = "cleanup.policy"
# what decides which records stay; unknown means refused, unless the topic's settings are given by hand
DECIDING: Final = ("delete.retention.ms", "min.compaction.lag.ms", "producer.id.expiration.ms")
SHAPING: Final = (
    "segment.bytes",
    "segment.index.bytes",
    "index.interval.bytes",
    "min.cleanable.dirty.ratio",
    "max.compaction.lag.ms",
    "max.message.bytes",
)
SETTINGS: Final = (POLICY, *DECIDING, *SHAPING)


def check_given(config: object, settings: Mapping[str, object] | None) -> None:
    """Check settings that were given by hand.

    Raises:
        OptionError: They are no config, or were given twice.
    """
    if config is not None and not isinstance(config, CleanerConfig):
        raise OptionError(f"config is a CleanerConfig, got {type(config).__name__}", hint="or give settings")
    if config is not None and settings:
        raise OptionError("config and settings were given", hint="config has them all; give one of the two")


def effective_config(
    log: Log,
    source: SettingsSource,
    config: CleanerConfig | None,
    *,
    told_where: bool,
) -> CleanerConfig | Refusal:
    """The settings of a log.

    Args:
        config: Settings that were given in one piece: they hold, but for the policy where they do not say it.
        told_where: The caller said from which offset on this very partition is dirty: no policy has to be known then.
    """
    refusal = source.refuse_topic(log.topic)
    if refusal is not None:
        return refusal
    by_hand = config is not None or bool(source.overrides)
    needed = [] if told_where and source.image is None else [POLICY]
    if config is not None:
        needed = [] if config.cleanup_policy is not None else needed
        optional: tuple[str, ...] = ()
    elif by_hand:
        optional = (*DECIDING, *SHAPING)
    else:
        needed, optional = [*needed, *DECIDING], SHAPING
    if POLICY in source.overrides and POLICY not in needed and config is None:
        needed.append(POLICY)
    found = source.resolve_log(log, needed, optional=optional)
    if isinstance(found, Refusal):
        return found
    merged = dataclasses.replace(config or CleanerConfig(), **_fields(found))
    if merged.cleanup_policy is not None and "compact" not in merged.policies:
        reason = f"its cleanup.policy is {merged.cleanup_policy or 'empty'}, not compact"
        return Refusal(log.topic, reason, is_usual=source.topics is None)  # where it was named, somebody is mistaken
    return merged


def _fields(settings: Mapping[str, object]) -> dict[str, Any]:
    """Settings as the fields of a CleanerConfig."""
    fields: dict[str, Any] = {name.replace(".", "_"): value for name, value in settings.items() if name != POLICY}
    if POLICY in settings:
        policies = settings[POLICY]
        fields["cleanup_policy"] = ",".join(policies) if isinstance(policies, tuple) else str(policies)
    return fields
