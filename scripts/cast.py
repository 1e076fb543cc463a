"""Record a program on a terminal as an animated picture: `cast.py <file.svg> <command>...`.

The picture is one SVG without scripts. Its frames stand one above the other, and a step of the animation moves the next
one into view. A line that several frames have is drawn once. A pause is shortened, and the last frame stays longer.
"""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from xml.sax.saxutils import escape

import pyte

COLUMNS, ROWS = 120, 34
_FRAME_S, _LONGEST_S, _LAST_S = 1.0, 2.0, 6.0
_SPEED = 3.0
_WIDTH, _HEIGHT, _MARGIN = 7.2, 16, 12
_COLOURS = {
    "red": "#f85149",
    "green": "#3fb950",
    "brown": "#d29922",
    "blue": "#58a6ff",
    "magenta": "#bc8cff",
    "cyan": "#39c5cf",
}

Line = tuple[tuple[str, str, bool], ...]
"""Pieces of one look: the text, the name of its colour, and whether it is bold."""
Frame = tuple[float, tuple[Line, ...]]
"""The time in seconds since the first one, and the lines."""


def record(command: Sequence[str]) -> Iterator[Frame]:
    """Run a command on a terminal of its own, and yield the screen each second if it has changed.

    Raises:
        subprocess.CalledProcessError: If the command fails.
    """
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    ours, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    began = shown_at = time.monotonic()
    shown: tuple[Line, ...] = ()
    with subprocess.Popen(
        command,
        stdin=terminal,
        stdout=terminal,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm-256color"},
    ) as process:
        os.close(terminal)
        while True:
            try:
                output = os.read(ours, 65_536)
            except OSError:  # the program has ended
                output = b""
            stream.feed(output)
            now = time.monotonic()
            if (now - shown_at >= _FRAME_S or not output) and (lines := _lines(screen)) != shown:
                shown_at, shown = now, lines
                yield now - began, lines
            if not output:
                break
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def _lines(screen: pyte.Screen) -> tuple[Line, ...]:
    """Return what the screen shows, without its empty ends."""
    found = []
    for row in range(screen.lines):
        cells = [screen.buffer[row][column] for column in range(screen.columns)]
        pieces = [
            ("".join(cell.data for cell in same), *look) for look, same in groupby(cells, key=lambda c: (c.fg, c.bold))
        ]
        while pieces and not pieces[-1][0].strip():
            pieces.pop()
        found.append(tuple(pieces))
    return tuple(found)


def draw(frames: Sequence[Frame], title: str) -> str:
    """Return frames as an animated SVG."""
    times = [time_s / _SPEED for time_s, _ in frames]
    lasts = [min(_LONGEST_S, after - before) for before, after in pairwise(times)] + [_LAST_S]
    total_s = sum(lasts)
    width, height = COLUMNS * _WIDTH + 2 * _MARGIN, ROWS * _HEIGHT + 2 * _MARGIN
    numbers: dict[Line, int] = {}
    body, steps = [], []
    for number, (start_s, (_, lines)) in enumerate(zip(accumulate([0.0, *lasts]), frames, strict=False)):
        top = number * height
        steps.append(f"{100 * start_s / total_s:.2f}%{{transform:translateY({-top}px)}}")
        for row, line in enumerate(lines):
            if line:
                at = numbers.setdefault(line, len(numbers))
                body.append(f'<use href="#l{at}" y="{top + _MARGIN + (row + 1) * _HEIGHT - 4}"/>')
    defs = "".join(f'<text id="l{at}" xml:space="preserve">{_text(line)}</text>' for line, at in numbers.items())
    font = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" font-size="12" font-family="{font}">'
        f"<title>{escape(title)}</title>"
        f"<style>text{{fill:#e6edf3}}.b{{font-weight:700}}#f{{animation:f {total_s:.2f}s step-end infinite}}"
        f"@keyframes f{{{''.join(steps)}}}</style><defs>{defs}</defs>"
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/><g id="f">{"".join(body)}</g></svg>\n'
    )


def _text(line: Line) -> str:
    """Return a line as parts that stand in its columns, whatever the font's width is."""
    parts, column = [], 0
    for text, colour, bold in line:
        if text.strip():
            fill = "" if colour == "default" else f' fill="{_COLOURS.get(colour, "#8b949e")}"'
            look = fill + (' class="b"' if bold else "")
            at = f'x="{_MARGIN + column * _WIDTH:g}" textLength="{len(text) * _WIDTH:g}"'
            parts.append(f"<tspan {at}{look}>{escape(text)}</tspan>")
        column += len(text)
    return "".join(parts)


def main() -> None:
    """Record and draw."""
    file, *command = sys.argv[1:]
    frames = list(record(command))
    Path(file).write_text(
        draw(frames, f"{Path(command[-1]).parent.name}: what it shows while it runs"), encoding="utf-8"
    )
    print(f"{file}: {len(frames)} frames, {Path(file).stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
