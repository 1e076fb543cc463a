"""Recorded terminals as animated pictures."""

from __future__ import annotations

import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest
from scripts import cast


def test_a_picture_has_a_frame_for_each_screen() -> None:
    """With the colours of the texts. A line that did not change is drawn once, and every frame is shown."""
    frames = [(0.0, (line("a"), line("b"))), (3.0, (line("a"), line("c"))), (90.0, (line("a"), ()))]
    picture = ET.fromstring(cast.draw(frames, "a < b"))
    texts = [node.text for node in picture.iter("{http://www.w3.org/2000/svg}tspan")]
    assert texts == ["a", "b", "c"]
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}use"))) == 5
    (style,) = (node.text or "" for node in picture.iter("{http://www.w3.org/2000/svg}style"))
    assert style.count("translateY") == 3
    assert "animation:f 9.00s" in style, "1 s, a pause of at most 2 s, and the last frame"


def test_a_program_is_recorded_to_its_end() -> None:
    """Its last screen is always a frame, and its failure is an error."""
    (_, lines), *_ = list(cast.record([sys.executable, "-c", "print('\\033[1;32mgreen <&>\\033[0m')"]))[-1:]
    assert lines[0] == (("green <&>", "green", True),)
    with pytest.raises(subprocess.CalledProcessError):
        list(cast.record([sys.executable, "-c", "raise SystemExit(3)"]))


def line(text: str) -> cast.Line:
    """A line of one look."""
    return ((text, "default", False),)
