"""Errors that say what to write in place of an option that does not exist.

It may be for writing in a query that reads, or the other way round. It may be one of another tool, or belong elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError, UnknownOptionError
from dynamic_kafka.kafka.config.property_names import ALL_NAMES
from dynamic_kafka.options import Option, option_names
from dynamic_kafka.sink.configure import SINK_OPTIONS
from dynamic_kafka.source.configure import SOURCE_OPTIONS
from dynamic_kafka.spark.columns import DECODING

__all__ = ["in_reader", "in_writer", "neither"]


def _only(table: Iterable[Option[Any]], other: Iterable[Option[Any]]) -> Mapping[str, str]:
    """Return the names that only the first table has, by their lower case."""
    others = {name.lower() for name in option_names(other)}
    return {name.lower(): name for name in option_names(table) if name.lower() not in others}


_READING, _WRITING = _only(SOURCE_OPTIONS, SINK_OPTIONS), _only(SINK_OPTIONS, SOURCE_OPTIONS)
_ALL = {name.lower(): name for name in option_names((*SOURCE_OPTIONS, *SINK_OPTIONS))}
_TOPICS = ("subscribe", "subscribepattern", "assign", "topic-partitions")

_TRIGGER = "a trigger is not an option; call .trigger(...) of writeStream"
_DECODED = "the option that decodes values is 'value.format', with the wanted columns in .schema(...)"
_FILES = f"it is an option of Spark's readers of files; {_DECODED}"
_NO_JAR = "this format needs no JAR; leave it out"
_REGISTRY = "a schema registry belongs to a format: give 'value.format' and 'value.avro-confluent.url', or the like"
_SERVERS = "write 'kafka.bootstrap.servers'"

# By the name in lower case.
_MEANT: Mapping[str, str] = {
    **dict.fromkeys(("trigger", "processingtime", "availablenow", "once", "continuous"), _TRIGGER),
    "connector": "it is an option of tables in SQL, and .format('dynamic-kafka') says it here",
    "format": _DECODED,
    **dict.fromkeys(("mode", "inferschema", "multiline", "columnnameofcorruptrecord"), _FILES),
    **dict.fromkeys(("packages", "jars", "spark.jars", "spark.jars.packages"), _NO_JAR),
    **dict.fromkeys(("schema.registry.url", "schemaregistryurl", "schema.registry"), _REGISTRY),
    **dict.fromkeys(("brokers", "servers", "bootstrapservers", "bootstrap_servers", "broker.list"), _SERVERS),
    "consumer.polltimeoutms": "write 'kafkaConsumer.pollTimeoutMs'",
}


def in_reader(error: UnknownOptionError) -> ConfigurationError:
    """Return the error of an unknown option of a query that reads, with what is meant by it if that is known."""
    name = _WRITING.get(error.option.lower())
    if name is None or error.what != "option":
        return _explained(error)
    return ConfigurationError(
        f"Option '{name}' is for writing, and this query reads; give it to writeStream or write instead"
    )


def in_writer(error: UnknownOptionError) -> ConfigurationError:
    """Return the error of an unknown option of a query that writes, with what is meant by it if that is known."""
    lower = error.option.lower()
    if lower.startswith(DECODING):
        return ConfigurationError(
            f"Option '{error.option}' decodes messages that are read, and this query writes; encode the rows with "
            "dynamic_kafka.functions.to_kafka"
        )
    name = _READING.get(lower)
    if name is None or error.what != "option":
        return _explained(error)
    is_topic = name.lower() in _TOPICS
    way = "the topic to write to is the option 'topic'" if is_topic else "give it to readStream or read instead"
    return ConfigurationError(f"Option '{name}' is for reading, and this query writes; {way}")


def neither(
    options: Mapping[str, str], of_reader: ConfigurationError, of_writer: ConfigurationError
) -> ConfigurationError:
    """Return the error of options that fit neither a source nor a sink, while Spark does not say yet which is meant.

    Args:
        options: The options.
        of_reader: What is wrong with them for a source.
        of_writer: What is wrong with them for a sink.
    """
    named = [name.lower() for name in options]
    reading = [_READING[name] for name in named if name in _READING]
    writing = [_WRITING.get(name, name) for name in named if name in _WRITING or name.startswith("sink.")]
    if reading and writing:
        return ConflictingOptionsError(
            [reading[0], writing[0]],
            "the first is for reading and the second for writing; leave out the one of the other direction",
        )
    return of_writer if writing else of_reader


def _explained(error: UnknownOptionError) -> ConfigurationError:
    lower = error.option.lower()
    meant = _MEANT.get(lower, "")
    if error.what != "option":
        if not meant and lower in _ALL:
            meant = f"'{_ALL[lower]}' is an option of the format: write it without 'kafka.' or 'properties.'"
    elif not meant and lower in ALL_NAMES:
        meant = f"it is a property of Kafka's clients: write 'kafka.{lower}', or 'properties.{lower}' as in Flink"
    elif not meant and lower.startswith("spark."):
        meant = "it is a setting of the session; give it to SparkSession.builder.config, or to spark-submit with --conf"
    return UnknownOptionError(error.option, (), what=error.what, meant=meant) if meant else error
