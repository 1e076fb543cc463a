"""What differs between the last document and today's options and metadata, in words for the log. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from dynamic_kafka.errors import listed
from dynamic_kafka.initializer import KafkaOffsetsInitializer, initializer_to_json
from dynamic_kafka.source.document.offsets import Document, Packing
from dynamic_kafka.source.rules.model import DesiredCluster, ReadPolicy

__all__ = ["differences"]

_MOST = 5
_LONGEST = 60
_PACKING = ("maxRecordsPerPartition", "minPartitions", "scan.parallelism")
_IGNORED = ", which changes nothing where reading has begun"


def differences(
    previous: Document, desired: Mapping[str, DesiredCluster], policy: ReadPolicy, packing: Packing
) -> str | None:
    """Return a sentence about all that is not as it was when the document was written; None if nothing is.

    It names the properties that differ, never their values.
    """
    both = sorted(previous.clusters.keys() & desired.keys())
    found = _changes("the starting offsets", {"": (previous.starting, policy.starting)}, _IGNORED)
    found += _changes(
        "the starting offsets of", {n: (previous.clusters[n].starting, desired[n].starting) for n in both}, _IGNORED
    )
    found += _changes(
        "the stopping offsets of",
        {n: (previous.clusters[n].stopping, desired[n].stopping or policy.stopping) for n in both},
    )
    for name in both:
        was, now = previous.clusters[name].properties, desired[name].properties
        if keys := sorted(key for key in {*was, *now} if was.get(key) != now.get(key)):
            found.append(f"cluster '{name}' has other properties ({listed(keys, _MOST)})")
    if gone := {name for name, c in previous.clusters.items() if c.topics} - desired.keys():
        found.append(f"the metadata does not name {_clusters(gone)} any more")
    if new := desired.keys() - previous.clusters.keys():
        found.append(f"the metadata newly names {_clusters(new)}")
    for option, before, after in zip(_PACKING, previous.packing, packing, strict=False):
        if before != after:
            found.append(f"{option} was {before} and is {after}")
    return f"Not as in the checkpoint, from which the query continues: {'; '.join(found)}" if found else None


def _changes(what: str, pairs: Mapping[str, tuple[Any, KafkaOffsetsInitializer | None]], effect: str = "") -> list[str]:
    """Return a text for each change from one text to another, with the clusters that have it."""
    clusters: dict[tuple[str, str], list[str]] = {}
    for name, (was, initializer) in pairs.items():
        now = initializer_to_json(initializer)
        # A user's own initializer has no text; and older documents do not say where the query started.
        unknown = (initializer is not None and now is None) or (name == "" and was is None)
        if was != now and not unknown:
            clusters.setdefault((_shown(was), _shown(now)), []).append(name)
    return [
        f"{what} {_clusters(names)} were {was} and are {now}{effect}".replace("  ", " ")
        for (was, now), names in clusters.items()
    ]


def _clusters(names: Collection[str]) -> str:
    quoted = listed([f"'{name}'" for name in sorted(names) if name], _MOST)
    return quoted and f"{'clusters' if len(names) > 1 else 'cluster'} {quoted}"


def _shown(value: Any) -> str:
    text = "not set" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
