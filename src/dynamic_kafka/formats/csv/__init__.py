"""The format `csv` with Flink's rules.

It is called through `formats.format_named` only.
"""
