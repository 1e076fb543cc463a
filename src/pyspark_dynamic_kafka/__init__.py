"""Found by Spark itself: it imports every top-level module named `pyspark_*` and takes its `DefaultSource`.

Every Spark session on the machine runs this import, so it is quick and raises nothing.
"""

from dynamic_kafka.spark.datasource import DynamicKafkaDataSource as DefaultSource

__all__ = ["DefaultSource"]
