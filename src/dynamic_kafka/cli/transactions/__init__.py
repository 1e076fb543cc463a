"""`dynamic-kafka transactions`: the open transactions of an exactly-once sink."""
