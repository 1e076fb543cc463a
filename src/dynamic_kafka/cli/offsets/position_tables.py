"""Positions and their changes as rows of a table and as JSON, for the commands about a checkpoint."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from dynamic_kafka.cli.positions import Change, Partition, Position, positions_text
from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.source.document.checkpoint import Checkpoint

__all__ = ["SHOWN_PARTITIONS", "change_entry", "change_rows", "entry", "exported", "filtered", "position_rows"]

SHOWN_PARTITIONS = 50
"""The number of partitions from which on a table has a row for each topic only."""


def position_rows(found: Mapping[Partition, Position], *, planned: bool, every: bool) -> list[dict[str, str]]:
    """Return the rows of `show`: what is not simply read first, and one row for each topic if there are many partitions."""
    shown = sorted(found.items(), key=lambda item: (item[1].state in ("reading", "done"), item[0]))
    if len(shown) <= SHOWN_PARTITIONS or every:
        return [
            {
                "CLUSTER": key.cluster,
                "TOPIC": key.topic,
                "PARTITION": str(key.partition),
                "POSITION": "-" if position.offset is None else str(position.offset),
                **({"PLANNED": str(position.planned)} if planned else {}),
                "STATE": position.state,
            }
            for key, position in shown
        ]
    topics: dict[tuple[str, str, str], list[Position]] = {}
    for key, position in shown:
        topics.setdefault((key.cluster, key.topic, position.state), []).append(position)
    return [
        {
            "CLUSTER": cluster,
            "TOPIC": topic,
            "PARTITIONS": str(len(some)),
            "LOWEST": str(min((p.offset for p in some if p.offset is not None), default="-")),
            "HIGHEST": str(max((p.offset for p in some if p.offset is not None), default="-")),
            **({"PLANNED": str(sum(p.planned for p in some))} if planned else {}),
            "STATE": state,
        }
        for (cluster, topic, state), some in topics.items()
    ]


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
    )


def filtered(args: argparse.Namespace, found: Mapping[Partition, Position]) -> dict[Partition, Position]:
    """Return the positions that `--cluster` and `--topic` choose; raise `ConfigurationError` for an unknown one."""
    for what, wanted, known in (
        ("cluster", args.cluster, {key.cluster for key in found}),
        ("topic", args.topic, {key.topic for key in found}),
    ):
        if unknown := sorted(set(wanted or ()) - known):
            raise ConfigurationError(f"The checkpoint does not know the {what} '{unknown[0]}'")
    return {
        key: position
        for key, position in found.items()
        if key.cluster in (args.cluster or (key.cluster,)) and key.topic in (args.topic or (key.topic,))
    }


def change_rows(found: Sequence[Change], before: str, after: str) -> list[dict[str, str]]:
    """Return the rows of changes; `before` and `after` are the headings of the two positions."""
    return [
        {
            "CLUSTER": key.cluster,
            "TOPIC": key.topic,
            "PARTITION": str(key.partition),
            before: _shown(was),
            after: _shown(now),
            "EFFECT": _effect(was, now),
        }
        for key, was, now in found
    ]


def _shown(position: Position | None) -> str:
    return "-" if position is None or position.offset is None else str(position.offset)


def _effect(was: Position | None, now: Position | None) -> str:
    if was is None or now is None:
        return "not there before" if was is None else "not there any more"
    if was.offset is None or now.offset is None:
        return "has a position" if was.offset is None else "has no position any more"
    step = now.offset - was.offset
    if step == 0:
        return f"{was.state}, then {now.state}"
    return f"{-step} offsets back" if step < 0 else f"{step} offsets forward"


def entry(partition: Partition, position: Position | None) -> dict[str, Any]:
    """Return a partition and its position as JSON."""
    found: dict[str, Any] = {"cluster": partition.cluster, "topic": partition.topic, "partition": partition.partition}
    if position is None:
        return found
    return {**found, "position": position.offset, "planned": position.planned, "state": position.state}


def change_entry(change: Change) -> dict[str, Any]:
    """Return a change as JSON."""
    key, was, now = change
    return {
        **entry(key, None),
        "before": None if was is None else was.offset,
        "after": None if now is None else now.offset,
        "effect": _effect(was, now),
    }
