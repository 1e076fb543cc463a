"""Where the rows of the next batch go: the metadata service is asked each time, so a stream may move while it is written."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sink.configure import destinations
from dynamic_kafka.sink.settings import Destination, SinkSettings

__all__ = ["route"]

_log = logging.getLogger(__name__)

_last_good: dict[str, Mapping[str, Destination]] = {}


def route(settings: SinkSettings) -> Mapping[str, Destination]:
    """The destinations of a batch.

    While the metadata service fails, its last good answer in this process stays in force.

    Raises:
        MetadataServiceError: If there was no good answer yet, or the stream cannot be written to.
        ConfigurationError: If its properties are wrong.
    """
    service = settings.service()
    try:
        streams = service.describe_streams([settings.stream])
        clusters = {name for stream in streams.values() for name in stream.clusters}
        found = destinations(settings, streams, {name for name in clusters if not service.is_cluster_active(name)})
    except ConfigurationError:
        raise
    except Exception as error:  # a service may raise anything
        kept = _last_good.get(settings.stream)
        if kept is None:
            raise
        _log.warning("The metadata service failed; rows go where they went before: %s", error)
        return kept
    finally:
        service.close()
    _last_good[settings.stream] = found
    return found
