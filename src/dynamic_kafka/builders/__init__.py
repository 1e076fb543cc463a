"""Sources, sinks, serializers and deserializers with PyFlink's builders.

For users, through the names in `dynamic_kafka`. The builders set the same options as `format("dynamic-kafka")`.
"""

from dynamic_kafka.builders.serializers import (
    ArrowSerializer,
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
)
from dynamic_kafka.builders.sink import DeliveryGuarantee, KafkaSink, KafkaSinkBuilder, TransactionNamingStrategy
from dynamic_kafka.builders.source import (
    DynamicKafkaSource,
    DynamicKafkaSourceBuilder,
    History,
    HybridSource,
    HybridSourceBuilder,
    KafkaSource,
    KafkaSourceBuilder,
)
from dynamic_kafka.builders.watermarks import WatermarkStrategy

__all__ = [
    "ArrowSerializer",
    "DeliveryGuarantee",
    "DynamicKafkaSource",
    "DynamicKafkaSourceBuilder",
    "History",
    "HybridSource",
    "HybridSourceBuilder",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSource",
    "KafkaSourceBuilder",
    "TransactionNamingStrategy",
    "WatermarkStrategy",
]
