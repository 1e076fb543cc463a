"""Sources and sinks with PyFlink's builders: a front over the same options as `format(...)`."""

from dynamic_kafka.builders.serializers import (
    ArrowSerializer,
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
)
from dynamic_kafka.builders.sink import DeliveryGuarantee, KafkaSink, KafkaSinkBuilder, TransactionNamingStrategy
from dynamic_kafka.builders.source import (
    DynamicKafkaSource,
    DynamicKafkaSourceBuilder,
    KafkaSource,
    KafkaSourceBuilder,
)

__all__ = [
    "ArrowSerializer",
    "DeliveryGuarantee",
    "DynamicKafkaSource",
    "DynamicKafkaSourceBuilder",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSource",
    "KafkaSourceBuilder",
    "TransactionNamingStrategy",
]
