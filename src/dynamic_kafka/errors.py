"""The errors that this package raises on purpose, as one tree, and the helpers that word them.

    DynamicKafkaError
    ├── ConfigurationError (ValueError)     the user's options or properties are wrong
    │   ├── UnknownOptionError
    │   ├── InvalidOptionError
    │   ├── ConflictingOptionsError
    │   └── SqlError                        a SQL statement is wrong or not supported, with line and column
    ├── MissingDependencyError (ImportError)  an optional library is not installed
    ├── MetadataServiceError                the metadata service failed, or its answer is invalid   (retriable)
    ├── RegistryError                       the schema registry does not answer, or refuses
    ├── ClusterUnavailableError             a cluster does not answer                               (retriable)
    ├── OffsetResolutionError               a start or stop offset cannot be determined
    ├── DataLossError                       records were deleted before they were read
    ├── HistoryError                        a file of the history was changed, deleted, or cannot be read
    ├── RecordError                         a record cannot be turned into a row
    │   └── SchemaEvolutionError            a record has fields that are newer than the query's columns
    ├── RowError                            a row cannot be turned into a record
    ├── DeliveryError                       a record was not acknowledged
    ├── TransactionError                    a batch could not be published
    │   ├── ProducerFencedError             another writer took over the transactional id prefix
    │   └── LostTransactionsError           transactions were lost after the decision to commit them
    ├── CheckpointError                     the offsets in the checkpoint are foreign, damaged or do not fit
    └── ArchiveError                        an archive is damaged, or would lose or repeat records

Spark shows an error from a Python data source as text, after the name of its own exception class, and often only the
first line. So the first line of each message stands alone. It says what happened, where (option, or cluster, topic,
partition and offsets), and what to do. No message holds a secret. All errors can be pickled, because they cross from
Spark's workers to the driver.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Literal

__all__ = [
    "ArchiveError",
    "CheckpointError",
    "ClusterUnavailableError",
    "ConfigurationError",
    "ConflictingOptionsError",
    "DataLossError",
    "DeliveryError",
    "DynamicKafkaError",
    "HistoryError",
    "InvalidOptionError",
    "LostTransactionsError",
    "MetadataServiceError",
    "MissingDependencyError",
    "OffsetResolutionError",
    "ProducerFencedError",
    "RecordError",
    "RegistryError",
    "RowError",
    "SchemaEvolutionError",
    "SqlError",
    "TransactionError",
    "UnknownOptionError",
]


class DynamicKafkaError(Exception):
    """The base class of all errors of this package.

    Args:
        message: What happened, where, and what to do. The first line stands alone.
        cluster_id: The Kafka cluster concerned, if there is one.

    Attributes:
        retriable: True if the same call may succeed later without any change by the user.
    """

    retriable: bool = False

    def __init__(self, message: str, *, cluster_id: str | None = None) -> None:
        super().__init__(message)
        self.cluster_id = cluster_id

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own __reduce__ calls cls(*args), which fails for subclasses with other arguments.
        return _restore, (type(self), self.args, self.__dict__.copy())


def _restore(cls: type[DynamicKafkaError], args: tuple[Any, ...], state: dict[str, Any]) -> DynamicKafkaError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigurationError(DynamicKafkaError, ValueError):
    """Raised when options or properties are wrong, before anything is read or written."""


class UnknownOptionError(ConfigurationError):
    """Raised when an option does not exist; suggests the most similar name.

    Args:
        option: The option as the user spelled it; of a property, the name without its prefix.
        known: All options that exist, in the spelling to suggest.
        what: The kind of option, for the message.
        meant: What to do, if that is known, as it reads after the name.

    Attributes:
        suggestion: The most similar name that exists; None if none is similar.
    """

    def __init__(self, option: str, known: Iterable[str], *, what: str = "option", meant: str = "") -> None:
        names = list(known)
        help_ = (
            f"; {meant}"
            if meant
            else suggestion(option, names) or "; see docs/reference/options.md and docs/reference/sql.md"
        )
        super().__init__(f"Unknown {what} '{option}'{help_}")
        self.option, self.what = option, what
        self.suggestion = None if meant else nearest(option, names)


class InvalidOptionError(ConfigurationError):
    """Raised when an option has an invalid value.

    Args:
        option: The option as the user spelled it.
        value: The value given. The caller redacts secrets.
        expected: The values allowed, as they read after "expected".
    """

    def __init__(self, option: str, value: object, expected: str) -> None:
        super().__init__(f"Option '{option}' has the value {value!r}; expected {expected}")
        self.option = option


class ConflictingOptionsError(ConfigurationError):
    """Raised when options cannot be given together.

    Args:
        options: The conflicting options, as the user spelled them.
        remedy: The way to resolve the conflict.
    """

    def __init__(self, options: Iterable[str], remedy: str) -> None:
        self.options = tuple(options)
        super().__init__(f"Options {' and '.join(repr(o) for o in self.options)} are in conflict: {remedy}")


class SqlError(ConfigurationError):
    """Raised when a SQL statement cannot be parsed or uses a feature that is not supported.

    Args:
        problem: What is wrong and what to do. It follows the position in the first line of the message.
        line: The line of the error, counted from 1 over the whole text.
        column: The character in that line, counted from 1.
        excerpt: That line without secrets, and below it a line with a caret under the error.
        unfinished: True if the text ends within a string, a name, a comment or a statement set, so that more text may
            complete it.

    Attributes:
        query: The query that line and column are counted in, if it may be a part of a longer text; otherwise None.
        offset: The place of the error, as an index into that query.
        problem: As given.
    """

    def __init__(self, problem: str, *, line: int, column: int, excerpt: str, unfinished: bool = False) -> None:
        super().__init__(f"Line {line}, column {column}: {problem}\n{excerpt}")
        self.line, self.column, self.excerpt, self.unfinished = line, column, excerpt, unfinished
        self.problem = problem
        self.query: str | None = None
        self.offset = 0


class MissingDependencyError(DynamicKafkaError, ImportError):
    """Raised when an optional library is needed and not installed.

    Args:
        library: The distribution that is missing.
        extra: The extra of this package that installs it.
        purpose: The use of the library, as it reads after "is needed".
    """

    def __init__(self, library: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{library} is needed {purpose}, but it is not installed here; install it on the driver and on every executor: "
            f"pip install 'pyspark-dynamic-kafka[{extra}]'"
        )


class MetadataServiceError(DynamicKafkaError):
    """Raised when the metadata service fails, or when its answer is not valid."""

    retriable = True


class RegistryError(DynamicKafkaError):
    """Raised when the schema registry does not answer, or refuses a request.

    Args:
        message: What happened, where, and what to do. The first line stands alone.
        retriable: True if the same call may succeed later without any change by the user.
        not_found: True if the schema does not exist in the registry. Then the message may be damaged: it can contain
            any schema id.
    """

    def __init__(self, message: str, *, retriable: bool, not_found: bool = False) -> None:
        super().__init__(message)
        self.retriable, self.not_found = retriable, not_found


class ClusterUnavailableError(DynamicKafkaError):
    """Raised when a cluster that is needed does not answer."""

    retriable = True


class OffsetResolutionError(DynamicKafkaError):
    """Raised when a start or stop offset cannot be determined.

    The group has no committed offset, there is no record at or after a timestamp, or a partition is not listed.
    """


class DataLossError(DynamicKafkaError):
    """Raised when records were deleted before they were read: by retention, or with their topic.

    Args:
        reason: What happened, as a clause.
        cluster_id: The cluster.
        topic: The topic.
        partition: The partition.
        start: The first offset of the range that had to be read.
        end: The offset after the range.
        skip: The value of the option `skip-offsets` that gives up this range alone; "" if it is not a planned range: then
            no batch repeats it, and the end of what is lost may be unknown.
    """

    def __init__(
        self, reason: str, *, cluster_id: str, topic: str, partition: int, start: int, end: int, skip: str = ""
    ) -> None:
        once = f", or start the query once with skip-offsets={skip} to give up only these offsets" if skip else ""
        super().__init__(
            f"Cluster '{cluster_id}', topic '{topic}', partition {partition}, offsets [{start}, {end}): {reason}. "
            f"Set failOnDataLoss=false for one start to continue without the lost records{once}",
            cluster_id=cluster_id,
        )
        self.topic, self.partition, self.start, self.end = topic, partition, start, end


class HistoryError(DynamicKafkaError):
    """Raised when a file of a history is not the same any more, or cannot be read.

    Args:
        file: The file.
        problem: What happened, as it reads after the file.
    """

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(
            f"The history's file '{file}' {problem}. The query has frozen the history when it first started, and reads all "
            "of it: put the file back as it was and start the query again, or start with a new checkpoint. Set "
            "failOnDataLoss=false to go on without the rest of the file's rows"
        )
        self.file, self.problem = file, problem


class RecordError(DynamicKafkaError):
    """Raised when a record cannot be turned into a row.

    Args:
        reason: What is wrong with the record, as a clause.
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


