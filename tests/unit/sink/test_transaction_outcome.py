"""What a coordinator's description says of a transaction."""

from __future__ import annotations

import pytest

from dynamic_kafka.kafka.transactions.client import TransactionDescription, TransactionState
from dynamic_kafka.sink.log.chain import Transaction
from dynamic_kafka.sink.outcome import outcome, time_left_ms
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
    return TransactionDescription(state, producer_id, epoch, 60_000, 0)


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
    first = TRANSACTION._replace(producer_epoch=32_765)  # its fence reaches 32,766
    assert outcome(first, described(TransactionState.COMPLETE_ABORT, 4712, 0)) is Outcome.ABORTED
    earlier = TRANSACTION._replace(producer_epoch=32_764)
    assert outcome(earlier, described(TransactionState.COMPLETE_ABORT, 4712, 0)) is Outcome.UNKNOWN


def test_an_id_that_nobody_knows() -> None:
    """Brokers forget it after a week."""
    assert outcome(TRANSACTION, None) is Outcome.UNKNOWN


@pytest.mark.parametrize("ahead_ms", [0, 864_000_000, -864_000_000], ids=["right", "ten days ahead", "ten days behind"])
def test_a_wrong_clock_does_not_shorten_a_transaction(ahead_ms: int) -> None:
    """A batch claimed two seconds ago has at least the rest of the time-out, whatever the driver's clock says."""
    began_ms = 1_700_000_000_000
    open_now = TransactionDescription(TransactionState.ONGOING, 4711, 3, 60_000, began_ms)
    assert time_left_ms(open_now, began_ms + 1_000 + ahead_ms, 2_000) >= 58_000


def test_a_transaction_that_began_late_has_more_time() -> None:
    """A batch that takes longer than the time-out is fine if its transactions began late."""
    began_ms = 1_700_000_000_000
    open_now = TransactionDescription(TransactionState.ONGOING, 4711, 3, 60_000, began_ms)
    assert time_left_ms(open_now, began_ms + 1_000, 100_000) == 59_000
