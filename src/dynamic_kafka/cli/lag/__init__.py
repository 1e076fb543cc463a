"""`dynamic-kafka lag`: how far a query is behind, seen from its checkpoint or from its driver."""
