"""`dynamic-kafka tail`: the next messages of a topic or a stream, for a quick look.

It assigns partitions to plain consumers. It joins no group, commits nothing, and leaves no trace on the clusters.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from dynamic_kafka.cli.connection import (
    GROUP,
    add_command,
    add_connection_arguments,
    add_option_arguments,
    add_pairs,
    connection_of,
    count,
    options_of,
    seconds,
)
from dynamic_kafka.cli.job import for_one_look, unknown_streams
from dynamic_kafka.cli.message_text import FORMATS, Decoded, decoder_of, text_of, text_of_bytes, text_or_hex
from dynamic_kafka.cli.output import show_line, warn
from dynamic_kafka.cli.resets import parse_time_ms
from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError, DynamicKafkaError, listed
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.kafka.clients import QUESTIONS, ClientSettings, ClusterClients
from dynamic_kafka.kafka.cluster import ClusterConnection
from dynamic_kafka.source.configure import configure_source
from dynamic_kafka.source.driver.view import SourceView
from dynamic_kafka.source.rules.model import ClusterView
from dynamic_kafka.source.settings import SourceSettings

__all__ = ["add_to", "parse_start"]

_POLL_S = 0.1
_SHOWN_CHARS = 500
_EXAMPLES = """examples:
  dynamic-kafka tail --bootstrap-servers kafka:9092 --topic orders
  dynamic-kafka tail --bootstrap-servers kafka:9092 --topic orders --from -5 --headers
  dynamic-kafka tail --options-file query.properties --from 2026-11-22T20:00Z -n 100 --output json
  dynamic-kafka tail -o metadata-service=file -o metadata-service.path=streams.yaml --stream orders --registry http://registry:8081

