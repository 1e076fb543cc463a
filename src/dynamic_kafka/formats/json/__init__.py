"""The format `json` with Flink's rules, over Spark's `from_json` and `to_json`.

Called through `formats.format_named` and by the changelog formats.
"""
