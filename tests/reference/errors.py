"""The errors of the twins."""

from __future__ import annotations


class RejectedError(ValueError):
    """The bytes break a rule of the format; the text says which."""


class GreyError(RejectedError):
    """The bytes break a rule, but Kafka's readers let them pass, or fail on them, by accident: either is fine."""
