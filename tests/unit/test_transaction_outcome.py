"""What a coordinator's description says of a transaction."""

from __future__ import annotations

import pytest

from dynamic_kafka.kafka.transactions.client import TransactionDescription, TransactionState
from dynamic_kafka.sink.chain import Transaction
from dynamic_kafka.sink.outcome import outcome
from dynamic_kafka.sink.protocol import Outcome

TRANSACTION = Transaction("c", "p-0", 4711, 3)

# The outcome at the transaction's own epoch, and at the next three.
TABLE = {
    "Empty": ("unknown", "unknown", "unknown", "unknown"),
    "Ongoing": ("open", "ending", "ending", "unknown"),
    "PrepareCommit": ("committed", "unknown", "unknown", "unknown"),
    "CompleteCommit": ("committed", "unknown", "unknown", "unknown"),
    "PrepareAbort": ("aborted", "aborted", "aborted", "unknown"),
    "CompleteAbort": ("aborted", "aborted", "aborted", "unknown"),
    "PrepareEpochFence": ("ending", "ending", "ending", "unknown"),
    "Dead": ("unknown", "unknown", "unknown", "unknown"),
    "Unknown": ("unknown", "unknown", "unknown", "unknown"),
}


def described(state: TransactionState, producer_id: int, epoch: int) -> TransactionDescription:
    """A description."""
    return TransactionDescription(state, producer_id, epoch, 60_000, 0, frozenset())


@pytest.mark.parametrize("state", TransactionState)
def test_outcomes(state: TransactionState) -> None:
    """Every state there is, at this epoch and the next ones. An earlier epoch and another producer id tell nothing."""
    found = tuple(outcome(TRANSACTION, described(state, 4711, 3 + later)) for later in range(4))
    assert found == TABLE[str(state)]
    assert outcome(TRANSACTION, described(state, 4711, 2)) is Outcome.UNKNOWN
    assert outcome(TRANSACTION, described(state, 4712, 3)) is Outcome.UNKNOWN
    assert outcome(TRANSACTION, described(state, 4712, 0)) is Outcome.UNKNOWN


def test_an_abort_at_the_last_epoch_may_change_the_producer_id() -> None:
    """Transactions V2 go on with a new producer id at epoch 0; a commit of ours never changes it."""
    late = TRANSACTION._replace(producer_epoch=32_766)
    assert outcome(late, described(TransactionState.COMPLETE_ABORT, 4712, 0)) is Outcome.ABORTED
    assert outcome(late, described(TransactionState.COMPLETE_COMMIT, 4712, 0)) is Outcome.UNKNOWN
    assert outcome(late, described(TransactionState.COMPLETE_ABORT, 4712, 1)) is Outcome.UNKNOWN
    assert outcome(late, described(TransactionState.COMPLETE_ABORT, 4711, 32_767)) is Outcome.ABORTED


def test_an_id_that_nobody_knows() -> None:
    """Brokers forget it after a week."""
    assert outcome(TRANSACTION, None) is Outcome.UNKNOWN
