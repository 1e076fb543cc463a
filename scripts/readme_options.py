"""Writes the option tables into the README, between their markers; `--check` only tells whether they are up to date."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from dynamic_kafka.options import OPTIONS, SINK_OPTIONS, markdown_table

README = Path(__file__).parent.parent / "README.md"
TABLES = {"options": OPTIONS, "sink-options": SINK_OPTIONS}


def with_tables(text: str) -> str:
    """The README's text with today's tables."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name}: made by scripts/readme_options.py -->", f"<!-- /{name} -->"
        new = f"{begin}\n{markdown_table(table)}\n{end}"
        text = re.sub(f"{begin}.*{end}", new.replace("\\", r"\\"), text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    before = README.read_text()
    after = with_tables(before)
    if "--check" in sys.argv:
        sys.exit(before != after)
    README.write_text(after)
