"""Spark's Python Data Source API: thin classes that hand Spark's questions to `source`. Nothing else imports pyspark.sql."""
