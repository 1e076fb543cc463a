"""The formats `protobuf` and `protobuf-confluent`, over Arrow batches.

Called through `formats.format_named`; nothing outside of `formats` imports a module of this package.
"""
