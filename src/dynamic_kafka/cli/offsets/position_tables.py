"""Positions and their changes as rows of a table and as JSON, for the commands about a checkpoint."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dynamic_kafka.cli.positions import (
    Change,
    Partition,
    Position,
    check_chosen,
    ids_of,
    positions,
    positions_text,
    waiting,
)
from dynamic_kafka.source.document.checkpoint import Checkpoint
from dynamic_kafka.source.document.document import Document

__all__ = [
    "SHOWN_PARTITIONS",
    "change_entry",
    "change_rows",
    "entry",
    "exported",
    "filtered",
    "position_rows",
    "waiting_entries",
]

Waits = Mapping[str, Collection[str]]
"""Clusters and their topics without positions; a cluster without topics is one that never answered."""

SHOWN_PARTITIONS = 50
"""The number of partitions from which on a table has a row for each topic only."""


def position_rows(
    found: Mapping[Partition, Position], waits: Waits, *, planned: bool, every: bool
) -> list[dict[str, Any]]:
    """Return the rows of `show`: what is not simply read first, and one row for each topic if there are many partitions."""
    shown = sorted(found.items(), key=lambda item: (item[1].state in ("reading", "done"), item[0]))
    rows = [*waiting_entries(waits), *(entry(key, position) for key, position in shown)]
    if len(shown) > SHOWN_PARTITIONS and not every:
        topics: dict[tuple[str, str, str], list[Position]] = {}
        for key, position in shown:
            topics.setdefault((key.cluster, key.topic, position.state), []).append(position)
        of_none = {"partitions": None, "lowest": None, "highest": None, "planned": 0, "state": "waiting"}
        rows = [{"cluster": e["cluster"], "topic": e["topic"], **of_none} for e in waiting_entries(waits)]
        rows += [
            {
                "cluster": cluster,
                "topic": topic,
                "partitions": len(some),
                "lowest": min((p.offset for p in some if p.offset is not None), default=None),
                "highest": max((p.offset for p in some if p.offset is not None), default=None),
                "planned": sum(p.planned for p in some),
                "state": state,
            }
            for (cluster, topic, state), some in topics.items()
        ]
    return [{name.upper(): value for name, value in row.items() if planned or name != "planned"} for row in rows]


def exported(checkpoint: Checkpoint, source: str, found: Mapping[Partition, Position]) -> str:
    """Return the positions as the text that `offsets export` writes."""
    state = "not finished: reading goes on where it begins" if checkpoint.is_unfinished else "finished"
    return positions_text(
        found,
        (
            f"Positions in {checkpoint.files.location}, source {source}",
            f"Query {checkpoint.query_id}, batch {checkpoint.last} ({state})",
            "cluster/topic/partition:offset of the next record to read",
        ),
        ids_of(checkpoint.last_batch().document(source)),
    )


def filtered(
    args: argparse.Namespace, document: Document, *, unfinished: bool
) -> tuple[dict[Partition, Position], dict[str, frozenset[str]]]:
    """Return the positions that `--cluster` and `--topic` choose, and of these what is `waiting` for its first ones.

    Raises:
        ConfigurationError: If there is no such cluster or topic.
    """
    found, waits = positions(document, unfinished=unfinished), waiting(document)
    check_chosen("cluster", args.cluster, {key.cluster for key in found} | waits.keys())
    check_chosen("topic", args.topic, {key.topic for key in found}.union(*waits.values()))
    chosen = {
        key: position
        for key, position in found.items()
        if key.cluster in (args.cluster or (key.cluster,)) and key.topic in (args.topic or (key.topic,))
    }
    return chosen, {
        name: topics.intersection(args.topic or topics)
        for name, topics in waits.items()
        if name in (args.cluster or (name,)) and (args.topic is None or topics.intersection(args.topic))
    }


def change_rows(found: Sequence[Change], before: str, after: str) -> list[dict[str, Any]]:
    """Return the rows of changes; `before` and `after` are the headings of the two positions."""
    headings = ("CLUSTER", "TOPIC", "PARTITION", before, after, "EFFECT")
    return [dict(zip(headings, change_entry(change).values(), strict=True)) for change in found]


def _effect(was: Position | None, now: Position | None) -> str:
    if was is None or now is None:
        return "not there before" if was is None else "not there any more"
    if was.offset is None or now.offset is None:
        return "has a position" if was.offset is None else "has no position any more"
    step = now.offset - was.offset
    if step == 0:
        return f"{was.state}, then {now.state}"
    return f"{-step} offsets back" if step < 0 else f"{step} offsets forward"


def entry(partition: Partition, position: Position) -> dict[str, Any]:
    """Return a partition and its position as JSON."""
    offset, state, planned = position
    return {**partition._asdict(), "position": offset, "planned": planned, "state": state}


def waiting_entries(waits: Waits) -> list[dict[str, Any]]:
    """Return what waits for its first positions as JSON, like partitions; what is not known of it is None."""
    return [
        {"cluster": name, "topic": topic, "partition": None, "position": None, "planned": 0, "state": "waiting"}
        for name, topics in sorted(waits.items())
        for topic in (sorted(topics) if topics else (None,))
    ]


def change_entry(change: Change) -> dict[str, Any]:
    """Return a change as JSON."""
    key, was, now = change
    return {
        **key._asdict(),
        "before": None if was is None else was.offset,
        "after": None if now is None else now.offset,
        "effect": _effect(was, now),
    }