class SchemaEvolutionError(RecordError):
    """Raised when a record has fields that are newer than the query's columns, with `schema-evolution` = `fail`.

    Args:
        reason: What is new, and what to do, as a clause.
        subject: The subject of the schema.
        schema_id: The schema's id or GUID, as text.
        fields: The paths of the new fields; none if columns cannot be made of the schema.
        place: The record's cluster, topic, partition and offset.
    """

    def __init__(
        self,
        reason: str,
        *,
        subject: str,
        schema_id: str,
        fields: tuple[str, ...],
        place: tuple[str, str, int, int],
    ) -> None:
        cluster_id, topic, partition, offset = place
        super().__init__(reason, cluster_id=cluster_id, topic=topic, partition=partition, offset=offset)
        self.subject, self.schema_id, self.fields = subject, schema_id, fields


class RowError(DynamicKafkaError):
    """Raised when a row cannot be turned into a record.

    Args:
        column: The column with the error; empty if it is the row as a whole.
        reason: What is wrong, as it reads after the column's name. Never contains data of `key`, `value` or `headers`.
    """

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"A row's column '{column}' {reason}" if column else f"A row {reason}")
        self.column = column


class DeliveryError(DynamicKafkaError):
    """Raised when a record was not acknowledged.

    Args:
        reason: What happened and what to do, as a clause.
        cluster_id: The cluster.
        topic: The topic; None if the producer failed as a whole.
        partition: The partition; -1 if none was chosen yet.
        key_bytes: The size of the record's key; None without a key, or if the producer failed as a whole.
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
    """Raised when a batch could not be published exactly once.

    Nothing of the batch was published unless the message says otherwise.
    """


class ProducerFencedError(TransactionError):
    """Raised when another run of the query, or another query, took over the transactional id prefix."""


class LostTransactionsError(TransactionError):
    """Raised when transactions were lost after the decision to commit them; the batch's other ones may be published.

    Args:
        batch: The batch's number.
        lost: Transactional id to what is known of the transaction.
        count: The number of transactions in the batch.
    """

    def __init__(self, batch: int, lost: Mapping[str, str], count: int) -> None:
        named = "; ".join(f"'{name}' ({what})" for name, what in lost.items())
        rest = f"The other {count - len(lost)} are committed" if count > len(lost) else "None is known to be committed"
        super().__init__(
            f"Batch {batch}: {len(lost)} of its {count} transactions cannot be committed any more: {named}. {rest}. The "
            "decision to commit all of them was written down, but these timed out, were aborted, or are not known any more. "
            "Find out which rows of the batch are in the topics. To go on with those and without the others, set "
            f"sink.lost-transactions=continue:{batch}. To write the whole batch again, so that rows which are there appear "
            f"twice, set sink.lost-transactions=rewrite:{batch}"
        )
        self.batch, self.lost = batch, dict(lost)


class CheckpointError(DynamicKafkaError):
    """Raised when the offsets in the checkpoint are not this source's, are damaged, or do not fit the query."""


