"""From a look at the metadata and the clusters to the next document: reconciled until no request is open."""

from __future__ import annotations

import time
from collections.abc import Callable

from dynamic_kafka.errors import ClusterUnavailableError
from dynamic_kafka.source.document.offsets import Document
from dynamic_kafka.source.driver.view import SourceView
from dynamic_kafka.source.rules.model import ReadPolicy, SourceSnapshot
from dynamic_kafka.source.rules.reconcile import Reconciled, reconcile
from dynamic_kafka.source.settings import SourceSettings

__all__ = ["policy_of", "resolve"]


def policy_of(settings: SourceSettings) -> ReadPolicy:
    """Return the user's settings for the rules."""
    return ReadPolicy(
        settings.starting, settings.stopping, settings.fail_on_data_loss, settings.retention_ms, settings.drain
    )


def resolve(
    view: SourceView,
    previous: Document | None,
    seen: SourceSnapshot,
    policy: ReadPolicy,
    settings: SourceSettings,
    *,
    patient: bool,
    now_ms: Callable[[], int],
) -> Reconciled:
    """Return the next document, without ranges, and have the clusters answer what it asks.

    Args:
        view: The clusters that are asked.
        previous: The last document; None on a first start.
        seen: What the view has collected.
        policy: The policy to read by.
        settings: How long to wait, and whether a cluster that does not answer then is an error.
        patient: Whether to wait for all answers; otherwise only for news.
        now_ms: The wall-clock time.

    Raises:
        ClusterUnavailableError: If a cluster does not answer in time, and `cluster-failure-mode` is `fail`.
        CheckpointError: See `reconcile`.
        DataLossError: See `reconcile`.
    """
    deadline = time.monotonic() + settings.unavailable_after_ms / 1000
    is_first = True
    while True:
        result = reconcile(previous, seen, policy, view.answers(), now_ms())
        asked = [move.request for move in result.moving.moves if not move.done]
        answered = bool(asked) and view.request_moves(asked, result.document.clusters, patient=patient)
        answered = answered and (patient or is_first)  # a move that waits holds nobody else back
        is_first = False
        if result.requests:
            answered |= view.request_offsets(result.requests, patient=patient)
        if not answered and not (result.requests and patient):
            return result
        if time.monotonic() > deadline:
            if patient and result.requests and settings.cluster_failure_mode == "fail":
                name = result.requests[0].cluster
                raise ClusterUnavailableError(
                    f"Cluster '{name}' did not return the offsets to start or stop at: {view.monitors[name].error}. Bring "
                    "the cluster back and start the query again",
                    cluster_id=name,
                )
            return result
