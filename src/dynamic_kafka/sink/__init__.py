"""How streams are written: records, partitioners, transactions, and the protocol that publishes a batch exactly once."""
