"""The commit log: a topic that remembers which batches are written, and how its records are found, chained and read."""
