"""What a running query is doing, for people and for monitoring: one model, one server for each driver. See `model`."""

__all__: list[str] = []
