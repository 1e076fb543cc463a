"""What a source does in Spark's workers: it reads the ranges of a task, and counts what it has read."""
