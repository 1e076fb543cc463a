"""What a coordinator's description says about a transaction that this sink has prepared. Pure.

A commit of this sink leaves the epoch as it is (EndTxn version 3, transactions V1). Everything else that Kafka does to an
open transaction of ours is an abort that first moves the epoch on, to fence its producer:

* 3.x, and 4.x with `transaction.version` 0 or 1: by one.
* 4.0.0 with `transaction.version=2`: by two (KAFKA-19367); from 4.0.1 and 4.1 on by one.
* At the last epochs `transaction.version=2` may go on with another producer id, from epoch 0 (KAFKA-20090).

Between the fence and the abort the coordinator reports the transaction as ongoing at the later epoch. Nothing is settled
then: if the coordinator moves at this moment, the transaction is open again at its own epoch. An earlier epoch comes from a
coordinator that was replaced and does not know it yet.

That a later epoch is not another use of the id is known from the commit log only: an id is used again only after the batch
is finished (see `transactional_ids`, rule 2). So read the log after the description, before you act on `ABORTED`.
"""

from __future__ import annotations

from dynamic_kafka.kafka.transactions.client import ABORTED, COMMITTED, TransactionDescription, TransactionState
from dynamic_kafka.sink.log.chain import Transaction
from dynamic_kafka.sink.protocol import Outcome

__all__ = ["outcome", "time_left_ms"]

_LARGEST_STEP = 2
_LAST_EPOCHS = 32_765  # from here on the fence reaches epoch 32,766, where Kafka takes a producer id for used up


def outcome(transaction: Transaction, found: TransactionDescription | None) -> Outcome:
    """Return the outcome of a transaction, from its coordinator's description."""
    if found is None:
        return Outcome.UNKNOWN
    if found.producer_id != transaction.producer_id:
        rotated = transaction.producer_epoch >= _LAST_EPOCHS and found.producer_epoch == 0
        return Outcome.ABORTED if rotated and found.state in ABORTED else Outcome.UNKNOWN
    later = found.producer_epoch - transaction.producer_epoch
    if later == 0 and found.state is TransactionState.ONGOING:
        return Outcome.OPEN
    if later == 0 and found.state in COMMITTED:
        return Outcome.COMMITTED
    if later not in range(_LARGEST_STEP + 1):
        return Outcome.UNKNOWN
    if found.state in ABORTED:
        return Outcome.ABORTED
    is_ending = found.state in (TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE)
    return Outcome.ENDING if is_ending else Outcome.UNKNOWN


def time_left_ms(found: TransactionDescription, now_ms: int, since_claim_ms: int) -> int:
    """Return the time until the broker aborts an open transaction: at least what is left since the batch was claimed.

    No transaction of a batch begins before its claim. So `since_claim_ms`, which the driver measures alone, is right
    whatever the clocks say. For a batch that takes longer than the time-out, only the clocks are known.

    Args:
        found: The transaction.
        now_ms: The time of the driver's clock, in milliseconds since 1970. The broker's clock, which dated the begin of the
            transaction, may differ.
        since_claim_ms: The time since the batch was claimed.
    """
    return max(found.started_at_ms + found.timeout_ms - now_ms, found.timeout_ms - since_claim_ms)
