"""The check of what is given to a builder's setter. For `builders` only."""

from __future__ import annotations

from typing import TypeVar

from dynamic_kafka.errors import ConfigurationError

__all__ = ["checked"]

T = TypeVar("T")


def checked(setter: str, value: T, expected: str = "a text", type_: type | tuple[type, ...] = str) -> T:
    """Return what was given to a setter, if it is of the type.

    Raises:
        ConfigurationError: With the setter, what it takes, and the type of the value, which itself may be a secret.
    """
    if not isinstance(value, type_):
        raise ConfigurationError(f"{setter} takes {expected}, but was given a value of the type {type(value).__name__}")
    return value
