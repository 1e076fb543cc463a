"""The data source `format("dynamic-kafka")`: the class that Spark registers, and its readers.

Spark creates these objects in several processes and pickles them (see docs/explanations/architecture.md). So no constructor
opens anything: the stream reader's threads start with Spark's first call, in the one process that makes such calls.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import DataType, NullType, StructField, StructType

from dynamic_kafka.errors import ConfigurationError, InvalidOptionError, UnknownOptionError
from dynamic_kafka.history.model import HISTORY_ROW
from dynamic_kafka.initializer import KafkaOffsetsInitializer
from dynamic_kafka.native import kernel
from dynamic_kafka.spark.columns import (
    COLUMN_TYPES,
    DECODED,
    DECODING,
    LAST_ROW,
    LEFT_OUT,
    check_columns,
    with_columns,
)
from dynamic_kafka.spark.identity import OfOneVersion, query_of, run_of
from dynamic_kafka.spark_versions import (
    DataSourceStreamArrowWriter,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    has_admission_control,
)

# Every Spark session imports this module through pyspark_dynamic_kafka, so slow modules are imported where they are used.
if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql import SparkSession

    from dynamic_kafka.sink.configure import SinkObjects
    from dynamic_kafka.sink.settings import SinkSettings
    from dynamic_kafka.source.configure import SourceObjects
    from dynamic_kafka.source.driver.enumerator import SourceEnumerator
    from dynamic_kafka.source.executor.tally import Tally
    from dynamic_kafka.source.observation import Observation
    from dynamic_kafka.source.rules.planning import ReadTask
    from dynamic_kafka.source.settings import SourceSettings
    from dynamic_kafka.spark.comparisons import AnyOf
    from dynamic_kafka.spark.message_formats import MessageFormats
    from dynamic_kafka.spark.messages import Messages

__all__ = [
    "ARCHIVE_PLAN",
    "CONDITIONS",
    "NAME",
    "DynamicKafkaDataSource",
    "activate",
    "registered",
]

_log = logging.getLogger(__name__)

NAME = "dynamic-kafka"
ARCHIVE_PLAN = "__archive"
"""The option by which `dynamic_kafka.archive` asks for the writer of a batch into an archive; no option for users."""
CONDITIONS = "__conditions"
"""The option by which a query of SQL says which rows it wants, as `comparisons.as_text`; no option for users."""


class DynamicKafkaDataSource(DataSource):
    """The data source: reads and writes streams on any number of Kafka clusters.

    Rows: `key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int,
    cluster string`, then `headers array<struct<key string, value binary>>` and `leader_epoch int` on request. The user's
    own schema may name some of these columns; then only those are sent to Spark.

    Raises:
        ConfigurationError: When created, that is at `.load()`, if an option is unknown, invalid, missing or in conflict.
        DynamicKafkaError: The same, if the native kernel cannot be used on this machine.
    """

    short_name: ClassVar[str] = NAME
    source_objects: ClassVar[SourceObjects | None] = None
    sink_objects: ClassVar[SinkObjects | None] = None
    _made_here = False
    _source: SourceSettings | None = None
    _formats: MessageFormats | None = None

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._made_here = True
        self._source_options: Mapping[str, str] = {k: text for k, text in options.items() if k != CONDITIONS}
        if any(name.lower().startswith(DECODING) for name in options):
            from dynamic_kafka.spark.message_formats import message_formats

            self._formats, self._source_options = message_formats(options)
        if ARCHIVE_PLAN not in options:
            self._check()
            kernel()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_made_here"}

    @classmethod
    def name(cls) -> str:
        """Return the short name for `format(...)`."""
        return cls.short_name

    def schema(self) -> StructType:
        """Return all columns that the options ask for."""
        settings = self._settings()
        left_out = set()
        if not settings.include_headers:
            left_out.add("headers")
        if not settings.include_leader_epoch:
            left_out.add("leader_epoch")
        types: Mapping[str, DataType] = {}
        if self._formats is not None:
            self._formats = self._formats.with_registered()
            types = self._formats.types()
        return StructType([StructField(n, types.get(n, t)) for n, t in COLUMN_TYPES.items() if n not in left_out])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for `spark.read`: from earliest to latest by default."""
        settings = self._settings()
        if settings.starting == KafkaOffsetsInitializer.latest():
            raise InvalidOptionError(
                "startingOffsets",
                "latest",
                "another start: a batch query reads up to the latest offset, so it would read nothing",
            )
        if settings.limited or settings.min_offsets_per_trigger is not None:
            _log.warning(
                "A batch query reads everything at once: maxOffsetsPerTrigger and the other limits have no effect"
            )
        reader = DynamicKafkaReader(settings, *self._columns(schema))
        if CONDITIONS in self.options:
            from dynamic_kafka.spark.comparisons import from_text

            reader.take(from_text(self.options[CONDITIONS]))
        return reader

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Return the reader for `spark.readStream`: from latest on by default, for a builder from earliest on."""
        settings = self._settings()
        waits = settings.min_offsets_per_trigger is not None or settings.alignment_group is not None
        if (settings.limited or waits) and not has_admission_control():
            _log.warning(
                "This version of Spark does not tell a source in Python about the trigger: with Trigger.AvailableNow and "
                "Trigger.Once the query ends after one batch of the size that the limits allow, and with "
                "minOffsetsPerTrigger or watermark alignment perhaps before it has read anything. Leave these options out "
                "with these triggers, or use Spark 4.2 or newer"
            )
        if self.source_objects is None:
            settings = settings.with_default_start(KafkaOffsetsInitializer.latest())
        return DynamicKafkaStreamReader(settings, *self._columns(schema))

    def _columns(self, schema: StructType) -> tuple[StructType, Messages | None]:
        """Return the columns to fetch for those of a query, and how these are made of them if messages are decoded."""
        messages = None
        if self._formats is not None:
            messages = self._formats.messages(schema)
        elif any(DECODED in column.metadata for column in schema.fields):
            from dynamic_kafka.spark.messages import messages_of

            messages = messages_of(schema)
        check_columns(schema if messages is None else messages.fetched(schema))
        return schema, messages

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001  # Spark's signature
        """Return the writer for `df.write`, which only supports the mode append."""
        if overwrite:
            raise ConfigurationError("Kafka cannot be overwritten; write with mode('append')")
        if ARCHIVE_PLAN in self.options:
            from dynamic_kafka.spark.archive_writer import ArchiveWriter

            return ArchiveWriter(self.options[ARCHIVE_PLAN])
        from dynamic_kafka.spark.writers import batch_writer

        return batch_writer(*self._sink_settings(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802, FBT001
        """Return the writer for `df.writeStream`. Complete mode appends each batch, as in Spark's own sink."""
        del overwrite
        from dynamic_kafka.spark.writers import stream_writer

        # In the process that only commits batches, Spark did not create this object but unpickled it.
        return stream_writer(*self._sink_settings(schema), run_of(self.options), plans=self._made_here)

    def _sink_settings(self, schema: StructType) -> tuple[SinkSettings, Mapping[str, str]]:
        """Return the settings, and the specs of the columns whose rows the sink encodes."""
        import pyarrow as pa

        from dynamic_kafka.formats.arrow import arrow_type
        from dynamic_kafka.sink.records import COLUMNS, ENCODER, check_schema

        settings = self._configured_sink()
        specs = {f.name: f.metadata[ENCODER] for f in schema.fields if ENCODER in f.metadata}

        def sent(field: StructField) -> pa.DataType:
            if field.name not in COLUMNS or isinstance(field.dataType, NullType):  # refused by its name, or as null
                return pa.null()
            return pa.binary() if field.name in specs else arrow_type(field.dataType)

        check_schema(pa.schema([(field.name, sent(field)) for field in schema.fields]), settings)
        return settings, specs

    def _configured_sink(self) -> SinkSettings:
        from dynamic_kafka.sink.configure import configure_sink

        try:
            return configure_sink(self.options, self.sink_objects)
        except UnknownOptionError as error:
            from dynamic_kafka.spark.mistakes import in_writer

            raise in_writer(error) from None

    def _check(self) -> None:
        """Raise for invalid options. Spark does not say whether the object is for reading or writing: one has to fit."""
        try:
            self._settings()
        except ConfigurationError as source_error:
            try:
                self._configured_sink()
            except ConfigurationError as sink_error:
                from dynamic_kafka.spark.mistakes import neither

                raise neither(self.options, source_error, sink_error) from None

    def _settings(self) -> SourceSettings:
        """Return the settings of a source. They are pickled with this object, so the options are parsed once."""
        if self._source is None:
            from dynamic_kafka.source.configure import configure_source

            try:
                self._source = configure_source(self._source_options, self.source_objects)
            except UnknownOptionError as error:
                from dynamic_kafka.spark.mistakes import in_reader

                raise in_reader(error) from None
        return self._source


