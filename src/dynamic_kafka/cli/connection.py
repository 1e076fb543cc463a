"""What commands share: how their parsers are made, the connection to a cluster, the options of a query, and files."""

from __future__ import annotations

import argparse
import errno
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.kafka.config.property_names import ADDRESSES

__all__ = [
    "GROUP",
    "add_command",
    "add_commit_log_arguments",
    "add_connection_arguments",
    "add_option_arguments",
    "add_pairs",
    "add_property_arguments",
    "add_source",
    "add_timeout",
    "addresses_of",
    "age",
    "connection_of",
    "count",
    "first_messages",
    "options_of",
    "parse_properties",
    "properties_of",
    "query_options_of",
    "read_text",
    "seconds",
]

GROUP = "dynamic-kafka-cli"
"""The group of the commands' consumers. It is not joined, and nothing is committed to it."""

Run = Callable[[argparse.Namespace], int]
"""A command or an action: from its arguments to an exit code."""

_LINE = re.compile(r"(?P<key>(?:\\.|[^\\ \t\f=:])*)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u(?P<code>[0-9a-fA-F]{4})|(?P<char>.))", re.DOTALL)
_SPECIAL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_TURN_S = 0.2
_DAY_S = 86_400
_MOST_MESSAGES = 1000
_MAX_BYTES = 64 * 2**20


def add_command(commands: Any, name: str, text: str, run: Run | None, examples: str = "") -> argparse.ArgumentParser:
    """Add a command, or an action of one, and return its parser. Its examples are at the end of its help.

    One that is no group of actions has `run`, with `--output` and `--debug`.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=text,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    if run is not None:
        parser.add_argument(
            "--output",
            choices=("table", "json"),
            default="table",
            help="a table for people, or JSON for programs (table)",
        )
        parser.add_argument("--debug", action="store_true", help="show tracebacks and logs")
        parser.set_defaults(run=run)
    return parser


def add_pairs(parser: Any, *names: str, text: str) -> None:
    """Add an argument KEY=VALUE that may be given again; `text` is its help."""
    parser.add_argument(
        *names, metavar="KEY=VALUE", type=property_pair, action="append", default=[], help=f"{text}; repeatable"
    )


def add_timeout(parser: Any, default_s: float = 30.0) -> None:
    """Add `--timeout`."""
    text = f"how long to wait for an answer ({default_s:g})"
    parser.add_argument("--timeout", metavar="SECONDS", type=seconds, default=default_s, help=text)


def add_connection_arguments(parser: argparse.ArgumentParser, *, timeout_s: float = 30.0) -> None:
    """Add the arguments for one cluster to a command's parser; `timeout_s` is the default of `--timeout`."""
    group = parser.add_argument_group("connection")
    group.add_argument("--bootstrap-servers", metavar="HOST:PORT,...", help="brokers of the cluster")
    add_timeout(group, timeout_s)
    add_property_arguments(parser)


def add_property_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for properties of Kafka's clients to a command's parser."""
    group = parser.add_argument_group("properties of Kafka's clients")
    text = "a property, in Java's or librdkafka's names; the value may hold ${env:NAME} and ${file:PATH}; wins over the file"
    add_pairs(group, "--property", text=text)
    group.add_argument("--properties-file", metavar="FILE", type=Path, help="properties in Java's format")


def add_option_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the options of a query to a command's parser."""
    group = parser.add_argument_group("options of the query")
    text = "an option of the source or the sink, as in .option(KEY, VALUE); wins over the file"
    add_pairs(group, "-o", "--option", text=text)
    text = "the options, one KEY=VALUE in a line (Java's properties format)"
    group.add_argument("--options-file", metavar="FILE", type=Path, help=text)


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add `--source`, the source of a checkpoint."""
    text = "the checkpoint's source, if it has several: 0, 1, ..., or its name"
    parser.add_argument("--source", metavar="N", help=text)


def add_commit_log_arguments(group: Any) -> None:
    """Add the arguments for the commit log of an exactly-once sink, besides the prefix."""
    group.add_argument("--commit-log", metavar="TOPIC", help="the commit log's topic, if sink.commit-log.topic is set")
    text = "a property of the commit log's cluster, if it is another one, such as bootstrap.servers=..."
    add_pairs(group, "--commit-log-property", text=text)


def property_pair(text: str) -> tuple[str, str]:
    """Parse `key=value` for argparse. The error does not repeat the text, which may be a secret."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError("expected KEY=VALUE")
    return key.strip(), value


def properties_of(args: argparse.Namespace) -> dict[str, str]:
    """Return the properties of the file and of `--property`; later ones win.

    Raises:
        ConfigurationError: If the file cannot be read.
    """
    return _from_file(args.properties_file, "--properties-file") | dict(args.property)


