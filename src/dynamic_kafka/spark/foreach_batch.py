"""Which batch of which stream a batch write belongs to, by what Spark tells its tasks. Pure.

1. The thread that calls `foreachBatch` passes on the query's id, the run's id and the batch's number. They identify the
   write, with `sink.name`: a restart keeps the query's id and the batch's number, and has another run.
2. A thread that the function starts passes on nothing of it, and Spark Connect has no such thread. But the DataFrame of
   `foreachBatch` belongs to a session that Spark makes for each run of a stream. A write in such a session needs `txnAppId`
   and `txnVersion`. The session stands for the run.
3. Any other write is one of a batch job: without `txnAppId` it is a new write each time. This is also how a write looks that
   such a thread makes with a DataFrame of another session.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sink.log.identity import Identity
from dynamic_kafka.sink.settings import SinkSettings

__all__ = ["identity_and_run"]

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_SWITCHED_OFF = ("spark.sql.cbo.enabled", "spark.sql.requireAllClusterKeysForDistribution")
"""The settings that every version of Spark switches off in the session of a stream. A task gets the settings that were set.
Both are off by default. Users may switch off one of them, so only both together show such a session."""
_SESSION = re.compile(rf"(?:spark-session-|_Session_)({_UUID})")


def identity_and_run(
    settings: SinkSettings, local_property: Callable[[str], str | None]
) -> tuple[Identity | None, str]:
    """Return the identity of a batch write that is exactly once, and the run of the stream that it belongs to.

    Args:
        settings: The settings.
        local_property: Returns a local property of the task; None if it is not set.

    Returns:
        The identity, None for a write without one; and the run, "" outside of `foreachBatch`. See `protocol.Batch`.

    Raises:
        ConfigurationError: If it is written in `foreachBatch`, and its identity or its run is not known.
    """
    query, group, batch = map(local_property, ("sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId"))
    in_session_of_stream = _is_in_session_of_stream(local_property)
    identity = settings.identity
    if query and batch:
        if identity is None:
            name = f"{query}/{settings.name}" if settings.name else query
            identity = Identity(name, int(batch), consecutive=False)
        if group and re.fullmatch(_UUID, group):
            return identity, f"{group}/{batch}"
        if not in_session_of_stream:
            raise ConfigurationError(
                f"The job group {group!r} hides which run of the query calls foreachBatch, so a batch that is repeated "
                "cannot be told from two writes; set no job group for the write"
            )
    elif identity is None and settings.name:
        raise ConfigurationError(
            f"Option 'sink.name' is {settings.name!r}, but Spark does not tell which batch of a stream this is; add the "
            "options txnAppId (one for the query) and txnVersion (the batch's number)"
        )
    elif identity is None and in_session_of_stream:
        raise ConfigurationError(
            "A write in foreachBatch needs the batch's number to be exactly once, and Spark does not tell it to threads of "
            "your own, nor with Spark Connect; add the options txnAppId (one for the query) and txnVersion (the number), "
            "or use at-least-once"
        )
    if not in_session_of_stream:
        return identity, ""
    session = _SESSION.search(local_property("spark.job.tags") or "")
    return identity, session[1] if session else ""


def _is_in_session_of_stream(local_property: Callable[[str], str | None]) -> bool:
    return all(local_property(setting) == "false" for setting in _SWITCHED_OFF)