def register_format(spark: SparkSession) -> None:
    """Register the format, unless the session knows it.

    Spark finds the format by itself, and warns of each one that is replaced.
    """
    try:
        session: Any = spark
        known = session._jsparkSession.sessionState().dataSourceManager().dataSourceExists(NAME)
    except AttributeError:  # Spark Connect: there is no JVM to ask, and no public question
        known = False
    if not known:
        spark.dataSource.register(DynamicKafkaDataSource)


def activate(spark: SparkSession) -> None:
    """Make a session the active one of this thread: Spark looks for a format in the active session, not in the DataFrame's.

    A new thread has no active session. Then a batch takes the first session of the program, and the start of a stream finds
    no data source in Python.
    """
    session: Any = spark
    with suppress(AttributeError):  # Spark Connect: its sessions are objects of this process
        session._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)


def registered(spark: SparkSession, builder_id: str, **objects: object) -> str:
    """Register a data source class that carries the objects of a builder as they are now, and return its name.

    Spark pickles a class when it is registered. So objects that have changed since, such as a metadata service in this
    process, are registered again.
    """
    serializer: Any = CloudPickleSerializer
    key = f"{NAME}.builder.{builder_id}.{hashlib.sha256(serializer().dumps(objects)).hexdigest()[:16]}"
    # A cloned session, as each query has one, keeps both the configuration and the data sources.
    name = spark.conf.get(key, None)
    if name is None:
        name = f"{NAME}-{uuid.uuid4().hex[:12]}"  # unique, because Spark also looks for it in other sessions
        attributes = {"short_name": name, **objects}
        spark.dataSource.register(type(DynamicKafkaDataSource.__name__, (DynamicKafkaDataSource,), attributes))
        spark.conf.set(key, name)
    return name


