"""Writing of streams: records, partitioners, transactions, and the protocol that publishes a batch exactly once.

`spark.writers` calls `writer` and the producers on executors, and `committer` on the driver. The command line reads the
commit log.
"""
