"""What a source does on the driver: it answers Spark's calls, and watches metadata and clusters in the background."""