@dataclass
class DynamicKafkaInputPartition(InputPartition):
    """A task. It is pickled in every micro-batch, so it holds only what changes from batch to batch."""

    task: ReadTask


@dataclass
class ObservedInputPartition(DynamicKafkaInputPartition):
    """A task that reports what it reads to the metrics server."""

    observation: Observation


class _ExecutorSide(OfOneVersion):
    """The part of both readers that runs on the executors."""

    def __init__(self, settings: SourceSettings, schema: StructType, messages: Messages | None = None) -> None:
        fetched = schema if messages is None else messages.fetched(schema)
        self._settings = with_columns(settings, fetched)
        self._schema = schema
        self._fetched = tuple(name for name in fetched.names if name != LAST_ROW)
        self._messages = messages

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's ranges; Spark calls it on an executor."""
        from dynamic_kafka.spark.tcp_quickack import acknowledge_at_once

        acknowledge_at_once()
        return self.rows(partition)

    def rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's ranges, in whichever process."""
        if not isinstance(partition, DynamicKafkaInputPartition):
            return iter(())  # Spark creates an empty partition if a plan has none
        if LAST_ROW not in self._schema.names:
            return self._read(partition)
        from dynamic_kafka.spark.last_row import last_row, with_column

        if partition.task.last_row:
            return iter((last_row(self._schema),))
        return with_column(self._read(partition), self._schema.names)

    def _read(self, partition: DynamicKafkaInputPartition) -> Iterator[pa.RecordBatch]:
        """Return batches of the query's columns but `LAST_ROW`. The task counts as begun, before its first batch."""
        task, tally = partition.task, self._tally(partition)
        batches = self._batches(task, tally)
        if self._messages is None:
            return batches
        return self._messages.rows(batches, None if task.history is not None else tally)

    def _batches(self, task: ReadTask, tally: Tally | None) -> Iterator[pa.RecordBatch]:
        """Yield batches of the columns that are fetched."""
        import pyarrow as pa

        from dynamic_kafka.rows import arrow_schema
        from dynamic_kafka.source.executor.reader import read

        names = list(self._fetched)
        schema = arrow_schema([name for name in names if name != HISTORY_ROW])
        if HISTORY_ROW not in names:
            batches = read(task, schema, self._settings, tally)
        else:
            assert self._settings.history is not None
            row = pa.field(HISTORY_ROW, self._settings.history.row)
            if task.history is not None:
                schema = schema.append(row)
            batches = _with_history_row(read(task, schema, self._settings, tally), row, names)
        if tally is None:
            return batches
        from dynamic_kafka.source.executor.tally import reported

        return reported(batches, tally)

    def _tally(self, partition: DynamicKafkaInputPartition) -> Tally | None:
        """Return where the task counts what it reads; None without metrics."""
        if not isinstance(partition, ObservedInputPartition):
            return None
        from pyspark import TaskContext

        from dynamic_kafka.source.executor.tally import tally_of

        tally = tally_of(partition.observation)
        tally.begin(*query_of(TaskContext.get()))
        return tally


