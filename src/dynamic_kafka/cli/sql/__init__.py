"""`dynamic-kafka sql`: Flink's SQL from a file, or at a prompt with history and completion."""
