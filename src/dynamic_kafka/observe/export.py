"""Export of the series: as text for Prometheus, and by pushing them to OpenTelemetry.

Prometheus's library is prometheus-client (the extra `metrics`). OpenTelemetry's SDK (the extra `otel`) pushes OTLP over
HTTP: every series becomes an observable instrument with the same name, labels and values, pushed once a minute or as the
SDK's own environment variables say (`OTEL_METRIC_EXPORT_INTERVAL`, `OTEL_EXPORTER_OTLP_HEADERS`,
`OTEL_RESOURCE_ATTRIBUTES`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from dynamic_kafka.observe.series import SERIES, Samples, Series

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

__all__ = ["exposition", "push"]

_FRESH_S = 0.5


class _Families:
    """The collector that Prometheus's library reads the series from."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        for series in SERIES:
            if values := self._samples.get(series.name):
                family = (CounterMetricFamily if series.kind == "counter" else GaugeMetricFamily)(
                    series.name, series.doc, labels=series.all_labels
                )
                for labels, value in values.items():
                    family.add_metric(labels, value)
                yield family


def exposition(samples: Samples, accept: str) -> tuple[bytes, str]:
    """Return the text and its content type, in the format that the scraper's header `Accept` prefers.

    Raises:
        ImportError: If the library is not installed.
    """
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(samples))
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type


class _Latest:
    """The samples, made once for all the instruments of one push."""

    def __init__(self, make: Callable[[], Samples]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made_at = -_FRESH_S
        self._samples: Samples = {}

    def of(self, series: Series) -> dict[tuple[str, ...], float]:
        with self._lock:
            if time.monotonic() - self._made_at >= _FRESH_S:
                self._samples, self._made_at = self._make(), time.monotonic()
            return self._samples.get(series.name, {})


def push(endpoint: str, make: Callable[[], Samples]) -> object:
    """Push the series from now on, in the background.

    Args:
        endpoint: The address of the collector, such as `http://localhost:4318/v1/metrics`.
        make: Makes the samples.

    Returns:
        The SDK's provider, which a test can have push at once.

    Raises:
        ImportError: If the SDK is not installed.
    """
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=endpoint))])
    meter = provider.get_meter("dynamic_kafka")
    latest = _Latest(make)

    def observe(series: Series, _options: CallbackOptions) -> Iterable[Observation]:
        for labels, value in latest.of(series).items():
            yield Observation(value, dict(zip(series.all_labels, labels, strict=True)))

    for series in SERIES:
        create = meter.create_observable_counter if series.kind == "counter" else meter.create_observable_gauge
        create(series.name, [partial(observe, series)], description=series.doc)
    return provider
