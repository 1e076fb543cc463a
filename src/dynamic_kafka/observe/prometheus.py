"""The series as text for Prometheus, by the library prometheus-client (the extra `metrics`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dynamic_kafka.observe.series import SERIES, Samples

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

__all__ = ["exposition"]


class _Families:
    """What the library collects from."""

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