A message's place is written as dynamic-kafka offsets set takes it: cluster/topic/partition:offset. With --output json,
each message is one object in a line.
"""


class _Start(NamedTuple):
    """Where to begin: `last` is a number of messages before the end, and a `time` is in milliseconds since 1970."""

    kind: str
    number: int = 0


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    text = "Show the next messages of a topic or a stream. Nothing is committed, and no group is joined."
    parser = add_command(commands, "tail", text, _run, _EXAMPLES)
    add_connection_arguments(parser, timeout_s=10.0)
    parser.add_argument(
        "--topic", action="append", metavar="NAME", help="a topic, with --bootstrap-servers; repeatable"
    )
    add_option_arguments(parser)
    parser.add_argument("--stream", action="append", metavar="ID", help="a stream, with the options; repeatable")
    parser.add_argument("--cluster", action="append", metavar="NAME", help="only this cluster; repeatable")
    parser.add_argument("--partition", action="append", type=int, metavar="N", help="only this partition; repeatable")
    parser.add_argument(
        "--from",
        dest="start",
        type=parse_start,
        default=_Start("latest"),
        metavar="WHERE",
        help="latest, earliest, an offset, -N for the last N of each partition, or a time like 2026-11-22T20:00Z (latest)",
    )
    parser.add_argument(
        "-n", dest="count", type=count, default=10, metavar="N", help="end after N messages; 0 for no end (10)"
    )
    parser.add_argument(
        "--wait",
        type=seconds,
        metavar="SECONDS",
        help="how long to wait for a message (from latest: until Ctrl-C; else not at all)",
    )
    parser.add_argument("--format", choices=FORMATS, default="auto", help="the format of values (auto)")
    parser.add_argument("--key-format", choices=FORMATS, default="auto", help="the format of keys (auto)")
    parser.add_argument("--registry", metavar="URL", help="the schema registry")
    text = "an option of the registry, such as basic-auth.user-info=${env:LOGIN}"
    add_pairs(parser, "--registry-property", text=text)
    parser.add_argument("--headers", action="store_true", help="show headers")
    parser.add_argument("--full", action="store_true", help=f"do not cut values after {_SHOWN_CHARS} characters")


def parse_start(text: str) -> _Start:
    """Parse `--from` for argparse."""
    if text in ("earliest", "latest"):
        return _Start(text)
    if text.isdecimal():
        return _Start("offset", int(text))
    if text[:1] == "-" and text[1:].isdecimal():
        return _Start("last", int(text[1:]))
    return _Start("time", parse_time_ms(text))


def _run(args: argparse.Namespace) -> int:
    settings = _settings(args)
    registry = args.registry, dict(args.registry_property)
    shown = _Shown(args, registry)
    shows = shown.as_json if args.output == "json" else shown.as_line
    with ExitStack() as stack:
        tails, left_out = _tails(args, settings, stack)
        if not tails:
            raise ConfigurationError(
                f"There is no partition to read: {'; '.join(left_out) or 'check the topics, --cluster and --partition'}"
            )
        for text in left_out:
            warn(text)
        found = 0
        for tail, message in _messages(tails, args):
            shows(tail.cluster, message)
            found += 1
            if found == args.count:
                break
    if not found and args.output != "json":
        show_line("No messages.")
    return int(bool(left_out))


def _settings(args: argparse.Namespace) -> SourceSettings:
    options = options_of(args)
    if args.topic is not None:
        options |= {f"kafka.{key}": value for key, value in connection_of(args).items()}
        options["subscribe"] = ",".join(args.topic)
    elif args.stream is not None:
        options["stream-ids"] = ",".join(args.stream)
    elif not options:
        raise ConfigurationError(
            "No topic is given. Add --bootstrap-servers and --topic, or the options of a query with -o or --options-file"
        )
    return replace(for_one_look(configure_source(options), args.timeout), cluster_failure_mode="isolate")


# --- reading ------------------------------------------------------------------------------------------------------------


class _Tail:
    """The consumer of one cluster: where it begins, and the ends of the partitions at the start.

    Attributes:
        cluster: The name of the cluster.
        has_answered: Whether a message, or the end of a partition, has come.
    """

    def __init__(
        self,
        cluster: str,
        properties: Mapping[str, str],
        starts: Mapping[KafkaTopicPartition, int],
        ends: Mapping[KafkaTopicPartition, int],
    ) -> None:
        self.cluster = cluster
        self.has_answered = False
        consumer = ClientSettings(QUESTIONS, {"group.id": GROUP, "enable.partition.eof": "true"})
        self._clients = ClusterClients(properties, consumer=consumer)
        self._open = {tp for tp, start in starts.items() if start < ends.get(tp, 0)}
        self._ends = ends
        self._clients.consumer.assign([TopicPartition(t, p, start) for (t, p), start in starts.items()])

    @property
    def at_end(self) -> bool:
        """Return whether everything that was there at the start has come."""
        return not self._open

    @property
    def reason(self) -> str:
        """Return what the client has heard of the brokers; "" if nothing is wrong."""
        return self._clients.reason()

    def poll(self, timeout_s: float) -> Message | None:
        """Return the next message; None if none comes in time.

        Raises:
            ClusterUnavailableError: If the broker refuses to let this user read.
        """
        try:
            message = self._clients.consumer.poll(timeout_s)
        except KafkaException as fatal:
            raise self._failed(fatal.args[0]) from fatal
        if message is None:
            return None
        tp = KafkaTopicPartition(str(message.topic()), int(message.partition() or 0))
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self.has_answered = True
                self._open.discard(tp)
            elif not error.retriable() and message.topic() is not None:
                raise self._failed(error, tp)
            return None
        self.has_answered = True
        if int(message.offset() or 0) + 1 >= self._ends.get(tp, 0):
            self._open.discard(tp)
        return message

    def close(self) -> None:
        """Close the consumer."""
        self._clients.close()

    def _failed(self, error: KafkaError, tp: KafkaTopicPartition | None = None) -> ClusterUnavailableError:
        where = f"Cluster '{self.cluster}'" + (
            f", topic '{tp.topic}', partition {tp.partition}" if tp is not None else ""
        )
        return ClusterUnavailableError(f"{where} cannot be read: {error.str()}", cluster_id=self.cluster)


def _tails(args: argparse.Namespace, settings: SourceSettings, stack: ExitStack) -> tuple[list[_Tail], list[str]]:
    """Return a consumer for each cluster that answers, and what of the rest cannot be read."""
    tails: list[_Tail] = []
    view = SourceView(settings)
    with closing(view):
        seen = view.collect(None, at_once=True)
        unknown_ids = unknown_streams(settings, seen.streams)
        left_out = (
            [f"the metadata service does not know these streams: {listed(unknown_ids, 5)}"] if unknown_ids else []
        )
        if unknown := sorted(set(args.cluster or ()) - seen.desired.keys()):
            raise ConfigurationError(f"There is no cluster '{unknown[0]}' in the metadata of what is read")
        wanted = [name for name in seen.desired if name in (args.cluster or (name,))]
        for name in wanted:
            if (shown := seen.views.get(name)) is not None:
                tail = _tail(args, name, view.metadata.properties(name, {}), shown, settings.call_timeout_ms)
                if tail is not None:
                    tails.append(stack.enter_context(closing(tail)))
                for topic in sorted(seen.desired[name].topics):
                    where = f"cluster '{name}', topic '{topic}'"
                    if topic not in shown.topics:
                        left_out.append(f"{where} does not exist, or this user may not see it")
                    elif leaderless := _leaderless(shown, topic, args.partition):
                        left_out.append(f"{where} has no leader for the partitions {listed(map(str, leaderless), 5)}")
                continue
            error = view.monitors[name].error or DynamicKafkaError(f"Cluster '{name}' has not answered")
            if not seen.views.keys() & set(wanted):
                raise ClusterUnavailableError(str(error), cluster_id=name)
            left_out.append(str(error))
    return tails, left_out


def _leaderless(shown: ClusterView, topic: str, wanted: Collection[int] | None) -> list[int]:
    """Return the wanted partitions of a topic that have no leader."""
    partitions = range(shown.partitions.get(topic, 0))
    return [p for p in partitions if p in (wanted or (p,)) and KafkaTopicPartition(topic, p) not in shown.ends]


def _tail(
    args: argparse.Namespace, name: str, properties: Mapping[str, str], shown: ClusterView, timeout_ms: int
) -> _Tail | None:
    tps = sorted(tp for tp in shown.ends if tp.partition in (args.partition or (tp.partition,)))
    if not tps:
        return None
    with closing(ClusterConnection(name, properties, group_id=GROUP, timeout_ms=timeout_ms)) as connection:
        starts = _starts(args.start, tps, shown.ends, connection)
    return _Tail(name, properties, starts, shown.ends)


def _starts(
    start: _Start,
    tps: Sequence[KafkaTopicPartition],
    ends: Mapping[KafkaTopicPartition, int],
    connection: ClusterConnection,
) -> dict[KafkaTopicPartition, int]:
    if start.kind == "latest":
        return {tp: ends[tp] for tp in tps}
    if start.kind == "time":
        found = connection.offsets_for_times(dict.fromkeys(tps, start.number))
        return {tp: ends[tp] if (at := found[tp]) is None else at for tp in tps}
    first = connection.beginning_offsets(tps)
    if start.kind == "earliest":
        return first
    wanted = {tp: ends[tp] - start.number if start.kind == "last" else start.number for tp in tps}
    return {tp: min(max(wanted[tp], first[tp]), ends[tp]) for tp in tps}


def _messages(tails: Sequence[_Tail], args: argparse.Namespace) -> Iterator[tuple[_Tail, Message]]:
    """Yield messages as they come, from all clusters in turn.

    Raises:
        ClusterUnavailableError: If a cluster stays silent for `--timeout`, and longer than `--wait`.
    """
    follows = args.start.kind == "latest"
    wait_s = args.wait or 0.0
    last_s = time.monotonic()
    timeout_s = _POLL_S / len(tails)
    while True:
        sys.stdout.flush()  # for the next program of a pipe
        for tail in tails:
            message = tail.poll(timeout_s)
            while message is not None:
                yield tail, message
                last_s = time.monotonic()
                message = tail.poll(0)
        if follows and args.wait is None:
            continue
        quiet_s = time.monotonic() - last_s
        silent = [tail for tail in tails if not (tail.has_answered if follows else tail.at_end)]
        if not silent and quiet_s >= wait_s:
            return
        if quiet_s >= max(wait_s, args.timeout):
            raise ClusterUnavailableError(
                f"Cluster '{silent[0].cluster}' does not answer, and not everything was read: nothing came for "
                f"{quiet_s:.0f} s ({silent[0].reason or 'no error is known'}); check its brokers, or raise --timeout",
                cluster_id=silent[0].cluster,
            )


# --- showing ------------------------------------------------------------------------------------------------------------


class _Shown:
    """How messages are shown."""

    def __init__(self, args: argparse.Namespace, registry: tuple[str | None, Mapping[str, str]]) -> None:
        plain = text_of_bytes if args.output == "json" else text_or_hex
        self._args, self._header = args, plain
        self._key, self._value = (decoder_of(name, *registry, plain) for name in (args.key_format, args.format))

    def as_line(self, cluster: str, message: Message) -> None:
        """Write a message in one line: its place, time, key, value and headers."""
        at_ms = _time_ms(message)
        time_text = "-" if at_ms is None else _time_text(at_ms)
        place = f"{cluster}/{message.topic()}/{message.partition()}:{message.offset()}"
        parts = [place, time_text, self._shown(self._key, message.key()), self._shown(self._value, message.value())]
        if self._args.headers:
            parts += [f"{name}={self._shown(self._header, value)}" for name, value in _headers(message)]
        show_line("  ".join(parts))

    def as_json(self, cluster: str, message: Message) -> None:
        """Write a message as one JSON object in a line."""
        found: dict[str, Any] = {
            "cluster": cluster,
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp_ms": _time_ms(message),
        }
        for name, decode, data in (("key", self._key, message.key()), ("value", self._value, message.value())):
            found |= _json_of(name, decode, data)
        if self._args.headers:
            found["headers"] = [
                {"name": name} | _json_of("value", self._header, data) for name, data in _headers(message)
            ]
        show_line(json.dumps(found, ensure_ascii=True, default=str))

    def _shown(self, decode: Decoded, data: Any) -> str:
        if data is None:
            return "null"
        try:
            text = text_of(decode(_bytes(data)))
        except ValueError as error:
            text = f"0x{_bytes(data).hex()} (cannot be decoded: {_first_line(error)})"
        if len(text) <= _SHOWN_CHARS or self._args.full:
            return text
        return f"{text[:_SHOWN_CHARS]}... ({len(_bytes(data))} bytes; --full shows all)"


def _json_of(name: str, decode: Decoded, data: Any) -> dict[str, Any]:
    try:
        return {name: None if data is None else decode(_bytes(data))}
    except ValueError as error:
        return {name: None, f"{name}_hex": _bytes(data).hex(), f"{name}_error": _first_line(error)}


def _headers(message: Message) -> list[tuple[str, Any]]:
    found: Any = message.headers()  # its type also allows a dict, which only producers take
    return list(found or ())


def _bytes(data: Any) -> bytes:
    return data.encode() if isinstance(data, str) else bytes(data)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _time_ms(message: Message) -> int | None:
    _, at_ms = message.timestamp()
    return at_ms if at_ms >= 0 else None


def _time_text(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"  # beyond the year 9999
