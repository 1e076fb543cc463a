"""Writes the generated tables of the pages in docs/reference; `--check` says if they are old."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from dynamic_kafka.cli.main import parser_of_all
from dynamic_kafka.formats import FORMATS, format_named
from dynamic_kafka.metadata.factory import METADATA_SERVICE, SERVICE_OPTIONS
from dynamic_kafka.observe.series import SERIES
from dynamic_kafka.observe.settings import METRICS_OPTIONS
from dynamic_kafka.options import markdown_table
from dynamic_kafka.sink.configure import SINK_OPTIONS
from dynamic_kafka.source.configure import SOURCE_OPTIONS
from dynamic_kafka.spark.message_formats import MESSAGE_OPTIONS
from dynamic_kafka.sql.connectors.all import OTHERS
from dynamic_kafka.sql.dialect.functions.registry import REFUSED, RULES
from dynamic_kafka.sql.session.config import SETTINGS
from dynamic_kafka.sql.tables.options import SQL_OPTIONS, SQL_PREFIXES

ROOT = Path(__file__).parent.parent


def documents() -> dict[Path, Mapping[str, str]]:
    """Return the tables of each document, by the marker around them."""
    after = SOURCE_OPTIONS.index(METADATA_SERVICE) + 1
    return {
        ROOT / "docs" / "reference" / "options.md": {
            "options": markdown_table((*SOURCE_OPTIONS[:after], *SERVICE_OPTIONS, *SOURCE_OPTIONS[after:])),
            "messages": markdown_table(MESSAGE_OPTIONS, SQL_PREFIXES),
            "sink-options": markdown_table(SINK_OPTIONS),
        },
        ROOT / "docs" / "reference" / "sql.md": {
            "settings": markdown_table(SETTINGS.values(), prefixes={}, heading="setting"),
            "options": markdown_table(SQL_OPTIONS, SQL_PREFIXES),
            "connectors": _connectors(),
            "formats": _formats(),
            "functions": _functions(),
            "refused": _refused(),
        },
        ROOT / "docs" / "reference" / "metrics.md": {
            "options": markdown_table(METRICS_OPTIONS, prefixes={}),
            "series": _series(),
        },
        ROOT / "docs" / "reference" / "cli.md": {"arguments": _arguments()},
    }


def with_tables(text: str, tables: Mapping[str, str]) -> str:
    """Return a document's text with the tables of now."""
    for name, table in tables.items():
        begin, end = f"<!-- {name}: made by scripts/option_tables.py -->", f"<!-- /{name} -->"
        new = f"{begin}\n{table}\n{end}"
        text = re.sub(f"{begin}.*{end}", new.replace("\\", r"\\"), text, flags=re.DOTALL)
    return text


def _arguments() -> str:
    """One row for each argument and its meaning, with the commands and actions that have it."""
    actions = dict(_actions(parser_of_all()))
    rows: dict[tuple[str, str], list[str]] = {}
    for name, parser in actions.items():
        for argument in parser._actions:
            if not isinstance(argument, argparse._HelpAction | argparse._SubParsersAction):
                rows.setdefault((_form(argument), argument.help or ""), []).append(name)
    lines = ["| argument | commands | meaning |", "|---|---|---|"]
    for (form, meaning), names in sorted(rows.items(), key=lambda row: row[0][0].lstrip("-").lower()):
        commands = {name.partition(" ")[0] for name in names}
        whole = {c for c in commands if all(name in names for name in actions if name.partition(" ")[0] == c)}
        shown = dict.fromkeys(c if (c := name.partition(" ")[0]) in whole else name for name in names)
        every = len(names) == len(actions)
        where = "all" if every else ", ".join(f"`{name}`" for name in shown)
        lines.append(f"| `{form}` | {where} | {meaning} |")
    return "\n".join(lines)


def _actions(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Return each command that has no actions, and each action, by name; `streams` is both."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if "run" in parser._defaults:
        yield name, parser
    for action in below:
        for word, child in action.choices.items():
            yield from _actions(child, f"{name} {word}".strip())


def _form(argument: argparse.Action) -> str:
    choices = "\\|".join(map(str, argument.choices or ()))
    value = argument.metavar or choices or argument.dest.upper().replace("_", "-")
    if not argument.option_strings:
        return str(value)
    return ", ".join(argument.option_strings) + ("" if argument.nargs == 0 else f" {value}")


def _series() -> str:
    lines = ["| series | kind | labels besides `query` | Flink's name | meaning |", "|---|---|---|---|---|"]
    for series in SERIES:
        labels = ", ".join(f"`{label}`" for label in series.labels)
        flink = ", ".join(f"`{name}`" for name in series.flink.split(", ")) if series.flink else ""
        lines.append(f"| `{series.name}` | {series.kind} | {labels} | {flink} | {series.doc} |")
    return "\n".join(lines)


def _functions() -> str:
    lines = ["| Flink | Spark | what would differ |", "|---|---|---|"]
    for name, rule in sorted(RULES.items()):
        if not rule.why:
            continue
        template = next(iter(rule.spark.values())) if isinstance(rule.spark, Mapping) else rule.spark
        form = rule.form
        if not form and isinstance(template, str):
            form = f"`{template.format('a', 'b', 'c', 'd')}`"
        lines.append(f"| `{name}` | {form} | {rule.why} |".replace("||", "\\|\\|"))
    return "\n".join(lines)


def _refused() -> str:
    lines = ["| Flink | Spark |", "|---|---|"]
    lines += [f"| `{name}` | {refused.way}. |" for name, refused in sorted(REFUSED.items())]
    return "\n".join(lines)


def _connectors() -> str:
    lines = ["| connector | option | default | meaning |", "|---|---|---|---|"]
    for name, connector in OTHERS.items():
        for option in connector.options:
            default = option.shown_default or option.default or ""
            lines.append(f"| `{name}` | `{option.key}` | {default.replace('_', chr(92) + '_')} | {option.doc} |")
    return "\n".join(lines)


def _formats() -> str:
    parts = []
    for name in FORMATS:
        used = format_named(name)
        metadata = ", ".join(f"`value.{key}` {kind.simpleString()}" for key, kind in used.metadata.items())
        kind = "A changelog. " if used.changelog else ""
        parts.append(f"### {name}\n\n{kind}{f'Metadata: {metadata}.' if metadata else ''}".rstrip())
        if used.options:
            parts.append(markdown_table(used.options, prefixes={}))
    return "\n\n".join(parts)


if __name__ == "__main__":
    stale = False
    for path, tables in documents().items():
        before = path.read_text()
        after = with_tables(before, tables)
        stale = stale or before != after
        if "--check" not in sys.argv:
            path.write_text(after)
    sys.exit("--check" in sys.argv and stale)
