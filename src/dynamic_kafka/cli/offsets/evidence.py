"""What is known about a query before its checkpoint is changed: whether it seems to run, and what its sink has published.

Nothing in a checkpoint proves that no query uses it: Spark has no lock, and a query without new records writes nothing. A
file that was written a moment ago is evidence that it runs. The commit log of an exactly-once sink says what is published.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

from dynamic_kafka.cli.output import duration
from dynamic_kafka.errors import TransactionError
from dynamic_kafka.sink.configure import commit_log_topic
from dynamic_kafka.sink.log.chain import Chain
from dynamic_kafka.sink.log.commit_log import read_commit_log, supersede
from dynamic_kafka.source.document.checkpoint import Checkpoint

__all__ = ["Evidence", "evidence_of_sink", "looks_running", "supersede_claim"]

_LEAST_QUIET_MS, _MOST_QUIET_MS = 60_000, 3_600_000
_CLUSTER = "commit log"


class Evidence(NamedTuple):
    """What speaks against a change, without a full stop; "" if nothing does. A note is what else the user should know.

    A proof is not to be overridden by --force.
    """

    against: str = ""
    note: str = ""
    is_proof: bool = False


def looks_running(checkpoint: Checkpoint, now_ms: int) -> Evidence:
    """Return the evidence that the query runs: it has written within a minute, or within two intervals of its batches."""
    times = sorted([*checkpoint.offsets.values(), *checkpoint.commits.values()])
    began = [checkpoint.offsets[number] for number in sorted(checkpoint.offsets)[-2:]]
    quiet_ms = min(max(_LEAST_QUIET_MS, 2 * (began[-1] - began[0])), _MOST_QUIET_MS)
    age_ms = now_ms - times[-1]
    if age_ms < quiet_ms:
        return Evidence(
            f"The query may be running: its checkpoint was written {duration(max(0, age_ms))} ago, by the query or by an "
            "earlier change of this command. Stop it. If you know that it is stopped, add --force"
        )
    note = (
        f"The query last wrote {duration(age_ms)} ago. That is no proof that it is stopped: an idle one writes nothing."
    )
    if not checkpoint.is_unfinished:
        note += " If it runs, this change ends it with CONCURRENT_STREAM_LOG_UPDATE at its next batch."
    return Evidence(note=note)


def _log_of(args: argparse.Namespace) -> tuple[str, dict[str, str], str]:
    """Return the commit log that the arguments name: its cluster, how to reach it, and the topic."""
    return _CLUSTER, dict(args.commit_log_property), args.commit_log or commit_log_topic(args.sink_prefix)


def evidence_of_sink(args: argparse.Namespace, query_id: str, batch: int) -> Evidence:
    """Return what the commit log of an exactly-once sink says about an unfinished batch of a query.

    Raises:
        ClusterUnavailableError: If the cluster does not answer.
        ConfigurationError: If the topic is not a commit log.
    """
    *_, name = log = _log_of(args)
    return _evidence_of(name, read_commit_log(*log, timeout_ms=int(args.timeout * 1000)), query_id, batch)


def _evidence_of(name: str, chain: Chain | None, query_id: str, batch: int) -> Evidence:
    """Return what a commit log says about an unfinished batch; `name` is its topic."""
    if chain is None or chain.offset < 0:
        return Evidence(f"The commit log '{name}' does not exist or is empty. Check --sink-prefix and --commit-log")
    # Writes in foreachBatch with a sink.name have an identity each, and a part of them may be published.
    applied = chain.state.applied
    ours = [n for identity, n in applied.items() if identity == query_id or identity.startswith(f"{query_id}/")]
    last = max(ours, default=-1)
    if last >= batch:
        return Evidence(
            f"Batch {batch} is decided or published, says the commit log '{name}'. Start the query once with trigger "
            "availableNow: it finishes the batch without writing its rows again. Then try again",
            is_proof=True,
        )
    if last != batch - 1 or (applied and not ours):
        published = f"batch {last} of this query as the last one" if ours else "no batch of this query"
        return Evidence(
            f"The commit log '{name}' knows {published}, so it does not show whether batch {batch} is published. Check "
            "--sink-prefix"
        )
    return Evidence(
        note=f"Batch {batch} is not published, says the commit log '{name}'. What was written of it is aborted when the "
        "query runs it again."
    )


def supersede_claim(args: argparse.Namespace, query_id: str, batch: int, known: Evidence) -> None:
    """Take the commit log away from a batch that may be written now, so that it is not published as it was planned.

    `known` is what `evidence_of_sink` has said, and what the user was shown.

    Raises:
        TransactionError: If the batch was decided meanwhile, or the log was written to.
    """
    *_, name = log = _log_of(args)
    timeout_ms = int(args.timeout * 1000)
    chain = read_commit_log(*log, timeout_ms=timeout_ms)
    moved = _evidence_of(name, chain, query_id, batch) != known
    if not moved and chain is not None and chain.state.status == "owned":
        moved = not supersede(*log, chain, timeout_ms=timeout_ms)
    if moved:
        raise TransactionError(
            f"A running query has written to the commit log '{name}' just now. Nothing was changed; stop the query and try "
            "again"
        )
