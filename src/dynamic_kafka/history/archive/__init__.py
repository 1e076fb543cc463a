"""Archives: records of Kafka with their coordinates in Parquet files, and a log of what is in them.

`model` has the rules, `log` the files that keep the state, `data` the Parquet files. `dynamic_kafka.archive` is the front.
"""
