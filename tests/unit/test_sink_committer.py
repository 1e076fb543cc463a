"""What a coordinator's description says of a transaction."""

from __future__ import annotations

import pytest

from dynamic_kafka.kafka.transactions.client import TransactionDescription, TransactionState
from dynamic_kafka.sink.chain import Transaction
from dynamic_kafka.sink.committer import outcome
from dynamic_kafka.sink.protocol import Outcome

TRANSACTION = Transaction("c", "p-0", 4711, 3)

# The outcome at the transaction's own epoch, at the next one (a time-out, or an abort by somebody else, moves it on by
# one), and at the one after that (the id was used again).
TABLE = {
    "Empty": ("unknown", "unknown", "unknown"),
    "Ongoing": ("open", "unknown", "unknown"),
    "PrepareCommit": ("committed", "unknown", "unknown"),
    "CompleteCommit": ("committed", "unknown", "unknown"),
    "PrepareAbort": ("aborted", "aborted", "unknown"),
    "CompleteAbort": ("aborted", "aborted", "unknown"),
    "PrepareEpochFence": ("aborted", "aborted", "unknown"),
    "Dead": ("unknown", "unknown", "unknown"),
    "Unknown": ("unknown", "unknown", "unknown"),
}


def described(state: TransactionState, producer_id: int, epoch: int) -> TransactionDescription:
    """A description."""
    return TransactionDescription(state, producer_id, epoch, 60_000, 0, frozenset())


@pytest.mark.parametrize("state", TransactionState)
def test_outcomes(state: TransactionState) -> None:
    """Every state there is, at this epoch, the next one, the one after it, and an earlier one."""
    found = tuple(outcome(TRANSACTION, described(state, 4711, 3 + later)) for later in (0, 1, 2))
    assert found == TABLE[str(state)]
    assert outcome(TRANSACTION, described(state, 4711, 2)) is Outcome.UNKNOWN
    assert outcome(TRANSACTION, described(state, 4712, 3)) is Outcome.UNKNOWN


def test_an_id_that_nobody_knows() -> None:
    """Brokers forget it after a week."""
    assert outcome(TRANSACTION, None) is Outcome.UNKNOWN
