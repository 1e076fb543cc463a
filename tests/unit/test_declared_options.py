"""Every option is declared once, and keeps its names and its default."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dynamic_kafka
from dynamic_kafka.formats import FORMATS, format_named
from dynamic_kafka.formats.schema_registry_settings import RegistrySettings
from dynamic_kafka.metadata.factory import SERVICE_OPTIONS
from dynamic_kafka.metadata.services import HttpMetadataService
from dynamic_kafka.options import Option, options_of
from dynamic_kafka.sink.configure import SINK_OPTIONS, configure_sink
from dynamic_kafka.sink.settings import SinkSettings
from dynamic_kafka.source.configure import SOURCE_OPTIONS, configure_source
from dynamic_kafka.source.rules.model import ReadPolicy
from dynamic_kafka.source.settings import SourceSettings
from dynamic_kafka.sql.session.config import SETTINGS
from dynamic_kafka.sql.tables.options import SQL_OPTIONS

ROOT = Path(dynamic_kafka.__file__).parent
BROKER = {"kafka.bootstrap.servers": "h:9092"}
TABLES: dict[str, tuple[Option[Any], ...]] = {
    "source": SOURCE_OPTIONS,
    "sink": SINK_OPTIONS,
    "sql": SQL_OPTIONS,
    "metadata-service": SERVICE_OPTIONS,
    "session settings": tuple(SETTINGS.values()),
    **{f"format {name}": format_named(name).options for name in FORMATS},
}
STORED = Path(__file__).parent / "data" / "declared_options.json"


def shown(option: Option[Any]) -> str:
    """The default as the documentation shows it."""
    return option.shown_default or option.default or ""


def test_names_and_defaults_change_on_purpose_only() -> None:
    """Jobs and scripts depend on them. After a change that is meant, store what the assertion shows."""
    stored: dict[str, dict[str, list[str]]] = json.loads(STORED.read_text())
    assert {
        name: {option.key: [shown(option), *option.aliases] for option in options} for name, options in TABLES.items()
    } == stored


@pytest.mark.parametrize("table", TABLES)
def test_a_default_is_a_value_that_the_user_could_give(table: str) -> None:
    """It is read by the parser of the option, and shown as it is, or at the beginning of the words that are shown."""
    for option in TABLES[table]:
        if option.default is not None:
            assert option.of({}) == option.parse(option.default)
            assert shown(option).startswith(option.default)


def test_a_setting_that_is_not_given_has_the_default_of_its_option() -> None:
    """In a source, and in a sink."""
    source = configure_source(BROKER | {"topic": "t"})
    sink = configure_sink(BROKER)
    for settings in (source, sink):
        for name, option in options_of(type(settings)).items():
            assert getattr(settings, name) == option.default_value, name
    assert source.retention_ms == 7 * 24 * 3600 * 1000
    assert (source.packing.min_tasks, source.packing.records_per_task) == (1, 1_000_000)


def test_no_option_is_declared_twice() -> None:
    """Each name stands in one declaration, wherever it is; the source and the sink share only names, not declarations."""
    keys = [key for path in sorted(ROOT.rglob("*.py")) for key in declarations(path)]
    assert sorted(set(keys)) == sorted({key for key in keys if keys.count(key) == 1} | {"topic", *SHARED})
    assert len(keys) > 80


# What a stream or topic is differs between reading and writing, and a registry's URL is no database's.
SHARED = {"topic-pattern", "stream-ids", "url"}


def declarations(path: Path) -> Iterator[str]:
    """The keys of the options that a file declares with a name that is written out."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Name(id="Option" | "option"), args=[ast.Constant(value=str(key)), _, *_]):
                yield key
            case _:
                pass


def test_no_default_stands_twice() -> None:
    """What takes values from options, and is made by the engine alone, has no defaults of its own."""
    for made_of_options in (ReadPolicy, RegistrySettings):
        assert all(field.default is dataclasses.MISSING for field in dataclasses.fields(made_of_options))
    of_options = {o.key for kind in (SourceSettings, SinkSettings) for o in options_of(kind).values()}
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=key), _]):
                    assert key not in of_options, f"{path}: a default beside the declaration of {key}"
                case _:
                    pass


def test_the_time_out_of_a_service_that_is_made_by_hand_is_that_of_the_option() -> None:
    """`HttpMetadataService(url)` and `metadata-service.url`."""
    option = next(o for o in SERVICE_OPTIONS if o.key == "metadata-service.timeout-ms")
    assert inspect.signature(HttpMetadataService).parameters["timeout_ms"].default == option.default_value
