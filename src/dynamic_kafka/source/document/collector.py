"""Python's collector of cycles, held back while a million objects are made. It would walk through all of them many times."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["without_collector"]

P = ParamSpec("P")
T = TypeVar("T")


def without_collector(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function, which then runs without the collector. It should make many objects and no cycles."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        enabled = gc.isenabled()
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            if enabled:
                gc.enable()

    return call
