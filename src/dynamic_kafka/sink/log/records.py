"""The records of a commit log's topic, as JSON. Pure.

A topic of this name holds one of two things: the log, which is a chain of `Record`, or on another cluster of the stream a
`Pointer` to the log. Rules:

1. What is written is read by every later version. Each field of `State` has a default, and is left out while it has it.
2. A record of ours that cannot be understood stops the reader: a later version may have written it, and it may count.
   Records of ours are JSON objects with a whole number as `version`. Everything else is of another program and never counts.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from dynamic_kafka.sink.log.chain import Record, State, Transaction

__all__ = ["Pointer", "UnreadableRecordError", "decode", "encode"]

_VERSION = 1


class UnreadableRecordError(ValueError):
    """Raised for a record of ours that this version does not understand."""


@dataclass(frozen=True)
class Pointer:
    """A record that says on which other cluster the log is. It is no part of a chain.

    `place` is as in `State.places`. `cluster` is the name that the metadata gave the log's cluster then, for people.
    """

    place: str
    cluster: str


def encode(record: Record | Pointer) -> bytes:
    """Return a record as JSON."""
    content: dict[str, Any] = (
        {"pointer": asdict(record)}
        if isinstance(record, Pointer)
        else {"name": record.name, "follows": record.follows, "state": _state(record.state)}
    )
    return json.dumps({"version": _VERSION, **content}, separators=(",", ":")).encode()


def decode(text: bytes | None) -> Record | Pointer | None:
    """Return the record; None if the text is of another program.

    Raises:
        UnreadableRecordError: If the record is ours, and this version does not understand it.
    """
    try:
        found = json.loads(text or b"")
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or type(found.get("version")) is not int:
        return None
    try:
        match found:
            case {"version": 1, "name": str(name), "follows": int(follows), "state": dict(state), **more} if not more:
                places = tuple(state.pop("places"))
                transactions = tuple(Transaction(*t) for t in state.pop("transactions", ()))
                accepted = tuple(state.pop("accepted", ()))
                if places:
                    return Record(
                        name, follows, State(**state, places=places, transactions=transactions, accepted=accepted)
                    )
            case {"version": 1, "pointer": dict(pointer), **more} if not more:
                return Pointer(**pointer)
    except (TypeError, KeyError):
        pass
    raise UnreadableRecordError(f"version {found['version']}")


def _state(state: State) -> dict[str, Any]:
    defaults = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(State)}
    return {name: value for name, value in asdict(state).items() if value != defaults[name]}
