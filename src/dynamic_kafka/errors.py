"""Every error this package raises on purpose, as one tree.

::

    DynamicKafkaError
    ├── ConfigurationError (ValueError)     the user's options or properties are wrong
    │   ├── UnknownOptionError
    │   ├── InvalidOptionError
    │   ├── ConflictingOptionsError
    │   └── SqlError                        a SQL statement is not understood, with line and column
    ├── MissingDependencyError (ImportError)  an optional library is not installed
    ├── MetadataServiceError                the metadata service failed, or its document is invalid
    ├── RegistryError                       the schema registry does not answer, or refuses
    ├── ClusterUnavailableError             a listed cluster does not answer            (retriable)
    ├── OffsetResolutionError               a start or stop position cannot be found
    ├── DataLossError                       records that had to be read are gone
    ├── RecordError                         one record cannot be turned into a row
    ├── RowError                            one row cannot be turned into a record
    ├── DeliveryError                       a record was not acknowledged
    ├── TransactionError                    a batch could not be published; nothing of it was
    │   ├── ProducerFencedError             somebody else took over the transactional id prefix
    │   └── LostTransactionsError           decided transactions are gone
    └── CheckpointError                     the checkpoint's offsets are not ours, or do not fit

Spark shows an error from a Python data source as text, after the name of its own exception class, and often only
the first line. So the first line of each message stands alone: what, where (option, or cluster, topic, partition
and offsets), and what to do. No message holds a secret. All of them survive pickling: they cross from Spark's
workers to the driver.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = [
    "CheckpointError",
    "ClusterUnavailableError",
    "ConfigurationError",
    "ConflictingOptionsError",
    "DataLossError",
    "DeliveryError",
    "DynamicKafkaError",
    "InvalidOptionError",
    "LostTransactionsError",
    "MetadataServiceError",
    "MissingDependencyError",
    "OffsetResolutionError",
    "ProducerFencedError",
    "RecordError",
    "RegistryError",
    "RowError",
    "SqlError",
    "TransactionError",
    "UnknownOptionError",
]


class DynamicKafkaError(Exception):
    """The root of the tree.

    Args:
        message: What happened, where, and what to do; the first line stands alone.
        cluster_id: The Kafka cluster it is about, if it is about one.

    Attributes:
        retriable: True if the same call may succeed later without any change by the user.
    """

    retriable: bool = False

    def __init__(self, message: str, *, cluster_id: str | None = None) -> None:
        super().__init__(message)
        self.cluster_id = cluster_id

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own __reduce__ calls cls(*args), which fits none of the subclasses with other arguments.
        return _restore, (type(self), self.args, self.__dict__.copy())


def _restore(cls: type[DynamicKafkaError], args: tuple[Any, ...], state: dict[str, Any]) -> DynamicKafkaError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigurationError(DynamicKafkaError, ValueError):
    """The user's options or properties are wrong; raised before anything is read."""


class UnknownOptionError(ConfigurationError):
    """An option nobody knows, with the nearest known name.

    Args:
        option: The option as the user spelled it.
        known: All options that exist, in the spelling to suggest.
        what: What kind of option it is.
    """

    def __init__(self, option: str, known: Iterable[str], *, what: str = "option") -> None:
        names = list(known)
        super().__init__(f"Unknown {what} '{option}'{suggestion(option, names) or '; see the tables in the README'}")
        self.option = option
        self.suggestion = nearest(option, names)


class InvalidOptionError(ConfigurationError):
    """An option with a value it cannot have.

    Args:
        option: The option as the user spelled it.
        value: The value given; the caller redacts secrets.
        expected: What would be right, as it reads after "expected".
    """

    def __init__(self, option: str, value: object, expected: str) -> None:
        super().__init__(f"Option '{option}' has the value {value!r}; expected {expected}")
        self.option = option


class ConflictingOptionsError(ConfigurationError):
    """Options that cannot be given together.

    Args:
        options: The options in conflict, as the user spelled them.
        remedy: What to do.
    """

    def __init__(self, options: Iterable[str], remedy: str) -> None:
        self.options = tuple(options)
        super().__init__(f"Options {' and '.join(repr(o) for o in self.options)} are in conflict: {remedy}")


class SqlError(ConfigurationError):
    """A SQL statement that is not understood, or that asks for what there is not here.

    Args:
        problem: What is wrong and what to do; the first line of the message, after the position.
        line: The line of the fault, counted from 1 over the whole text.
        column: The character in that line, counted from 1.
        excerpt: That line as it may be shown, and below it a line with a caret under the fault.
    """

    def __init__(self, problem: str, *, line: int, column: int, excerpt: str) -> None:
        super().__init__(f"Line {line}, column {column}: {problem}\n{excerpt}")
        self.line, self.column, self.excerpt = line, column, excerpt


class MissingDependencyError(DynamicKafkaError, ImportError):
    """An optional library is not installed.

    Args:
        library: The distribution that is missing.
        extra: The extra of this package that brings it.
        purpose: What it is needed for.
    """

    def __init__(self, library: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{library} is needed {purpose} and is not installed here: pip install 'pyspark-dynamic-kafka[{extra}]' "
            "(on the driver and on every executor)"
        )


class MetadataServiceError(DynamicKafkaError):
    """The metadata service failed, or answered with a document that is not valid."""

    retriable = True


