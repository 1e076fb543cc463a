"""Writes the option table into the README, between its two markers; `--check` only tells whether it is up to date."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from dynamic_kafka.options import markdown_table

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- options: made by scripts/readme_options.py -->", "<!-- /options -->"


def with_table(text: str) -> str:
    """The README's text with today's table."""
    return re.sub(
        f"{re.escape(BEGIN)}.*{re.escape(END)}",
        lambda _: f"{BEGIN}\n{markdown_table()}\n{END}",
        text,
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    before = README.read_text()
    after = with_table(before)
    if "--check" in sys.argv:
        sys.exit(before != after)
    README.write_text(after)
