"""The options of the metrics, which the source and the sink share."""

from __future__ import annotations

from typing import NamedTuple

from dynamic_kafka.errors import ConfigurationError, MissingDependencyError
from dynamic_kafka.options import Option, ParsedOptions, integer, non_blank

__all__ = ["METRICS_OPTIONS", "MetricsSettings", "metrics_settings"]


_STATISTICS_MS = 5_000


class MetricsSettings(NamedTuple):
    """What a query reports, and where to.

    Attributes:
        host: Where the server listens.
        port: The port of the server; 0 for any.
        otlp_endpoint: Where the server pushes to; "" for nowhere.
        label: The label of the query; "" for its name in Spark.
        max_partitions: The most partitions of a source with series of their own.
        clients: If true, the numbers of librdkafka are reported too.
    """

    host: str
    port: int
    otlp_endpoint: str = ""
    label: str = ""
    max_partitions: int = 1000
    clients: bool = True

    @property
    def statistics_ms(self) -> int:
        """Return the time between two statistics of a client of librdkafka; 0 for none."""
        return _STATISTICS_MS if self.clients else 0


def _is_address(value: str) -> bool:
    # One with a login is refused below, by an error that does not show it.
    return value.startswith(("http://", "https://")) or _has_login(value)


def _has_login(value: str) -> bool:
    return "@" in value or "?" in value  # also after a slash, which a password may have


_PORT = Option(
    "metrics.port",
    integer(at_least=0, at_most=65535, expected="a port up to 65535, or 0 for any"),
    shown_default="off",
    doc="Turns on metrics and the status page, and is the port where one server for all queries of the driver serves them "
    "(see docs/reference/metrics.md). 0 takes any port; the log and `lastProgress` say which.",
)
_HOST = Option(
    "metrics.host",
    non_blank("a host name or an address of this machine"),
    "127.0.0.1",
    doc="Where that server listens. By default only programs on the driver's machine reach it, and executors elsewhere "
    "cannot report. Whoever reaches it can read.",
)
_OTLP = Option(
    "metrics.otlp-endpoint",
    non_blank("an address such as http://localhost:4318/v1/metrics", _is_address),
    shown_default="none",
    doc="Turns on metrics, and is where that server pushes them to: a collector of OpenTelemetry (OTLP over HTTP; the extra "
    "`otel`).",
)
_LABEL = Option(
    "metrics.query",
    non_blank(),
    shown_default="the query's name in Spark, else what it reads or writes",
    doc="The label `query` of all series. Give it to have the same label in each run. A query that starts again in the same "
    "driver has `(run ...)` added until its first batch.",
)
_MAX_PARTITIONS = Option(
    "metrics.max-partitions",
    integer(at_least=1),
    str(MetricsSettings("", 0).max_partitions),
    doc="The most partitions of a source that have series of their own. With more of them, topics have; with more topics, "
    "clusters.",
)
METRICS_OPTIONS = (_PORT, _HOST, _OTLP, _LABEL, _MAX_PARTITIONS)
"""The options, in the order of the documents."""


def metrics_settings(parsed: ParsedOptions, *, clients: bool) -> MetricsSettings | None:
    """Return the settings; None if metrics are off.

    Raises:
        ConfigurationError: If the address of the collector holds a login, or may hold one in its query.
        MissingDependencyError: If the SDK of OpenTelemetry is needed and not installed.
    """
    if not parsed.given(_PORT, _OTLP):
        return None
    endpoint = parsed[_OTLP] or ""
    if _has_login(endpoint):  # all users of a machine see arguments
        raise ConfigurationError(
            f"Option '{_OTLP.key}' holds a user, a password or a query; take them out, and set the variable "
            "OTEL_EXPORTER_OTLP_HEADERS on the driver"
        )
    from importlib.util import find_spec

    if parsed.given(_OTLP) and find_spec("opentelemetry") is None:
        raise MissingDependencyError("opentelemetry-sdk", "otel", f"for {_OTLP.key}")
    return MetricsSettings(
        parsed[_HOST], parsed[_PORT] or 0, endpoint, parsed[_LABEL] or "", parsed[_MAX_PARTITIONS], clients
    )
