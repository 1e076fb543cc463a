"""The format `csv` with Flink's rules, over Spark's `from_csv`.

Called through `formats.format_named`.
"""
