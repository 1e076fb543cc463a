"""How a time-out of a transaction looks on the lines of Kafka that differ in it."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Producer

from dynamic_kafka.kafka.transactions.client import TransactionClient, TransactionDescription
from dynamic_kafka.sink.log.chain import Transaction
from dynamic_kafka.sink.outcome import outcome
from dynamic_kafka.sink.protocol import Outcome
from dynamic_kafka.testing import KafkaBroker, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.network]


@pytest.mark.parametrize(("version", "later"), [("3.9.1", 1), ("4.0.0", 2), ("4.1.0", 1)])
def test_a_time_out_is_an_abort(version: str, later: int) -> None:
    """By how many epochs it moves on differs; the outcome does not. A commit leaves the epoch as it is on all of them."""
    with KafkaBroker(version=version) as broker:
        broker.create_topic("t")
        client = TransactionClient("c", broker.client_properties(), timeout_ms=20_000)
        try:
            gone, kept = (_prepared(broker, client, timeout_ms) for timeout_ms in (1000, 60_000))

            def described(transaction: Transaction) -> TransactionDescription:
                found = client.describe([transaction.transactional_id])[transaction.transactional_id]
                assert found is not None
                return found

            seen: list[Outcome] = []

            def is_gone() -> bool:
                seen.append(outcome(gone, described(gone)))
                return seen[-1] is Outcome.ABORTED

            wait_until(is_gone, 30, "the time-out")
            assert Outcome.UNKNOWN not in seen
            assert described(gone).producer_epoch - gone.producer_epoch == later
            client.end(kept.transactional_id, kept.producer_id, kept.producer_epoch, commit=True)
            assert outcome(kept, described(kept)) is Outcome.COMMITTED
        finally:
            client.close()


def _prepared(broker: KafkaBroker, client: TransactionClient, timeout_ms: int) -> Transaction:
    name = uuid.uuid4().hex
    producer = Producer(
        {**broker.client_properties(), "transactional.id": name, "transaction.timeout.ms": timeout_ms, "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("t", b"v")
    producer.flush(20)
    found = client.describe([name])[name]
    assert found is not None
    assert outcome(Transaction("c", name, found.producer_id, found.producer_epoch), found) is Outcome.OPEN
    return Transaction("c", name, found.producer_id, found.producer_epoch)
