"""Nexmark, the benchmark of streaming SQL: its events, its queries, and what Flink answers to them."""
