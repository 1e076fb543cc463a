"""Tables that are not on Kafka, under the names that Flink has for their connectors."""
