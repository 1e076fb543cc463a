"""A running query as a table in a notebook: what its last progress says of clusters, records to read and metadata."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["query_html", "show_queries"]

_HEADINGS = ("cluster", "state", "topics", "partitions", "records to read", "error")
_REPORTED = {"version", "clusters", "metadata", "events"}  # by `SourceEnumerator.report`


def show_queries() -> None:
    """Have the notebook that this process belongs to, if any, show queries by `query_html`."""
    if (ipython := sys.modules.get("IPython")) is None or (shell := ipython.get_ipython()) is None:
        return
    formatter = shell.display_formatter.formatters["text/html"]
    for module in ("pyspark.sql.streaming.query", "pyspark.sql.connect.streaming.query"):
        formatter.for_type_by_name(module, "StreamingQuery", query_html)


def query_html(query: StreamingQuery) -> str | None:
    """Return a query as HTML; None if it has no progress yet, or reads nothing with this package."""
    progress = query.lastProgress
    if progress is None:
        return None
    reports = [report for source in progress.sources if (report := _report(source.latestOffset)) is not None]
    if not reports:
        return None
    state = "running" if query.isActive else "ended" if query.exception() is None else "failed"
    title = f"{query.name or query.id}: {state}, batch {progress.batchId}, as of {progress.timestamp}"
    return f"<p><b>{escape(title)}</b></p>" + "".join(map(_source, reports))


def _report(latest: object) -> Mapping[str, Any] | None:
    """Return what a source of this package has reported; None for another source."""
    try:
        found = json.loads(latest) if isinstance(latest, str) else latest
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.keys() >= _REPORTED else None


def _source(report: Mapping[str, Any]) -> str:
    rows = [
        (name, c["state"], c["topics"], c["partitions"], _known(c["behind"]), c["error"] or "")
        for name, c in report["clusters"].items()
    ]
    notes = []
    if (metadata := report["metadata"]) and metadata["consecutive_failures"]:
        notes.append(escape(f"The metadata service fails: {metadata['last_error']}"))
    if page := report.get("metrics"):
        notes.append(f'<a href="{escape(page)}">Status page</a>')
    lines = [_row("th", _HEADINGS), *(_row("td", row) for row in rows)]
    return f"<table>{''.join(lines)}</table>" + "".join(f"<p>{note}</p>" for note in notes)


def _row(tag: str, cells: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(str(cell))}</{tag}>' for cell in cells)}</tr>"


def _known(records: int | None) -> object:
    return "unknown" if records is None else records
