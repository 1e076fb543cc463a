"""Objects of the user's own that an option names as `package.module:Class`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from dynamic_kafka.errors import ConfigurationError, DynamicKafkaError

__all__ = ["user_object"]


def user_object(option: str, name: str, *, kind: str, methods: Sequence[str], make: Callable[[Any], Any]) -> Any:
    """Make what an option names.

    Args:
        option: The option, for errors.
        name: `package.module:Class`.
        kind: What it has to be, as it reads after "is no".
        methods: What it has to have for that.
        make: Makes it of the class.

    Raises:
        ConfigurationError: If the class cannot be found or made, or lacks a method.
    """
    module_name, _, path = name.partition(":")
    where = f"Option '{option}' = '{name}'"
    try:
        found: Any = importlib.import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
        made = make(found)
    except DynamicKafkaError:
        raise
    except Exception as error:
        raise ConfigurationError(f"{where} could not be made: {type(error).__name__}: {error}") from error
    missing = [method for method in methods if not callable(getattr(made, method, None))]
    if missing:
        raise ConfigurationError(f"{where} is no {kind}: it lacks {', '.join(missing)}")
    return made
