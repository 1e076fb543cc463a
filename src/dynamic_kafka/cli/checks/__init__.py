"""The checks of `dynamic-kafka doctor`: each asks one thing and judges the answer. The judgements are pure functions."""