class ArchiveError(DynamicKafkaError):
    """Raised when an archive is damaged, or when a change of it would lose or repeat records."""


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


Resource = Literal["topic", "group", "transactional-id", "cluster"]
"""A kind of resource that ACLs are about, as `kafka-acls.sh` spells it."""


def may_not(user: str, operations: Iterable[str], resource: Resource, name: str = "", *, prefixed: bool = False) -> str:
    """Return the clauses of a message about missing rights: who may not do what, and the command that grants it.

    Args:
        user: The user, as `kafka.logins.principal` returns it.
        operations: The operations that are needed, as ACLs name them.
        resource: The kind of the resource.
        name: The name of the resource; "" for the cluster.
        prefixed: True to grant it for all names that begin so.
    """
    needed = list(operations)
    what = "the cluster" if resource == "cluster" else f"{resource.replace('-', ' ')} '{name}'"
    flag = "--cluster" if resource == "cluster" else f"--{resource} '{name}'"
    flag += " --resource-pattern-type prefixed" if prefixed else ""
    who = user if user.startswith("User:") else "User:<name>"
    flags = " ".join(f"--operation {operation}" for operation in needed)
    return (
        f"{user} may not {' and '.join(needed)} {what}{'*' if prefixed else ''}; grant it with kafka-acls.sh --add "
        f"--allow-principal '{who}' {flags} {flag}"
    )


def listed(items: Iterable[str], most: int = 10) -> str:
    """Return a list for a message: `a, b, c`, or `a, b, c and 4 more` if there are more than `most` items."""
    names = list(items)
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def plural(count: int, noun: str) -> str:
    """Return a number of things, such as `1 row` and `2 rows`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