def _with_history_row(
    batches: Iterator[pa.RecordBatch], row: pa.Field, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield batches with the column `HISTORY_ROW`, which is null for Kafka's records."""
    import pyarrow as pa

    for batch in batches:
        whole = batch if row.name in batch.schema.names else batch.append_column(row, pa.nulls(len(batch), row.type))
        yield whole.select(names)


class DynamicKafkaReader(_ExecutorSide, DataSourceReader):
    """The reader of batch queries: planned once, from the starting to the stopping offsets."""

    _where: pc.Expression | None = None
    _wanted: tuple[AnyOf, ...] = ()

    def take(self, wanted: Sequence[AnyOf]) -> None:
        """Leave out offsets and rows that are not wanted; see `comparisons`. The query has to drop all others itself."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from dynamic_kafka.formats.arrow import arrow_type
        from dynamic_kafka.spark.comparisons import expression_of

        self._wanted = tuple(wanted)
        compared = {one.path[0] for any_of in wanted for one in any_of} - {HISTORY_ROW}
        types = {c.name: arrow_type(c.dataType) for c in self._schema.fields if c.name in compared}
        self._where = where = expression_of(wanted, pa.schema(types))
        if where is None:
            return
        # These rows have no columns of a message.
        if LEFT_OUT in self._schema.names:
            self._where = where | pc.field(LEFT_OUT).is_valid()
        if HISTORY_ROW in self._schema.names and (history := self._settings.history) is not None:
            found = expression_of(wanted, pa.schema({HISTORY_ROW: history.row}))
            self._where |= pc.field(HISTORY_ROW).is_valid() if found is None else found

    def rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's ranges, without rows that are not wanted."""
        for batch in super().rows(partition):
            kept = batch if self._where is None else batch.filter(self._where)
            if len(kept):
                yield kept

    def partitions(self) -> list[InputPartition]:
        """Return the tasks. Spark calls it once for each plan, on the driver."""
        from dynamic_kafka.source.driver.enumerator import SourceEnumerator
        from dynamic_kafka.spark.comparisons import condition_of

        conditions = [found for one in self._wanted if (found := condition_of(one)) is not None]
        tasks = SourceEnumerator(self._settings).batch_tasks(conditions)
        return [DynamicKafkaInputPartition(self._narrowed(task)) for task in tasks]

    def _narrowed(self, task: ReadTask) -> ReadTask:
        """Return a task that knows which rows of a history are wanted."""
        if task.history is None or not self._wanted:
            return task
        from dynamic_kafka.spark.comparisons import expression_of, of_history

        wanted = of_history(self._wanted, decoded=task.history.history.decoded)
        return task._replace(history=task.history._replace(where=partial(expression_of, wanted)))


class DynamicKafkaStreamReader(_ExecutorSide, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of streaming queries: a `SourceEnumerator`, created at the first call, answers Spark's calls."""

    _enumerator: SourceEnumerator | None = None
    _reached: dict[str, Any] | None = None

    def _open(self) -> SourceEnumerator:
        if self._enumerator is None:
            metrics = self._settings.metrics
            if metrics is None:
                from dynamic_kafka.source.driver.enumerator import SourceEnumerator

                self._enumerator = SourceEnumerator(self._settings)
            else:
                from dynamic_kafka.source.driver.observed import ObservedEnumerator

                self._enumerator = ObservedEnumerator(self._settings, metrics)
        return self._enumerator

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return a constant: Spark calls it on every start, also when the query resumes."""
        from dynamic_kafka.source.document.offsets import MARKER

        return MARKER

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return the offset document of the next batch, or `start` itself if there is nothing to read.

        Before Spark 4.2 there are no arguments: see `versions`.
        """
        if start is None:
            start = self.initialOffset() if self._reached is None else self._reached
            limit = self.getDefaultReadLimit()
        self._reached = dict(self._open().latest_offset(start, limited=not isinstance(limit, ReadAllAvailable)))
        return self._reached

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return whether triggers are limited. The limits themselves are the user's options."""
        settings = self._settings
        waits = settings.min_offsets_per_trigger is not None or settings.alignment_group is not None
        if not settings.limited and not waits:
            return ReadAllAvailable()  # otherwise only Trigger.Once asks for it
        return ReadMaxRows(settings.max_offsets_per_trigger or 2**31 - 1)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Freeze metadata and end offsets at the next call of `latestOffset`."""
        self._open().prepare_available_now()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return lag and health, for `StreamingQueryProgress.sources[].latestOffset`."""
        return self._open().report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch, from the text of its documents alone."""
        enumerator = self._open()
        self._reached = end
        tasks = enumerator.tasks(start, end)
        if self._settings.metrics is None:
            return [DynamicKafkaInputPartition(task) for task in tasks]
        from dynamic_kafka.source.driver.observed import ObservedEnumerator

        assert isinstance(enumerator, ObservedEnumerator)
        return [ObservedInputPartition(task, enumerator.observation) for task in tasks]

    def stop(self) -> None:
        """End the threads. Spark calls it when an error ends the query."""
        if self._enumerator is not None:
            self._enumerator.close()
