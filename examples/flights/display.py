"""The output of the demo while it runs: a live screen on a terminal, otherwise a few lines every few seconds."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Self

import pandas as pd
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from delays import Delays, source_report
from replay import Replay

__all__ = ["Display"]

_REFRESH_S = 0.5
_LINES_EVERY_S = 3.0
_RATE_OVER = 8  # refreshes: a rate over fewer batches would jump
_SHOWN_NEWS = 12
_BAR_WIDTH = 14
_STATE_STYLES = {"reading": "green", "draining": "yellow", "retained": "dim", "unreachable": "bold red"}
_STYLES = {"demo": "bold cyan", "metadata": "magenta", "source": "green"}


class Display:
    """A display of the replay, the query and the news until the end of its `with` block.

    Args:
        console: The console to write to.
        departures: The replayed flights.
        replay: The producers.
        delays: The results of the query.
        query: The query.
    """

    def __init__(
        self, console: Console, departures: pd.DataFrame, replay: Replay, delays: Delays, query: StreamingQuery
    ) -> None:
        self._console = console
        self._days = departures[["month", "day"]]
        self._replay, self._delays, self._query = replay, delays, query
        self._began = time.time()
        self._news: list[tuple[float, str, str]] = []  # when, by whom, what
        self._printed: set[tuple[float, str, str]] = set()
        self._samples: list[tuple[float, Counter[str]]] = []
        self._report: Mapping[str, Any] | None = None
        self._batch_id = -1
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="display", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def say(self, text: str) -> None:
        """Add an action of the demo to the news."""
        self._news.append((time.time(), "demo", text))

    def state(self, cluster: str) -> str | None:
        """Return the last reported state of a cluster: reading, draining, retained, unreachable. None before a report."""
        described = (self._report or {}).get("clusters", {}).get(cluster)
        return None if described is None else str(described["state"])

    def _run(self) -> None:
        if self._console.is_terminal:
            with Live(console=self._console, auto_refresh=False, vertical_overflow="crop") as live:
                while self._sample():
                    live.update(self._screen(), refresh=True)
                live.update(self._screen(), refresh=True)
        else:
            due = 0.0
            while self._sample():
                if time.monotonic() >= due:
                    due = time.monotonic() + _LINES_EVERY_S
                    self._print_lines()
            self._print_lines()

    def _sample(self) -> bool:
        """Read the state of the query. Return False when the display must end."""
        last = self._closing.wait(_REFRESH_S)
        try:
            self._report = source_report(self._query) or self._report
            progress = self._query.lastProgress
            self._batch_id = progress.batchId if progress is not None else -1
        except Exception:  # noqa: BLE001  # the main thread handles the end of the query; the last sample stays on screen
            return not last
        self._samples = [*self._samples[-_RATE_OVER:], (time.monotonic(), self._delays.by_cluster())]
        return not last

    # --- the contents ---

    def _headline(self) -> str:
        day = self._days.iloc[max(0, self._replay.due - 1)]
        return (
            f"{self._replay.elapsed_s:5.1f} s   2013-{day['month']:02}-{day['day']:02}   batch {self._batch_id}   "
            f"read {self._read().total():,} of {self._replay.total:,}   {sum(self._rates().values()):,.0f} records/s"
        )

    def _read(self) -> Counter[str]:
        return self._samples[-1][1] if self._samples else Counter()

    def _rates(self) -> dict[str, float]:
        if len(self._samples) < 2:
            return {}
        (since, before), (now, after) = self._samples[0], self._samples[-1]
        return {cluster: (after[cluster] - before[cluster]) / (now - since) for cluster in after}

    def _all_news(self) -> list[tuple[float, str, str]]:
        events = [(e["time_ms"] / 1000, "source", e["text"]) for e in (self._report or {}).get("events", ())]
        return sorted([*self._news, *events])

    def _cluster_rows(self) -> list[tuple[str, ...]]:
        # The source's own `behind` is from the planning of the last batch. The producers know the newer records.
        rates, read, written = self._rates(), self._read(), self._replay.acknowledged
        return [
            (
                name,
                c["state"],
                f"{c['topics']}",
                f"{c['partitions']}",
                f"{written[name]:,}",
                f"{read[name]:,}",
                f"{rates.get(name, 0):,.0f}",
                f"{max(0, written[name] - read[name]):,}",
            )
            for name, c in sorted((self._report or {}).get("clusters", {}).items())
        ]

    # --- a terminal ---

    def _screen(self) -> Group:
        health = (self._report or {}).get("metadata") or {}
        asked = f"asked {health.get('refreshes', 0)} times, {health.get('failures', 0)} failures"
        body = Table.grid(padding=(0, 1))
        body.add_row(
            Panel(self._carriers(), title="delay by carrier", title_align="left"),
            Group(
                Panel(self._clusters(), title="clusters", title_align="left"),
                Panel(self._timeline(), title=f"news (metadata: {asked})", title_align="left"),
            ),
        )
        return Group(
            Text(self._headline(), style="bold"),
            ProgressBar(total=self._replay.total, completed=self._read().total()),
            body,
        )

    def _clusters(self) -> Table:
        table = Table("cluster", "state", box=None, expand=True)
        for heading in ("topics", "partitions", "written", "read", "records/s", "lag"):
            table.add_column(heading, justify="right")
        for name, state, *numbers in self._cluster_rows():
            table.add_row(name, Text(state, style=_STATE_STYLES.get(state, "")), *numbers)
        return table

    def _carriers(self) -> Table:
        table = Table("", box=None)
        for heading in ("flights", "minutes"):
            table.add_column(heading, justify="right")
        table.add_column("mean delay", min_width=_BAR_WIDTH)
        carriers = self._delays.by_carrier()
        longest = max((c.mean for c in carriers.values() if c.departed), default=0.0)
        for code, carrier in sorted(carriers.items()):
            share = max(0.0, carrier.mean / longest) if carrier.departed and longest > 0 else 0.0
            bar = Text("━" * round(_BAR_WIDTH * share), style="red" if share > 0.75 else "yellow")
            table.add_row(code, f"{carrier.flights:,}", f"{carrier.mean:.1f}", bar)
        return table

    def _timeline(self) -> Table:
        table = Table.grid(padding=(0, 1))
        table.add_column(justify="right", no_wrap=True)
        for when, who, text in self._all_news()[-_SHOWN_NEWS:]:
            table.add_row(f"{when - self._began:.1f} s", Text(who, style=_STYLES[who]), text)
        return table

    # --- without a terminal ---

    def _print_lines(self) -> None:
        for news in self._all_news():
            if news not in self._printed:
                self._printed.add(news)
                when, who, text = news
                self._line(f"{when - self._began:5.1f} s   {who}: {text}")
        self._line(self._headline())
        for name, state, _, partitions, _, read, rate, lag in self._cluster_rows():
            self._line(f"          {name} {state}: {partitions} partitions, read {read}, {rate}/s, lag {lag}")

    def _line(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, highlight=False, markup=False)
