"""The formats `avro` and `avro-confluent`, over Arrow batches.

They are called through `formats.format_named` only.
"""
