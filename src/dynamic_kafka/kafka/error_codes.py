"""What Kafka's error codes mean for us: the topic does not exist, or the request may succeed when it is sent again."""

from __future__ import annotations

from confluent_kafka import KafkaError

__all__ = ["NO_SUCH_TOPIC", "may_pass"]

NO_SUCH_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
"""The topic does not exist: as a broker says it, and as librdkafka says it. A broker can be wrong right after its start."""

# What brokers say while the partition gets another leader, or while they start. librdkafka calls hardly any of it retriable.
_MAY_PASS = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
# Of what librdkafka says by itself, nearly all is about a connection that comes and goes, by ever new names.
_LOCAL_AND_FINAL = frozenset(
    {
        KafkaError._FATAL,
        KafkaError._INVALID_ARG,
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError._NOT_IMPLEMENTED,
    }
)


def may_pass(error: KafkaError) -> bool:
    """Return whether an error may be over when the request is sent again."""
    code = error.code()
    return error.retriable() or code in _MAY_PASS or (code < 0 and code not in _LOCAL_AND_FINAL)
