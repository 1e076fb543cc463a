"""The formats `protobuf` and `protobuf-confluent`, over Arrow batches.

They are called through `formats.format_named` only.
"""
