"""`dynamic-kafka offsets`: the positions in a checkpoint, shown and changed."""
