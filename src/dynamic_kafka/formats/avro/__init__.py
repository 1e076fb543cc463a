"""The formats `avro` and `avro-confluent`, over Arrow batches.

Called through `formats.format_named`; nothing outside of `formats` imports a module of this package.
"""
