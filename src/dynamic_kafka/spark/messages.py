"""Messages become rows in the task that reads them: decoded, checked, and handed over as the columns of a query.

Rules:

1. `format.on-error` is applied to each message that is read, whichever columns a query selects, and whichever conditions it
   has: `fail` ends the task, `skip` leaves the message out, `dead-letter` sends it to a topic and leaves it out. Only the
   metadata of a changelog message (`value.source.database`) are checked if a query selects them, and not otherwise.
2. A message that the format skips (`json.ignore-parse-errors`) is no row, as in Flink.
3. Of a table, a message without a value is no row. A table that is an upsert of its keys has no row for a message without a
   key, and a message without a value is a tombstone there; a key with a NULL cannot be read.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from dynamic_kafka.errors import RecordError, SchemaEvolutionError
from dynamic_kafka.formats import ERROR, METADATA, ROW_KIND, ROWS, FormatOptions, format_named
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.evolution import first_newer, must_fail, reason_of
from dynamic_kafka.formats.format import COORDINATES, ON_ERROR_ADVICE, Used, reason
from dynamic_kafka.formats.schema_ids import header_values, in_headers
from dynamic_kafka.history.model import HISTORY_ROW
from dynamic_kafka.spark.columns import COLUMN_TYPES, DECODED, LAST_ROW, LEFT_OUT
from dynamic_kafka.spark.dead_letters import DeadLetters, send

if TYPE_CHECKING:
    from dynamic_kafka.source.executor.tally import Tally

__all__ = ["Messages", "Part", "column_of", "messages_of", "with_prefix"]


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """A column whose messages are decoded.

    Args:
        name: `key` or `value`.
        form: The name of its format.
        prefix: The beginning of the names of the format's options, as a user has given them.
        options: The format's options.
        columns: The columns of its messages. All are checked, so a message can be an error by one that is not used, too.
        type: The column's type: a struct of the used columns; for a changelog format an array of changes; for `raw` it may
            also be the type of the message itself.
        required: True if a message without it is no row.
        primary_key: Of a table that is an upsert of its keys: what its columns have as names there.
    """

    name: str
    form: str
    prefix: str
    options: FormatOptions = field(repr=False)
    columns: StructType
    type: DataType
    required: bool = False
    primary_key: tuple[str, ...] = ()

    def decoder(self, *, upsert: bool) -> Callable[[pa.RecordBatch], pa.Array]:
        """Return what takes fetched messages, and returns what the format's decoder makes of them.

        Args:
            upsert: True for no row of a message without bytes, whatever the format has for it.
        """
        rows_of = format_named(self.form).decoder(self.columns, self.options, self._used())
        has_headers = in_headers(self.form, self.options)

        def decode(batch: pa.RecordBatch) -> pa.Array:
            messages = batch[self.name]
            if has_headers:
                return rows_of(messages, header_values(batch["headers"], self.name))
            rows = rows_of(messages)
            return _masked(rows, messages.is_null()) if upsert and self.form == "raw" else rows

        return decode

    def _used(self) -> Used:
        """Return what a query uses of the messages, and the columns that are looked at for it."""
        keys, type_, metadata = self.columns.names[: len(self.primary_key)], self.type, list[str]()
        if isinstance(type_, ArrayType):  # of a changelog format
            change: Any = type_.elementType
            type_, metadata = (
                change["row"].dataType,
                change[METADATA].dataType.names if METADATA in change.names else [],
            )
        names = type_.names if isinstance(type_, StructType) else self.columns.names
        return Used(frozenset([*names, *keys]), frozenset(metadata))

    def newer_refused(self) -> Callable[[pa.RecordBatch], None] | None:
        """Return what raises `SchemaEvolutionError` if a fetched message has new fields; None if the query goes on then."""
        if not must_fail(format_named(self.form), self.options):
            return None
        first, has_headers = first_newer(self.form, self.options), in_headers(self.form, self.options)

        def refuse(batch: pa.RecordBatch) -> None:
            found = first(batch[self.name], header_values(batch["headers"], self.name) if has_headers else None)
            if found is not None:
                place, newer = found
                raise SchemaEvolutionError(
                    with_prefix(reason_of(newer, self.name, self.form), self.prefix, self.form),
                    subject=newer.subject,
                    schema_id=str(newer.schema_id),
                    fields=newer.fields,
                    place=_place(batch, place),
                )

        return refuse


@dataclass(frozen=True)
class Messages:
    """Makes the columns of a query from those that are fetched.

    Args:
        columns: The columns of the query, in order.
        parts: The decoded ones.
        on_error: The policy for messages that cannot be read: `fail`, `skip` or `dead-letter`.
        letters: The topic for them, for the policy `dead-letter`.
    """

    columns: tuple[str, ...]
    parts: tuple[Part, ...]
    on_error: str
    letters: DeadLetters | None

    def fetched(self, schema: StructType) -> StructType:
        """Return the source's columns that are needed for a query's schema."""
        names = {*self.columns, *COORDINATES, *(part.name for part in self.parts)}
        names |= {"key"} if self.letters is not None else set()
        names |= {"headers"} if any(in_headers(part.form, part.options) for part in self.parts) else set()
        made = {LEFT_OUT, *(part.name for part in self.parts)}
        given = [column for column in schema.fields if column.name not in made]
        missing = [StructField(n, t) for n, t in COLUMN_TYPES.items() if n in names - {c.name for c in given}]
        return StructType([*given, *missing])

    def rows(self, batches: Iterator[pa.RecordBatch], tally: Tally | None) -> Iterator[pa.RecordBatch]:
        """Yield batches with the columns of the query.

        Args:
            batches: Batches of the fetched columns.
            tally: Where messages that cannot be read are counted; None to count nothing.

        Raises:
            RecordError: If a message cannot be read, with the policy `fail`.
            SchemaEvolutionError: If a message has new fields, and its format must fail then.
        """
        upsert = any(part.primary_key for part in self.parts)
        decoders = [part.decoder(upsert=upsert) for part in self.parts]
        refusals = [refuse for part in self.parts if (refuse := part.newer_refused()) is not None]
        if tally is not None:
            tally.count_decode_errors({})
        names = [name for name in self.columns if name != LAST_ROW]
        types = [arrow_type(part.type) for part in self.parts]
        left_out, first = 0, None
        for fetched in batches:
            for refuse in refusals:
                refuse(fetched)
            for batch, found in _decoded(fetched, decoders):
                why = self._errors(batch, found)
                if why is not None:
                    first = first or _first_place(batch, why)
                    left_out += len(why) - why.null_count
                    self._refuse(batch, why, tally)
                made = {
                    p.name: _column(p, rows, type_) for p, rows, type_ in zip(self.parts, found, types, strict=True)
                }
                if LEFT_OUT in self.columns:
                    made[LEFT_OUT] = pa.nulls(len(batch), pa.bool_()) if why is None else _true_or_null(why.is_valid())
                whole = pa.RecordBatch.from_arrays([made[n] if n in made else batch[n] for n in names], names)
                keep = self._kept(batch, found, why)
                if keep is not None:
                    whole = whole.filter(keep)
                if len(whole):
                    yield whole
        if left_out:
            place = "cluster '%s', topic '%s', partition %d, offset %d"
            _log.warning(f"%d messages cannot be read and are left out; the first: {place}", left_out, *(first or ()))

    def _errors(self, batch: pa.RecordBatch, found: list[pa.Array]) -> pa.Array | None:
        """Return why messages cannot be read; null for those that can, and None if all can."""
        whys: list[str | None] | None = None
        for part, rows in zip(self.parts, found, strict=True):
            for i, error in _errors_of(part, rows):
                whys = whys or [None] * len(batch)
                text = with_prefix(error, part.prefix, part.form)
                whys[i] = whys[i] or reason(f"the {part.name}", part.form, text, batch[part.name][i].as_py() or b"")
        return None if whys is None else pa.array(whys, pa.string())

    def _kept(self, batch: pa.RecordBatch, found: list[pa.Array], why: pa.Array | None) -> pa.Array | None:
        """Return which messages are handed over; None if all are."""
        missing = []
        for part, rows in zip(self.parts, found, strict=True):
            if rows.null_count and (part.required or part.name == "value"):
                import pyarrow.compute as pc  # takes 40 ms, and most tasks do not need it

                # A value that is null although it has bytes was skipped by the format.
                missing.append(rows.is_null() if part.required else pc.and_(rows.is_null(), batch["value"].is_valid()))
        if why is None and not missing:
            return None
        import pyarrow.compute as pc

        keep = pa.repeat(True, len(batch))
        for rows in missing:
            keep = pc.and_not(keep, rows)
        if HISTORY_ROW in batch.schema.names:
            keep = pc.or_(keep, batch[HISTORY_ROW].is_valid())
        if why is None:
            return keep
        return pc.or_(keep, why.is_valid()) if LEFT_OUT in self.columns else pc.and_(keep, why.is_null())

    def _refuse(self, batch: pa.RecordBatch, why: pa.Array, tally: Tally | None) -> None:
        """Apply the policy to the messages that cannot be read."""
        if tally is not None:
            topics = batch["topic"].filter(why.is_valid()).value_counts().to_pylist()
            cluster = batch["cluster"][0].as_py()
            tally.count_decode_errors({(cluster, topic["values"]): topic["counts"] for topic in topics})
        if self.on_error == "fail":
            cluster, topic, partition, offset = _first_place(batch, why)
            text = f"{why.drop_null()[0].as_py()}. {ON_ERROR_ADVICE}"
            raise RecordError(text, cluster_id=cluster, topic=topic, partition=partition, offset=offset)
        if self.letters is not None:
            send(self.letters, [why, *(batch[name] for name in ("key", "value", *COORDINATES))])


# --- as columns of a schema: how `sql.connectors.scan` says what it wants ---


def column_of(part: Part, on_error: str, letters: DeadLetters | None) -> StructField:
    """Return the column of a part, with all that `messages_of` needs in its metadata, which plans do not show."""
    # Options hold references to secrets, which are looked up where messages are decoded.
    topic = None if letters is None else {"topic": letters.topic, "properties": dict(letters.properties)}
    spec = {
        "on_error": on_error,
        "letters": topic,
        "form": part.form,
        "prefix": part.prefix,
        "options": dict(part.options),
        "columns": part.columns.jsonValue(),
        "required": part.required,
        "primary_key": part.primary_key,
    }
    return StructField(part.name, part.type, metadata={DECODED: json.dumps(spec)})


def messages_of(schema: StructType) -> Messages | None:
    """Return how the columns of a query are made that have a `column_of`; None if there are none."""
    specs = {
        column.name: json.loads(column.metadata[DECODED]) for column in schema.fields if DECODED in column.metadata
    }
    if not specs:
        return None
    parts = []
    for name, spec in specs.items():
        on_error, topic = spec.pop("on_error"), spec.pop("letters")
        columns, key = StructType.fromJson(spec.pop("columns")), tuple(spec.pop("primary_key"))
        parts.append(Part(name, columns=columns, type=schema[name].dataType, primary_key=key, **spec))
    return Messages(tuple(schema.names), tuple(parts), on_error, None if topic is None else DeadLetters(**topic))


# --- errors and columns ---


def _decoded(
    batch: pa.RecordBatch, decoders: Sequence[Callable[[pa.RecordBatch], pa.Array]]
) -> Iterator[tuple[pa.RecordBatch, list[pa.Array]]]:
    """Yield a batch with what decoders make of it: in parts, if a column of it would have more than 2 GiB.

    Raises:
        RecordError: If one message alone is too large.
    """
    try:
        found = [decode(batch) for decode in decoders]
    except OverflowError as error:
        if len(batch) == 1:
            cluster, topic, partition, offset = _place(batch, 0)
            text = f"a message cannot be decoded, because {error}"
            raise RecordError(text, cluster_id=cluster, topic=topic, partition=partition, offset=offset) from None
        middle = len(batch) // 2
        for half in (batch.slice(0, middle), batch.slice(middle)):
            yield from _decoded(half, decoders)
    else:
        yield batch, found


def with_prefix(text: str, prefix: str, form: str) -> str:
    """Return an error of a format with the names of its options as a user has given them."""
    return text.replace(f"'{form}.", f"'{prefix}{form}.")


def _first_place(batch: pa.RecordBatch, why: pa.Array) -> tuple[str, str, int, int]:
    """Return the place of the first message that cannot be read."""
    return _place(batch, why.is_valid().index(True).as_py())


def _place(batch: pa.RecordBatch, row: int) -> tuple[str, str, int, int]:
    """Return where a message comes from."""
    cluster, topic, partition, offset = (batch[name][row].as_py() for name in COORDINATES)
    return cluster, topic, partition, offset


def _errors_of(part: Part, rows: pa.Array) -> Iterator[tuple[int, str]]:
    """Yield the places of messages that cannot be read, each with the reason."""
    errors = rows.field(ERROR)
    if errors.null_count < len(errors):
        import pyarrow.compute as pc  # takes 40 ms, and most tasks do not need it

        for i in pc.indices_nonzero(errors.is_valid()).to_pylist():
            yield i, errors[i].as_py()
    for column, name in zip(part.columns.names, part.primary_key, strict=False):
        values = rows.field(column)
        if values.null_count:
            import pyarrow.compute as pc

            for i in pc.indices_nonzero(pc.and_(values.is_null(), rows.is_valid())).to_pylist():
                yield i, f"Column '{name}' is NULL, but it is in the PRIMARY KEY"


def _column(part: Part, rows: pa.Array, type_: Any) -> pa.Array:
    """Return a column of a query, of its Arrow type."""
    if format_named(part.form).changelog:
        return _changes(rows, type_)
    return _struct(rows, type_) if isinstance(part.type, StructType) else rows.field(part.name)


def _struct(rows: pa.Array, type_: pa.StructType) -> pa.Array:
    """Return the fields of structs that a type has."""
    if not len(type_):  # without a field, Arrow does not know how many there are
        valid = rows.is_valid()
        return pa.Array.from_buffers(type_, len(rows), [valid.buffers()[1]], offset=valid.offset)
    found = [(rows.field(field.name), field.type) for field in type_]
    # A format may know of more parts that they are not null.
    fields = [array if array.type == of_field else array.view(of_field) for array, of_field in found]
    return pa.StructArray.from_arrays(fields, fields=[*type_], mask=rows.is_null())


def _masked(rows: pa.StructArray, mask: pa.Array) -> pa.StructArray:
    """Return structs, with null where the mask is true."""
    fields = [*rows.type]
    return pa.StructArray.from_arrays([rows.field(field.name) for field in fields], fields=fields, mask=mask)


def _true_or_null(values: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.if_else(values, True, pa.scalar(None, pa.bool_()))


def _changes(rows: pa.Array, type_: pa.ListType) -> pa.Array:
    """Return the changes of messages, each with the message's metadata if the type has them."""
    import pyarrow.compute as pc

    changes, change = pc.struct_field(rows, ROWS), type_.value_type
    parents, flat = pc.list_parent_indices(changes), changes.flatten()
    fields = [flat.field(ROW_KIND), _struct(flat.field("row"), change.field("row").type)]
    if METADATA in change.names:
        of_message = pc.struct_field(rows, METADATA)
        fields.append(_struct(of_message, change.field(METADATA).type).take(parents))
    lengths = pc.fill_null(pc.list_value_length(changes), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(
        offsets, pa.StructArray.from_arrays(fields, fields=[*change]), type=type_, mask=changes.is_null()
    )
