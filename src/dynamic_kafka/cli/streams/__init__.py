"""`dynamic-kafka streams`: what the metadata service says, checked."""
