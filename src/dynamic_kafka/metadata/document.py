"""The metadata document: streams, their clusters and topics, as YAML or JSON.

The shape is that of Flink's YamlFileMetadataService, with optional properties and offsets::

    - streamId: orders
      clusterMetadataList:
        - clusterId: eu                        # default: bootstrapServers, sorted
          bootstrapServers: eu-1:9092,eu-2:9092  # or a list
          topics: [orders]
          properties: {security.protocol: SASL_SSL, sasl.jaas.config: "${env:EU_JAAS}"}
          startingOffsets: latest              # see dynamic_kafka.initializer
          stoppingOffsets: {timestamp: 1657256176000}
          continues: {cluster: eu-old, by: records}   # see dynamic_kafka.continuation

In YAML, only `true`, `false`, `null` and whole numbers are not text, as in JSON: a topic may be called `no` or
`2024-01-01`, and numbers and truth values among the properties keep their spelling.

This module imports pydantic, so it is imported only where a document is parsed, on the driver.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from dynamic_kafka.continuation import Continues, continues_from_json
from dynamic_kafka.errors import MetadataServiceError, suggestion
from dynamic_kafka.initializer import KafkaOffsetsInitializer, initializer_from_json
from dynamic_kafka.metadata.model import ClusterMetadata, KafkaStream

__all__ = ["parse_document"]

_MAX_DEPTH = 20  # a valid document has at most seven levels; libyaml's recursion overflows the C stack at about 100,000
# Aliases within aliases multiply: a document of 1 KB can stand for billions of values.
_MAX_UNFOLDED = 1_000_000
_MOST_FAULTS = 5


def parse_document(text: str, source: str) -> tuple[KafkaStream, ...]:
    """Parse a metadata document.

    Args:
        text: YAML or JSON.
        source: The document's path or address, for errors. If it ends in `.json`, the text must be JSON.

    Returns:
        The streams, in the document's order.

    Raises:
        MetadataServiceError: If the document is invalid. The message names the source, the path to each error, such as
            `[0].clusterMetadataList[1].topics`, and what was expected there. It never shows a property's value.
    """
    try:
        streams = _ADAPTER.validate_python(_load(text, source))
    except _InvalidError as error:
        raise _invalid(source, [str(error)]) from None
    except ValidationError as error:
        raise _invalid(source, [_fault(fault) for fault in error.errors(include_url=False)]) from None
    faults = _repetitions(streams)
    if faults:
        raise _invalid(source, faults)
    return tuple(stream.to_stream() for stream in streams)


def _invalid(source: str, faults: list[str]) -> MetadataServiceError:
    shown = [f"Metadata document '{source}' is invalid: {faults[0]}", *faults[1:_MOST_FAULTS]]
    if len(faults) > _MOST_FAULTS:
        shown.append(f"and {len(faults) - _MOST_FAULTS} more errors")
    return MetadataServiceError("\n".join(shown))


# --- text to plain values ---------------------------------------------------------------------------------------------


class _InvalidError(Exception):
    """Raised when the text is not YAML or JSON. The message does not show any value."""


def _load(text: str, source: str) -> Any:
    if source.endswith(".json"):
        return _load_json(text)
    if text.lstrip().startswith("["):  # most likely JSON, which has other escapes and is 20 times faster to read
        try:
            return _load_json(text)
        except _InvalidError:
            pass
    return _load_yaml(text)


def _load_json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise _InvalidError(f"line {error.lineno}, column {error.colno}: not JSON, {error.msg}") from None
    except RecursionError:
        raise _InvalidError("it is nested too deeply") from None
    except ValueError:
        raise _InvalidError("not JSON, a number is too long") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise _InvalidError(f"the key {key!r} occurs twice in one object")
        result[key] = value
    return result


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # SafeLoader if libyaml is missing
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  # not the base class's, because the loop below fills it


for _tag, _pattern, _first in (
    ("bool", r"true|false", "tf"),
    ("null", r"null|~|", ["n", "~", ""]),
    ("int", r"0|-?[1-9][0-9]*", "-0123456789"),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_first))


def _load_yaml(text: str) -> Any:
    try:
        _check_size(text)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check_keys(node)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except _InvalidError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        # Only the errors of the scanner and the parser are about syntax alone; others may quote a value.
        syntax = isinstance(error, yaml.scanner.ScannerError | yaml.parser.ParserError)
        if syntax and "nesting depth" in str(error.problem):  # libyaml looks ahead, and has a limit of its own
            raise _InvalidError("it is nested too deeply") from None
        what = error.problem if syntax else "a tag, alias or key that cannot be used here"
        raise _InvalidError(f"{where}not YAML, {what}") from None
    except yaml.reader.ReaderError as error:
        raise _InvalidError(f"character {error.position + 1}: not YAML, a character that is not allowed") from None
    except Exception:  # noqa: BLE001  # explicit tags (!!int '', !!bool x) raise IndexError, KeyError and others
        raise _InvalidError(
            "not YAML, a value does not fit its tag or contains characters that are not allowed"
        ) from None


def _check_size(text: str) -> None:
    """Raise if the document is nested deeply, or if its aliases (`*name`) unfold to very much more than is written."""
    open_: list[tuple[str | None, int, int]] = [
        (None, 0, 0)
    ]  # anchor, values and depth of each collection that is open
    ended: dict[str | None, tuple[int, int]] = {}
    unfolded = 0
    for event in yaml.parse(text, Loader=_Loader):  # events come without recursion
        if isinstance(event, yaml.CollectionStartEvent):
            open_.append((event.anchor, 1, 1))
            values, depth = 0, 0
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, values, depth = open_.pop()
            ended[anchor] = values, depth
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _, _ in open_):
                raise _InvalidError("an alias stands within what it stands for")
            values, depth = ended.get(event.anchor, (1, 0))
            unfolded += values
        else:
            values, depth = 1, 0
        outer, all_values, deepest = open_[-1]
        open_[-1] = outer, all_values + values, max(deepest, depth + 1)
        if len(open_) - 1 > _MAX_DEPTH or deepest > _MAX_DEPTH:
            raise _InvalidError("it is nested too deeply")
        if unfolded > _MAX_UNFOLDED:
            raise _InvalidError(
                f"its aliases stand for more than {_MAX_UNFOLDED:,} values; write out less, or fewer aliases"
            )


def _check_keys(root: yaml.Node) -> None:
    """Raise for a key that occurs twice, of which YAML would take the last one. Merged keys (`<<`) may repeat."""
    nodes, seen = [root], set[int]()
    while nodes:
        node = nodes.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            nodes.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            keys = set[Hashable]()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode):
                    if key.value in keys:
                        mark = key.start_mark
                        raise _InvalidError(
                            f"line {mark.line + 1}, column {mark.column + 1}: the key {key.value!r} occurs twice"
                        )
                    keys.add(key.value)
                nodes.append(value)


# --- plain values to streams ------------------------------------------------------------------------------------------


def _servers(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(server, str) for server in value):
        value = ",".join(value)
    if not isinstance(value, str):
        raise ValueError("expected host:port, as text with commas or as a list")  # noqa: TRY004  # as pydantic requires
    servers = [server.strip() for server in value.split(",") if server.strip()]
    if not servers:
        raise ValueError("expected at least one host:port")
    return ",".join(servers)


def _property(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _no_servers(value: dict[str, str]) -> dict[str, str]:
    if "bootstrap.servers" in value:
        raise ValueError("bootstrap.servers does not belong here; give it as bootstrapServers")
    return value


def _offsets(value: Any) -> KafkaOffsetsInitializer | None:
    return None if value is None else initializer_from_json(value)


def _continues(value: Any) -> Continues | None:
    return None if value is None else continues_from_json(value)


_Name = Annotated[str, Field(min_length=1)]
_Offsets = Annotated[KafkaOffsetsInitializer | None, BeforeValidator(_offsets)]


class _Model(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, arbitrary_types_allowed=True, extra="forbid", hide_input_in_errors=True, strict=True
    )


class _Cluster(_Model):
    cluster_id: _Name | None = None
    bootstrap_servers: Annotated[str, BeforeValidator(_servers)]
    topics: list[_Name]
    properties: Annotated[dict[str, Annotated[str, BeforeValidator(_property)]], AfterValidator(_no_servers)] = Field(
        default_factory=dict
    )
    starting_offsets: _Offsets = None
    stopping_offsets: _Offsets = None
    continues: Annotated[Continues | None, BeforeValidator(_continues)] = None

    @property
    def id(self) -> str:
        return self.cluster_id or ",".join(sorted(set(self.bootstrap_servers.split(","))))

    def to_metadata(self) -> ClusterMetadata:
        return ClusterMetadata(
            frozenset(self.topics),
            {"bootstrap.servers": self.bootstrap_servers, **self.properties},
            self.starting_offsets,
            self.stopping_offsets,
            self.continues,
        )


class _Stream(_Model):
    stream_id: _Name
    cluster_metadata_list: list[_Cluster]

    def to_stream(self) -> KafkaStream:
        return KafkaStream(
            self.stream_id, {cluster.id: cluster.to_metadata() for cluster in self.cluster_metadata_list}
        )


_ADAPTER = TypeAdapter(list[_Stream])


def _repetitions(streams: list[_Stream]) -> list[str]:
    faults: list[str] = []
    first_stream: dict[str, int] = {}
    for i, stream in enumerate(streams):
        first = first_stream.setdefault(stream.stream_id, i)
        if first != i:
            faults.append(f"[{i}].streamId: stream '{stream.stream_id}' is already at [{first}]; merge the two")
        first_cluster: dict[str, int] = {}
        for j, cluster in enumerate(stream.cluster_metadata_list):
            path = f"[{i}].clusterMetadataList"
            first = first_cluster.setdefault(cluster.id, j)
            if first != j:
                faults.append(f"{path}[{j}]: cluster '{cluster.id}' is already at {path}[{first}]; merge the two")
    return faults


# --- faults as text ---------------------------------------------------------------------------------------------------

_KINDS = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
_EXPECTED = {"string_type": "text", "list_type": "a list", "model_type": "a mapping", "dict_type": "a mapping"}


def _fault(fault: Any) -> str:
    """Return one of pydantic's errors as `<path>: <what was expected>`, without the value found there."""
    loc = [step for step in fault["loc"] if step != "[key]"]
    match fault["type"]:
        case "missing":
            what = "is missing"
        case "extra_forbidden":
            model = _Stream if len(loc) == 2 else _Cluster
            known = [field.alias or "" for field in model.model_fields.values()]
            what = "unknown key" + (suggestion(str(loc[-1]), known) or f"; the known keys are {', '.join(known)}")
        case "string_too_short":
            what = "expected a name that is not empty"
        case "value_error":
            what = str(fault["msg"]).removeprefix("Value error, ")[:300]
        case kind if kind in _EXPECTED:
            found = _KINDS.get(type(fault["input"]), "nothing" if fault["input"] is None else "something else")
            quote = " (put it in quotes)" if kind == "string_type" and found in {"a number", "true or false"} else ""
            what = f"expected {_EXPECTED[kind]}, not {found}{quote}"
        case _:
            what = str(fault["msg"]).splitlines()[0]
    path = "".join(f"[{step}]" if isinstance(step, int) else _step(str(step)) for step in loc).removeprefix(".")
    return f"{path or 'the document'}: {what}"


def _step(key: str) -> str:
    return f".{key}" if key.isidentifier() else f"[{key!r}]"
