"""Stories for tests, in a text file: many cases of one rule that a person can read as its description."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def read_stories(path: Path, beginnings: dict[str, str] | None = None) -> list[object]:
    """Return what a test is given for each story: its steps, how it ends, and what is said.

    A line that begins a story says what it is about, and is its id. The indented ones after it are `steps => end` and the
    sentences that are said. More indented ones continue the line before them, and those with a `#` are headlines.

    Args:
        path: The file.
        beginnings: For each name, the steps that `after <name> |` stands for.
    """
    text = re.sub(r"(?m)^#.*\n", "", path.read_text())
    unwrapped = re.sub(r"\n {8}|(?<=\S)\n  (?=\S)", " ", text)
    found: list[object] = []
    for about, lines in re.findall(r"(?m)^(\S.*):\n((?: {4}.*\n)+)", unwrapped):
        story, *said = (line.removeprefix("    ") for line in lines.splitlines())
        for name, steps in (beginnings or {}).items():
            story = story.replace(f"after {name} |", f"{steps} |")
        steps, end = re.split(r" =>(?: |$)", story)
        found.append(pytest.param(steps, end, said, id=about))
    assert len(found) == len(re.findall(r" =>(?: |$)", text, re.M)), "a story was not read"
    return found
