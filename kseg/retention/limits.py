"""The limits of retention that hold for a topic, with who said so; or why they are not known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kseg.retention.plan import NO_LIMIT, Limits
from kseg.settings.values import Origin, Refusal, TopicSettings

LIMITS: Final = ("retention.ms", "retention.bytes")
Resolver = Callable[[Sequence[str]], TopicSettings | Refusal]
"""Gives settings that have to be known."""


@dataclass(frozen=True, slots=True)
class KnownLimits:
    """What holds for a partition; a limit of None is not known, and not applied."""

    values: dict[str, object]
    origins: dict[str, str]
    limits: Limits


def resolve_limits(resolve: Resolver) -> KnownLimits | Refusal:
    """cleanup.policy and the two limits; where one was given for this topic, the other may be unknown.

    It does not apply then.
    """
    found = resolve(["cleanup.policy"])
    if isinstance(found, Refusal):
        return found
    values: dict[str, object] = {"cleanup.policy": ",".join(sorted(found.policy))}
    origins = {"cleanup.policy": str(found.origins["cleanup.policy"])}
    deletes = "delete" in found.policy
    if deletes:
        each = {name: resolve([name]) for name in LIMITS}
        known = {name: limit for name, limit in each.items() if isinstance(limit, TopicSettings)}
        is_given = any(Origin.GIVEN in limit.origins.values() for limit in known.values())
        for refusal in each.values():
            if isinstance(refusal, Refusal) and not is_given:
                return refusal
        for name in LIMITS:
            values[name] = known[name][name] if name in known else None
            origins[name] = str(known[name].origins[name]) if name in known else "unknown"
    numbers = [NO_LIMIT if (value := values.get(name)) is None else int(str(value)) for name in LIMITS]
    return KnownLimits(values, origins, Limits(deletes, *numbers))
