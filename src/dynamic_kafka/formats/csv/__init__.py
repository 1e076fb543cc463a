"""The format `csv` with Flink's rules, over Spark's `from_csv`.

It is called through `formats.format_named` only.
"""
