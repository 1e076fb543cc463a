"""Spark's Python Data Source API: thin classes that pass Spark's calls on to `source` and `sink`.

The entry points (`dynamic_kafka.register`, `builders`, `sql`) call this package; `source` and `sink` never do.
"""
