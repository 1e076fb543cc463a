"""OpenLineage events of streaming queries: which topics, on which clusters, a query reads and writes.

OpenLineage's integration with Spark does not see sources and sinks in Python. `OpenLineageListener` sends events of its own.
What a query reads is in its offsets, so an event follows when topics or clusters are added or removed. What it writes is not
told by Spark: the listener is given the sink's options.

A dataset's name is the topic. Its namespace is `kafka://` and the first bootstrap server, as OpenLineage names topics.
"""

from __future__ import annotations

import http.client
import json
import logging
from collections.abc import Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import SplitResult, urlsplit

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from dynamic_kafka.errors import CheckpointError, ConfigurationError, DynamicKafkaError
from dynamic_kafka.kafka.config.secrets import resolve
from dynamic_kafka.sink.configure import configure_sink
from dynamic_kafka.sink.destinations import current_clusters
from dynamic_kafka.source.document.offsets import decode
from dynamic_kafka.spark_versions import offset_of

__all__ = ["OpenLineageListener", "datasets_read", "datasets_written"]

_log = logging.getLogger(__name__)

_PRODUCER = "urn:pyspark-dynamic-kafka"
_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_ERROR = "https://openlineage.io/spec/facets/1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet"
_PATH = "/api/v1/lineage"
_TIMEOUT_S = 5.0
_MOST_CHARS = 4000

Dataset = tuple[str, str]
"""A namespace and a name."""
_Told = tuple[str, list[Dataset], list[Dataset]]  # a job, and what it reads and writes


def datasets_read(progress: StreamingQueryProgress) -> list[Dataset]:
    """Return the topics that a query reads, without those of other sources and the files of a history.

    Raises:
        ConfigurationError: If a reference in the addresses of a cluster cannot be looked up.
    """
    found = set[Dataset]()
    for source in progress.sources:
        try:
            document = decode(dict(offset_of(source.endOffset) or {}))
        except (CheckpointError, TypeError, ValueError):  # of another source, or nothing was read yet
            continue
        found |= {
            _dataset(cluster.properties, topic) for cluster in document.clusters.values() for topic in cluster.topics
        }
    return sorted(found)


def datasets_written(options: Mapping[str, str]) -> list[Dataset]:
    """Return the topics that a sink may write to now; the metadata service is asked, if the options name one.

    A topic that only a column names is not among them.

    Args:
        options: The options of `df.writeStream.format("dynamic-kafka")`.

    Raises:
        ConfigurationError: If an option is wrong.
        MetadataServiceError: If the service fails.
    """
    places = current_clusters(configure_sink(options), ("lineage", *sorted(options.items()))).destinations.values()
    return sorted({_dataset(p.properties, topic) for p in places for topic in ([p.topic] if p.topic else p.topics)})


def _dataset(properties: Mapping[str, str], topic: str) -> Dataset:
    servers = resolve({"bootstrap.servers": properties["bootstrap.servers"]})["bootstrap.servers"]
    return f"kafka://{servers.split(',')[0].rpartition('://')[2].strip()}", topic


def _address(url: str) -> SplitResult:
    with suppress(ValueError):  # of a host or a port; its text may have a password
        found = urlsplit(url)
        if found.scheme in ("http", "https") and found.hostname and "@" not in found.netloc and found.port != 0:
            return found
    raise ConfigurationError("The URL of the OpenLineage server is not an address such as http://host:5000")


class OpenLineageListener(StreamingQueryListener):
    """Sends OpenLineage events of a session's queries to a server: `spark.streams.addListener(OpenLineageListener(...))`.

    A query's job is its name (or its id, without one), and its run is Spark's `runId`. There is an event at its start and at
    its end, and one each time when the topics change. An event that cannot be sent is a warning, and changes nothing else.

    Args:
        url: The server, such as `http://marquez:5000`.
        namespace: The namespace of the jobs.
        outputs: The options of the sinks of queries, by the name of the query.
        api_key: The key for the server; may be a reference such as `${env:OPENLINEAGE_API_KEY}`.

    Raises:
        ConfigurationError: If the URL is not one of http or https, or the options of a sink are wrong.
    """

    def __init__(
        self,
        url: str,
        namespace: str,
        outputs: Mapping[str, Mapping[str, str]] | None = None,
        api_key: str | None = None,
    ) -> None:
        self._url, self._namespace, self._outputs, self._api_key = _address(url), namespace, outputs or {}, api_key
        for options in self._outputs.values():
            configure_sink(options)
        self._told: dict[str, _Told] = {}  # by run

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark's name
        """Send the start of a run."""
        self._told[str(event.runId)] = (event.name or str(event.id), [], [])
        self._send("START", str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Send what is read and written, if it has changed."""
        run, progress = str(event.progress.runId), event.progress
        job, before = progress.name or str(progress.id), self._told.get(run)
        try:
            written = datasets_written(self._outputs[job]) if job in self._outputs else []
            self._told[run] = job, datasets_read(progress), written
        except DynamicKafkaError as error:
            _log.warning("What query %s reads and writes is not known: %s", job, error)
            return
        if before != self._told[run]:
            self._send("RUNNING", run)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Send the end of a run."""
        run, error = str(event.runId), event.exception
        facet = {"_producer": _PRODUCER, "_schemaURL": _ERROR, "programmingLanguage": "PYTHON"}
        facets = {"errorMessage": {**facet, "message": error[:_MOST_CHARS]}} if error else {}
        if run in self._told:  # not of a query that was started before the listener, and has read nothing since
            self._send("FAIL" if error else "COMPLETE", run, facets)
            del self._told[run]

    def _send(self, kind: str, run: str, facets: Mapping[str, Any] | None = None) -> None:
        job, read, written = self._told[run]
        event = {
            "eventType": kind,
            "eventTime": datetime.now(UTC).isoformat(),
            "producer": _PRODUCER,
            "schemaURL": _SCHEMA,
            "run": {"runId": run, "facets": facets or {}},
            "job": {"namespace": self._namespace, "name": job},
            "inputs": [{"namespace": namespace, "name": name} for namespace, name in read],
            "outputs": [{"namespace": namespace, "name": name} for namespace, name in written],
        }
        make = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        try:
            headers = {"Content-Type": "application/json"}
            if self._api_key is not None:
                headers |= resolve({"Authorization": f"Bearer {self._api_key}"})
            with closing(make(self._url.netloc, timeout=_TIMEOUT_S)) as connection:
                connection.request("POST", self._url.path.rstrip("/") + _PATH, json.dumps(event), headers)
                if (status := connection.getresponse().status) >= 300:
                    _log.warning("The OpenLineage server has answered an event of query %s with status %d", job, status)
        except (OSError, http.client.HTTPException, DynamicKafkaError) as error:
            _log.warning("An OpenLineage event of query %s was not sent (%s: %s)", job, type(error).__name__, error)
        except ValueError:  # its text has the key
            _log.warning("The key of the OpenLineage server has characters that no header can hold")
