"""What a coordinator's description says of a transaction."""

from __future__ import annotations

import pytest

from dynamic_kafka.kafka.transactions import TransactionDescription, TransactionState
from dynamic_kafka.sink.committer import outcome
from dynamic_kafka.sink.protocol import Outcome, Transaction

TRANSACTION = Transaction("c", "p-0", 4711, 3)
S, O = TransactionState, Outcome

# The outcome at the transaction's own epoch, at the next one (a time-out, or an abort by somebody else, moves it on by
# one), and at the one after that (the id was used again).
TABLE = {
    S.EMPTY: (O.UNKNOWN, O.UNKNOWN, O.UNKNOWN),
    S.ONGOING: (O.OPEN, O.UNKNOWN, O.UNKNOWN),
    S.PREPARE_COMMIT: (O.COMMITTED, O.UNKNOWN, O.UNKNOWN),
    S.COMPLETE_COMMIT: (O.COMMITTED, O.UNKNOWN, O.UNKNOWN),
    S.PREPARE_ABORT: (O.ABORTED, O.ABORTED, O.UNKNOWN),
    S.COMPLETE_ABORT: (O.ABORTED, O.ABORTED, O.UNKNOWN),
    S.PREPARE_EPOCH_FENCE: (O.ABORTED, O.ABORTED, O.UNKNOWN),
    S.DEAD: (O.UNKNOWN, O.UNKNOWN, O.UNKNOWN),
    S.UNKNOWN: (O.UNKNOWN, O.UNKNOWN, O.UNKNOWN),
}


def described(state: TransactionState, producer_id: int, epoch: int) -> TransactionDescription:
    """A description."""
    return TransactionDescription(state, producer_id, epoch, 60_000, 0, frozenset())


@pytest.mark.parametrize("state", TransactionState)
def test_outcomes(state: TransactionState) -> None:
    """Every state there is, at this epoch, the next one, the one after it, and an earlier one."""
    found = tuple(outcome(TRANSACTION, described(state, 4711, 3 + later)) for later in range(3))
    assert found == TABLE[state]
    assert outcome(TRANSACTION, described(state, 4711, 2)) is Outcome.UNKNOWN
    assert outcome(TRANSACTION, described(state, 4712, 3)) is Outcome.UNKNOWN


def test_an_id_that_nobody_knows() -> None:
    """Brokers forget it after a week."""
    assert outcome(TRANSACTION, None) is Outcome.UNKNOWN