def connection_of(args: argparse.Namespace) -> dict[str, str]:
    """Return the properties to reach one cluster; `--bootstrap-servers` wins over the others.

    Raises:
        ConfigurationError: If no brokers are given, or the file cannot be read.
    """
    found = properties_of(args)
    if args.bootstrap_servers is not None:
        found["bootstrap.servers"] = args.bootstrap_servers
    if not any(found.get(name, "").strip() for name in ADDRESSES):
        raise ConfigurationError("No brokers are given; add --bootstrap-servers host:port")
    return found


def addresses_of(properties: Mapping[str, str]) -> frozenset[str]:
    """Return the addresses of a cluster's brokers as `host:port`, so that two clusters can be compared."""
    text = ",".join(properties.get(name, "") for name in ADDRESSES)
    servers = (server.strip().rpartition("://")[2].lower() for server in text.split(","))
    return frozenset(server if ":" in server else f"{server}:9092" for server in servers if server)


def options_of(args: argparse.Namespace) -> dict[str, str]:
    """Return the options of the file and of `--option`; later ones win, whatever the case of their names.

    Raises:
        ConfigurationError: If the file cannot be read.
    """
    found: dict[str, tuple[str, str]] = {}
    for key, value in (*_from_file(args.options_file, "--options-file").items(), *args.option):
        found[key.lower()] = key, value
    return dict(found.values())


def query_options_of(args: argparse.Namespace) -> dict[str, str]:
    """Return the options of a query, with the properties as its options `properties.*`. Options win.

    Raises:
        ConfigurationError: If a file cannot be read.
    """
    return {f"properties.{key}": value for key, value in properties_of(args).items()} | options_of(args)


def _from_file(path: Path | None, argument: str) -> dict[str, str]:
    return {} if path is None else parse_properties(read_text(path, argument))


def read_text(path: str | Path, argument: str = "") -> str:
    """Return the text of a file in UTF-8; `-` is standard input. `argument` names it in errors.

    Raises:
        ConfigurationError: If it cannot be read, is no text, or has more than 64 MiB.
    """
    name = "standard input" if str(path) == "-" else f"{argument} '{path}'".lstrip()
    try:
        if str(path) == "-":
            if sys.stdin is None:
                raise OSError(errno.EBADF, "it is closed")
            data = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
        text = data.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "it is not a text in UTF-8"
        raise ConfigurationError(
            f"{name} cannot be read ({reason}); name a text file that this user may read"
        ) from None
    if len(data) > _MAX_BYTES:
        raise ConfigurationError(f"{name} is larger than {_MAX_BYTES // 2**20} MiB; name another file")
    return text


def parse_properties(text: str) -> dict[str, str]:
    r"""Parse Java's properties format: `#` and `!` comments, `=`, `:` or a blank between key and value, `\` escapes.

    Source: `java.util.Properties.load`. The last of several equal keys wins.
    """
    found = {}
    for line in _logical_lines(text):
        match = _LINE.fullmatch(line)
        assert match is not None
        found[_unescape(match["key"])] = _unescape(match["value"])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines joined with their continuations, without comments and blank lines."""
    pending = ""
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        pending += line
        if (len(pending) - len(pending.rstrip("\\"))) % 2:  # an odd one is not escaped itself
            pending = pending[:-1]
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m["code"], 16)) if m["code"] else _SPECIAL.get(m["char"], m["char"]), text)


def first_messages(
    consumer: Consumer, starts: list[TopicPartition], timeout_s: float
) -> dict[tuple[str, int], tuple[int | None, int | None]]:
    """Return the timestamp and the code of the error of what comes first from each partition, if something comes in time.

    A message without a timestamp or an error has None there.
    """
    waiting: dict[tuple[str | None, int | None], TopicPartition] = {(tp.topic, tp.partition): tp for tp in starts}
    found: dict[tuple[str, int], tuple[int | None, int | None]] = {}
    deadline = time.monotonic() + timeout_s
    consumer.assign(starts)
    try:
        while waiting and time.monotonic() < deadline:
            done = []
            for message in consumer.consume(min(len(waiting), _MOST_MESSAGES), _TURN_S):
                tp, error = waiting.pop((message.topic(), message.partition()), None), message.error()
                if tp is None:  # an error of the whole client
                    continue
                done.append(tp)
                kind, at_ms = message.timestamp()
                code = None if error is None else error.code()
                found[tp.topic, tp.partition] = at_ms if error is None and kind else None, code
            if done:
                consumer.incremental_unassign(done)
    finally:
        consumer.unassign()
    return found


def count(text: str) -> int:
    """Parse a number of things for argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError("expected a whole number, 0 or more")
    return int(text)


def age(text: str) -> float:
    """Parse an age for argparse."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < math.inf:
        raise argparse.ArgumentTypeError("expected seconds, a number above 0")
    return found


def seconds(text: str) -> float:
    """Parse a time-out for argparse."""
    found = age(text)
    if found >= _DAY_S:
        raise argparse.ArgumentTypeError("expected seconds, less than a day")
    return found