class RegistryError(DynamicKafkaError):
    """The schema registry does not answer, or does not do what it is asked.

    Args:
        message: What happened, where, and what to do; the first line stands alone.
        retriable: True if the same call may succeed later without any change by the user.
        not_found: True if the registry does not know what it was asked for. A message may be at fault then: one that is
            damaged names any schema.
    """

    def __init__(self, message: str, *, retriable: bool, not_found: bool = False) -> None:
        super().__init__(message)
        self.retriable, self.not_found = retriable, not_found


class ClusterUnavailableError(DynamicKafkaError):
    """A cluster that has to be read does not answer."""

    retriable = True


class OffsetResolutionError(DynamicKafkaError):
    """A start or stop position cannot be found: no committed offset, no record at a timestamp, an unlisted one."""


class DataLossError(DynamicKafkaError):
    """Records that had to be read are gone: retention, deletion, or a topic made again under the old name.

    Args:
        reason: What happened, as a clause.
        cluster_id: The cluster.
        topic: The topic.
        partition: The partition.
        start: The first offset that had to be read.
        end: The offset before which reading had to stop.
    """

    def __init__(self, reason: str, *, cluster_id: str, topic: str, partition: int, start: int, end: int) -> None:
        super().__init__(
            f"Cluster '{cluster_id}', topic '{topic}', partition {partition}, offsets [{start}, {end}): {reason}. "
            "Set failOnDataLoss=false to go on without what is gone",
            cluster_id=cluster_id,
        )
        self.topic, self.partition, self.start, self.end = topic, partition, start, end


class RecordError(DynamicKafkaError):
    """One record cannot be turned into a row.

    Args:
        reason: What is wrong with it, as a clause.
        cluster_id: The cluster.
        topic: The topic.
        partition: The partition.
        offset: The record's offset.
    """

    def __init__(self, reason: str, *, cluster_id: str, topic: str, partition: int, offset: int) -> None:
        super().__init__(
            f"Cluster '{cluster_id}', topic '{topic}', partition {partition}, offset {offset}: {reason}",
            cluster_id=cluster_id,
        )
        self.topic, self.partition, self.offset = topic, partition, offset


class RowError(DynamicKafkaError):
    """One row cannot be turned into a record.

    Args:
        column: The column with the fault.
        reason: What is wrong with it, as a clause; nothing of `key`, `value` or `headers`.
    """

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"A row's column '{column}' {reason}")
        self.column = column


class DeliveryError(DynamicKafkaError):
    """A record was not acknowledged.

    Args:
        reason: What happened and what to do, as a clause.
        cluster_id: The cluster.
        topic: The topic; None if the producer failed as a whole.
        partition: The partition; -1 if none was chosen yet.
        key_bytes: The size of the record's key; None if it has none, or if it is not about one record.
        code: Kafka's name of the error.
        retriable: True if the same write may succeed later.
    """

    def __init__(
        self,
        reason: str,
        *,
        cluster_id: str,
        topic: str | None,
        partition: int,
        key_bytes: int | None,
        code: str,
        retriable: bool,
    ) -> None:
        where = f"Cluster '{cluster_id}'"
        where += f", topic '{topic}'" if topic is not None else ""
        where += f", partition {partition}" if partition >= 0 else ""
        where += f", a record with a key of {key_bytes} bytes" if key_bytes is not None else ""
        super().__init__(f"{where}: {reason} ({code})", cluster_id=cluster_id)
        self.topic, self.partition, self.key_bytes, self.code = topic, partition, key_bytes, code
        self.retriable = retriable


class TransactionError(DynamicKafkaError):
    """A batch could not be published exactly once; unless the message says otherwise nothing of it was."""


class ProducerFencedError(TransactionError):
    """Somebody else took over the transactional id prefix: another run of the query, or another query."""


class LostTransactionsError(TransactionError):
    """Transactions that a decision named are gone, and the others of the batch are published or may be.

    Args:
        batch: The batch's number.
        lost: What is known of each, by transactional id.
        count: How many transactions the batch has.
    """

    def __init__(self, batch: int, lost: Mapping[str, str], count: int) -> None:
        named = "; ".join(f"'{name}' ({what})" for name, what in lost.items())
        super().__init__(
            f"Batch {batch}: {len(lost)} of its {count} transactions cannot be committed any more: {named}. They were "
            "decided, and timed out or were aborted before they were committed; their rows are lost. Find out which rows "
            "are missing, and set sink.lost-transactions=continue for one start to go on without them"
        )
        self.batch, self.lost = batch, dict(lost)


class CheckpointError(DynamicKafkaError):
    """The offsets in the checkpoint are not this source's, or do not fit what is asked of it."""


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name that is most similar to a mistyped one, in its own spelling; None if none is similar.

    Args:
        name: The name as the user wrote it; upper and lower case do not matter.
        known: The names that exist.
        cutoff: The similarity required, from 0 to 1.
    """
    by_lower = {known_name.lower(): known_name for known_name in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[near[0]] if near else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: `; did you mean 'x'?`, or nothing if no name is similar.

    The empty text lets a caller say something else instead: `suggestion(name, known) or "; expected one of ..."`.
    """
    near = nearest(name, known)
    return "" if near is None else f"; did you mean '{near}'?"


def listed(items: Iterable[str], most: int = 10) -> str:
    """Return a list for a message: `a, b, c`, or `a, b, c and 4 more` if there are more than `most` items."""
    names = list(items)
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
