"""Where librdkafka's own log lines go: to the logger `dynamic_kafka.librdkafka`, as debug lines.

A broker that is down makes librdkafka log several errors a second. What matters of them reaches the user in our errors,
through the clients' error callbacks; the rest is there for who asks for it.
"""

from __future__ import annotations

import logging

__all__ = ["CLIENT_LOG"]

CLIENT_LOG = logging.getLogger("dynamic_kafka.librdkafka")


def _demote(record: logging.LogRecord) -> bool:
    record.levelno, record.levelname = logging.DEBUG, "DEBUG"
    return CLIENT_LOG.isEnabledFor(logging.DEBUG)


CLIENT_LOG.addFilter(_demote)
