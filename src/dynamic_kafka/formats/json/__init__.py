"""The format `json` with Flink's rules, over Spark's `from_json` and `to_json`.

It is called through `formats.format_named`, and by the changelog formats, which read and write their rows with it.
"""
