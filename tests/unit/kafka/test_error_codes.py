"""Which errors are waited out, and which end the query at once."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from dynamic_kafka.kafka.error_codes import may_pass


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("NOT_LEADER_FOR_PARTITION", True),
        ("LEADER_NOT_AVAILABLE", True),
        ("NOT_ENOUGH_REPLICAS", True),
        ("_TRANSPORT", True),
        ("_TIMED_OUT_QUEUE", True),
        ("_DESTROY", True),  # a connection that is closed while a request waits for it
        ("TOPIC_AUTHORIZATION_FAILED", False),
        ("MSG_SIZE_TOO_LARGE", False),
        ("_AUTHENTICATION", False),
        ("_FATAL", False),
    ],
)
def test_what_may_pass(name: str, *, passes: bool) -> None:
    """Leaders that move and connections that come and go are waited for; refusals are not."""
    assert may_pass(KafkaError(getattr(KafkaError, name))) is passes


def test_an_error_of_librdkafka_without_a_name_may_pass() -> None:
    """As "Broker handle destroyed without termination", which confluent-kafka has no name for."""
    assert may_pass(KafkaError(-138))
