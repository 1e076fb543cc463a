"""Pushing to OpenTelemetry: the same numbers arrive at a collector."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from tests.observed import BEGAN_MS, cluster, read, sink, source, worker
from tests.web import WebServer

from dynamic_kafka.observe.export import push
from dynamic_kafka.observe.model import Model
from dynamic_kafka.observe.series import samples


def test_a_collector_gets_what_prometheus_gets() -> None:
    """Name, labels, kind and value of every sample."""
    model = Model(BEGAN_MS)
    for report in (source(cluster("east")), worker(read({0: 3}), query_id="id-1"), sink(query_id="id-1")):
        model.report(report, BEGAN_MS)
    expected = samples(model.status(BEGAN_MS))
    with WebServer(lambda _: (200, {}, b"")) as collector:
        provider: Any = push(f"{collector.url}/v1/metrics", lambda: expected)
        provider.force_flush()
        provider.shutdown()
    request = ExportMetricsServiceRequest.FromString(collector.requests[0].body)
    (metrics,) = (scope.metrics for resource in request.resource_metrics for scope in resource.scope_metrics)
    found = {
        metric.name: {
            frozenset((a.key, a.value.string_value) for a in p.attributes): p.as_double or float(p.as_int)
            for p in (metric.sum if metric.HasField("sum") else metric.gauge).data_points
        }
        for metric in metrics
    }
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert sorted(found[name].values()) == sorted(values.values()), name
    assert {frozenset({("query", "orders"), ("cluster", "east"), ("topic", "orders")}): 3.0} == found[
        "dynamic_kafka_source_records_total"
    ]
