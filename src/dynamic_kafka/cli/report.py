"""What is known of transactions, in words and as a document."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from dynamic_kafka.cli.decisions import Found, LogView, Verdict
from dynamic_kafka.cli.output import duration

__all__ = ["details", "document", "log_line", "row", "state_of"]


def row(found: Found) -> dict[str, str]:
    """A transaction as a row of `list`."""
    seen = found.description
    return {
        "TRANSACTIONAL ID": found.transactional_id,
        "STATE": state_of(found),
        "PRODUCER ID": "-" if seen is None else str(seen.producer_id),
        "EPOCH": "-" if seen is None else str(seen.producer_epoch),
        "AGE": _age(found),
        "TIME LEFT": _left(found),
        "PARTITIONS": _partitions(found),
        "COMMIT LOG": found.verdict,
    }


def details(view: LogView, found: Found) -> dict[str, str]:
    """All that is known of a transaction, by name."""
    pairs = {"Transactional id": found.transactional_id, "State": state_of(found)}
    if (seen := found.description) is not None:
        pairs |= {
            "Producer id": str(seen.producer_id),
            "Producer epoch": str(seen.producer_epoch),
            "Time-out": f"{duration(seen.timeout_ms)} (transaction.timeout.ms={seen.timeout_ms})",
            "Began": _began(seen.started_at_ms),
            "Age": _age(found),
            "Time left": _left(found),
            "Partitions": _partitions(found),
        }
    return pairs | {"Commit log": _said(view, found)}


def log_line(view: LogView) -> str:
    """What the head of the commit log says."""
    if view.chain is None:
        return f"there is no topic '{view.topic}'"
    head = view.state
    if head is None:
        return f"'{view.topic}' holds no record of a commit log"
    last = f", last decided batch {head.batch}" if head.batch >= 0 else ""
    query = f" of '{head.identity}'" if head.identity else ""
    meaning = " (a batch is being written, or its query ended in the middle of it)" if head.status == "owned" else ""
    return f"'{view.topic}', generation {head.generation}, {head.status}{meaning}{last}{query}"


def state_of(found: Found) -> str:
    """The state's name."""
    return "not known" if found.description is None else found.description.state


def document(prefix: str | None, view: LogView | None, found: Sequence[Found]) -> dict[str, Any]:
    """The same for programs."""
    return {
        "prefix": prefix,
        "commit_log": None if view is None else _log_document(view),
        "transactions": [_entry(view, f) for f in found],
    }


def _log_document(view: LogView) -> dict[str, Any]:
    head = view.state
    return {
        "topic": view.topic,
        "exists": view.chain is not None,
        "generation": None if head is None else head.generation,
        "status": None if head is None else head.status,
        "query": None if head is None else head.identity,
        "batch": None if head is None else head.batch,
    }


def _entry(view: LogView | None, found: Found) -> dict[str, Any]:
    head = None if view is None or found.verdict not in (Verdict.DECIDED, Verdict.LOST) else view.state
    seen = found.description
    age_ms = _age_ms(found)
    return {
        "transactional_id": found.transactional_id,
        "state": None if seen is None else str(seen.state),
        "producer_id": None if seen is None else seen.producer_id,
        "producer_epoch": None if seen is None else seen.producer_epoch,
        "timeout_ms": None if seen is None else seen.timeout_ms,
        "started_at_ms": None if seen is None or age_ms is None else seen.started_at_ms,
        "age_ms": age_ms,
        "left_ms": None if seen is None or age_ms is None else max(0, seen.timeout_ms - age_ms),
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in _sorted_partitions(found)],
        "verdict": found.verdict.replace(" ", "-"),
        "decided_by_generation": None if head is None else head.generation,
        "decided_batch": None if head is None else head.batch,
    }


def _said(view: LogView, found: Found) -> str:
    """The verdict, and by whom and why."""
    head = view.state
    if found.verdict is Verdict.UNKNOWN:
        why = log_line(view) if head is None else "it names this id on a cluster that may be this one; add --cluster"
        return f"{found.verdict}: {why}"
    if head is None or found.verdict is Verdict.UNDECIDED:
        return found.verdict
    query = f" of '{head.identity}'" if head.identity else ""
    return f"{found.verdict}: by generation {head.generation}, batch {head.batch}{query}"


def _age_ms(found: Found) -> int | None:
    """None if nothing is open: ended ones keep their beginning. By this machine's clock, not the broker's."""
    seen = found.description
    if seen is None or not found.is_pending:
        return None
    return max(0, time.time_ns() // 1_000_000 - seen.started_at_ms)


def _began(started_at_ms: int) -> str:
    if started_at_ms < 0:
        return "-"
    return datetime.fromtimestamp(started_at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _age(found: Found) -> str:
    age_ms = _age_ms(found)
    return "-" if age_ms is None else duration(age_ms)


def _left(found: Found) -> str:
    age_ms = _age_ms(found)
    if found.description is None or age_ms is None:
        return "-"
    left_ms = found.description.timeout_ms - age_ms
    return duration(left_ms) if left_ms > 0 else "none"


def _partitions(found: Found) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in _sorted_partitions(found)) or "-"


def _sorted_partitions(found: Found) -> list[tuple[str, int]]:
    return [] if found.description is None else sorted(found.description.partitions)
