"""The formats `debezium-json`, `canal-json`, `maxwell-json` and `ogg-json`: one machine, four envelopes.

Called through `formats.format_named`.
"""
