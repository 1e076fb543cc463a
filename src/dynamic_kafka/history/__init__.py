"""History: bounded files that a query reads before it goes on with Kafka (Flink: Hybrid Source).

A history is frozen when the query first starts: a list of files with their rows, in the offset document. `model` says what
that is, `formats` how each kind of history is frozen and read. `source` decides when.
"""
