"""What the metadata says of a cluster that continues another one: its topics hold the records that the other's held.

As JSON, in metadata documents and in the checkpoint::

    {"cluster": "old", "by": "records", "topics": {"orders": "orders-2"}, "guarantee": "exact"}

`topics` may be missing: then a topic continues the one with its own name or, after MirrorMaker 2, with its name without
`old.` before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from dynamic_kafka.errors import suggestion

__all__ = ["Continues", "Guarantee", "Way", "continues_from_json", "continues_to_json"]

Way = Literal["same-offsets", "mirror-maker", "records", "timestamp"]
Guarantee = Literal["exact", "at-least-once", "unproved"]
"""What a new position promises, the strongest first. With `unproved` records may be lost or repeated."""


@dataclass(frozen=True, slots=True)
class Continues:
    """Which cluster another one continues, and how positions are translated.

    Args:
        cluster: The id of the other cluster, in the metadata before.
        by: How the position on the other cluster becomes a position on this one.
        topics: Topic of the other cluster to the topic on this one; empty for the names that `old_topic` says.
        guarantee: The weakest guarantee to go on with. A partition waits until it has this one.
        offset_syncs: The topic with MirrorMaker's offset syncs; "" for its usual name.
    """

    cluster: str
    by: Way
    topics: Mapping[str, str] = field(default_factory=dict)
    guarantee: Guarantee = "exact"
    offset_syncs: str = ""

    def old_topic(self, topic: str) -> str | None:
        """Return the topic of the other cluster that a topic of this one continues; None if it continues none."""
        if self.topics:
            return next((old for old, new in self.topics.items() if new == topic), None)
        return topic.removeprefix(f"{self.cluster}.") if self.by == "mirror-maker" else topic

    def allows(self, guarantee: Guarantee) -> bool:
        """Return whether a guarantee is good enough."""
        strength = get_args(Guarantee)
        return strength.index(guarantee) <= strength.index(self.guarantee)


_KEYS = ("cluster", "by", "topics", "guarantee", "offsetSyncs")


def continues_from_json(value: Any) -> Continues:
    """Return what a JSON value says.

    Raises:
        ValueError: If it is not as at the top of this module.
    """
    if not isinstance(value, Mapping):
        raise ValueError("expected a mapping with `cluster` and `by`")  # noqa: TRY004  as pydantic requires
    for key in value:
        if key not in _KEYS:
            hint = suggestion(str(key), _KEYS) or f"; the known keys are {', '.join(_KEYS)}"
            raise ValueError(f"unknown key '{key}'{hint}")
    cluster, by, topics = value.get("cluster"), _way(value.get("by")), value.get("topics") or {}
    guarantee, offset_syncs = value.get("guarantee", "exact"), value.get("offsetSyncs", "")
    if not isinstance(cluster, str) or not cluster:
        raise ValueError("`cluster` is missing: the id of the cluster that is continued")
    if guarantee not in get_args(Guarantee):
        raise ValueError(f"`guarantee` has to be one of {', '.join(get_args(Guarantee))}")
    if not isinstance(topics, Mapping) or not all(
        isinstance(name, str) and name for pair in topics.items() for name in pair
    ):
        raise ValueError("`topics` has to be a mapping of names: {old: new}")
    if len(set(topics.values())) < len(topics):
        raise ValueError("`topics` maps two topics to one; a topic can continue only one other")
    if not isinstance(offset_syncs, str) or (offset_syncs and by != "mirror-maker"):
        raise ValueError("`offsetSyncs` is the name of a topic, and only for `by: mirror-maker`")
    return Continues(cluster, by, dict(sorted(topics.items())), guarantee, offset_syncs)


def _way(text: Any) -> Way:
    if text not in get_args(Way):
        raise ValueError(f"`by` has to be one of {', '.join(get_args(Way))}")
    found: Way = text
    return found


def continues_to_json(continues: Continues | None) -> dict[str, Any] | None:
    """Return the JSON value, always the same for equal ones; None for None."""
    if continues is None:
        return None
    result: dict[str, Any] = {"cluster": continues.cluster, "by": continues.by}
    if continues.topics:
        result["topics"] = dict(sorted(continues.topics.items()))
    if continues.guarantee != "exact":
        result["guarantee"] = continues.guarantee
    if continues.offset_syncs:
        result["offsetSyncs"] = continues.offset_syncs
    return result
