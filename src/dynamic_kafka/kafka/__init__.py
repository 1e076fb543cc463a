"""The client seam: users' Kafka properties, as Java spells them, become a configuration of confluent-kafka's clients."""
