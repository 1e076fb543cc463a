"""Errors of SQL in the user's words: with the place in the script, and what Spark says in Flink's terms."""
