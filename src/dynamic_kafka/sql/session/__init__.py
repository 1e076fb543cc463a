"""What SQL has of a Spark session: settings, checkpoints, temporary views, running queries and their results."""
