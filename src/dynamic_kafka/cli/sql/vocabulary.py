"""What statements can name, for completion: from the declarations of options and functions, and from an environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dynamic_kafka.cli.sql.completion import Known
from dynamic_kafka.errors import ConfigurationError, InvalidOptionError
from dynamic_kafka.formats.expressions import quoted
from dynamic_kafka.options import Option, option_names

if TYPE_CHECKING:
    from dynamic_kafka.sql.environment import TableEnvironment

__all__ = ["known_to", "table_options"]

_STARTS = (
    *("connector", "topic", "topic-pattern", "stream-ids", "properties.bootstrap.servers", "properties.group.id"),
    *("format", "scan.startup.mode", "scan.bounded.mode", "key.format", "key.fields", "value.format"),
    *("metadata-service",),
)
"""What most tables have; it comes first."""


def known_to(environment: TableEnvironment, jobs: Sequence[str] = ()) -> Known:
    """Return what statements in an environment can name now."""
    from dynamic_kafka.sql.dialect.functions.registry import RULES, SAME
    from dynamic_kafka.sql.session.config import SETTINGS

    return Known(
        tables={name: _columns(environment, name) for name in environment.list_tables()},
        options=table_options,
        settings={key: setting.parser.words for key, setting in SETTINGS.items()},
        functions=sorted({*RULES, *SAME}),
        jobs=jobs,
    )


def _columns(environment: TableEnvironment, name: str) -> list[str]:
    with suppress(Exception):  # a view of a table that is gone
        return [row[0] for row in environment.execute_sql(f"DESCRIBE {quoted(name)}").collect()]
    return []


def table_options(given: Mapping[str, str]) -> dict[str, Sequence[str]]:
    """Return the options that a table can have with those that it has already, each with its known values."""
    from dynamic_kafka.formats import FORMATS, format_named

    found = {option: list(words) for option, words in _of_connector(given.get("connector", "")).items()}
    for option in ("format", "value.format", "key.format"):
        if option in found:
            found[option] = [*FORMATS]
        if given.get(option) in FORMATS:
            prefix = "" if option == "format" else option.removesuffix("format")
            for name, declared in option_names(format_named(given[option]).options).items():
                found[prefix + name] = list(declared.parser.words)
    first = {name: found[name] for name in _STARTS if name in found}
    properties = {f"properties.{name}": () for name in _properties()} if "properties.group.id" in found else {}
    return {**first, **dict(sorted(found.items())), **properties}


@lru_cache
def _of_connector(connector: str) -> dict[str, Sequence[str]]:
    """Return the options of a connector besides those of formats; of all of Kafka's connectors if it is none."""
    from dynamic_kafka.metadata.factory import SERVICE_OPTIONS
    from dynamic_kafka.sink.configure import SINK_OPTIONS
    from dynamic_kafka.source.configure import SOURCE_OPTIONS
    from dynamic_kafka.sql.connectors.all import OTHERS
    from dynamic_kafka.sql.tables.options import CONNECTOR, CONNECTORS, SQL_OPTIONS, split_options

    if connector in OTHERS:
        return {CONNECTOR.key: (), **{option.key: option.parser.words for option in OTHERS[connector].options}}
    options: dict[str, Option[Any]] = {
        option.key: option
        for options in (SQL_OPTIONS, SOURCE_OPTIONS, SINK_OPTIONS, SERVICE_OPTIONS)
        for option in options
    }
    found = {name: option.parser.words for name, option in options.items()}
    found[CONNECTOR.key] = (*CONNECTORS, *OTHERS)
    if connector in CONNECTORS:
        for name in [*found]:
            try:
                if name in split_options({name: "", "connector": connector}).rest:
                    del found[name]  # an option for DataFrames only
            except InvalidOptionError:  # of the empty value
                pass
            except ConfigurationError:
                del found[name]
    return {**found, "properties.bootstrap.servers": (), "properties.group.id": ()}


@lru_cache
def _properties() -> list[str]:
    from dynamic_kafka.kafka.config.property_names import COMMON, CONSUMER, PRODUCER, STORES

    return sorted(COMMON | CONSUMER | PRODUCER | STORES | {"sasl.jaas.config"})
