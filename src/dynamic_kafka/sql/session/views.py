"""The temporary views of a session: whose they are, and one lock for all who make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from threading import RLock
from typing import Any, TypeVar, cast
from weakref import ReferenceType, WeakKeyDictionary

from pyspark.sql import SparkSession

__all__ = ["lock_of", "one_at_a_time", "owner", "owners"]

M = TypeVar("M", bound=Callable[..., Any])

_made_by: WeakKeyDictionary[SparkSession, dict[str, ReferenceType[Any]]] = WeakKeyDictionary()
_locks: WeakKeyDictionary[SparkSession, Any] = WeakKeyDictionary()


def lock_of(spark: SparkSession) -> Any:
    """Return the lock of a session: a query makes the temporary views that it reads, and they belong to the session."""
    return _locks.setdefault(spark, RLock())


def one_at_a_time(method: M) -> M:
    """Let other threads wait that make temporary views of the same session, which the object has the `lock` of."""

    @wraps(method)
    def alone(this: Any, /, *args: Any, **names: Any) -> Any:
        with this.lock:
            return method(this, *args, **names)

    return cast("M", alone)


def owners(spark: SparkSession) -> dict[str, ReferenceType[Any]]:
    """Return who made the temporary views of a session, by their names."""
    return _made_by.setdefault(spark, {})


def owner(known: Mapping[str, ReferenceType[Any]], key: str) -> Any:
    """Return who made a temporary view, None if nobody did or is gone."""
    return known[key]() if key in known else None
