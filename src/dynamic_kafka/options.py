"""Options: one declaration of each option's name, parser, default and meaning, and one way to parse what the user gave.

The options themselves are declared in `source` and `sink` (`settings` and `configure`), `metadata.factory`, `sql` and
`formats`, either as a field of a settings dataclass (`option`) or on their own (`Option`). Names that are parsed,
suggestions for typing errors, defaults and the tables of the documentation all come from these declarations. Flink's names
are the canonical ones. The names of Spark's own Kafka connector are aliases, or options of their own where Flink has none.
Names are matched without regard to case, because Spark passes them on in lower case.

Spark's workers import this module with the settings, so it imports nothing that takes time to load.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, overload

from dynamic_kafka.errors import (
    ConfigurationError,
    ConflictingOptionsError,
    DynamicKafkaError,
    InvalidOptionError,
    UnknownOptionError,
)

__all__ = [
    "PREFIXES",
    "Option",
    "ParsedOptions",
    "Parser",
    "boolean",
    "choice",
    "duration_ms",
    "integer",
    "markdown_table",
    "name_list",
    "non_blank",
    "option",
    "option_names",
    "options_of",
    "parse_options",
    "regex",
    "text",
    "texts",
    "user_object",
]

T = TypeVar("T")

PREFIXES: Mapping[str, str] = {
    "properties.": "A property of the Kafka clients, under its name in Java or in librdkafka.",
    "kafka.": "The same, with the prefix of Spark's own Kafka connector.",
    "metadata-service.": "An option of the metadata service. A class of your own gets all of them.",
}
"""The names that cannot be listed one by one: what they begin with, and their meaning."""

# Spark's readers and writers add these by themselves.
_IGNORED = frozenset({"path", "queryname", "outputmode", "__datasource_name__"})
_METADATA = "option"


# --- parsers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parser(Generic[T]):
    """A function from the text of an option to its value.

    Args:
        function: Returns the value; raises ValueError for a wrong text.
        expected: The description of a right text, as it reads after "expected".
        words: All right texts, if they can be listed.
    """

    function: Callable[[str], T]
    expected: str
    words: tuple[str, ...] = ()

    def __call__(self, value: str) -> T:
        """Return the value of a text; raise ValueError if the text is wrong."""
        return self.function(value)


def _boolean(value: str) -> bool:
    lower = value.strip().lower()
    if lower not in ("true", "false"):
        raise ValueError
    return lower == "true"


def _regex(value: str) -> re.Pattern[str]:
    try:
        return re.compile(non_blank()(value))
    except re.error as error:
        raise ValueError from error


boolean = Parser(_boolean, "true or false", ("true", "false"))
"""True or false, in any case."""

regex = Parser(_regex, "a regular expression")
"""A regular expression in Python's syntax."""


def text(expected: str = "a text") -> Parser[str]:
    """Return a parser of any text, which it leaves as it is."""
    return Parser(str, expected)


def non_blank(
    expected: str = "a text that is not blank", fits: Callable[[str], object] = lambda _: True
) -> Parser[str]:
    """Return a parser of texts that are not blank and for which `fits` is true, without the blanks around them."""

    def parse(value: str) -> str:
        found = value.strip()
        if not found or not fits(found):
            raise ValueError
        return found

    return Parser(parse, expected)


def choice(*words: str, expected: str = "") -> Parser[Any]:
    """Return a parser of one of these words, in any case, with `_` for `-` as in Java's enumerations."""

    def parse(value: str) -> str:
        found = value.strip().lower().replace("_", "-")
        if found not in words:
            raise ValueError
        return found

    return Parser(parse, expected or (" or ".join(words) if len(words) <= 2 else f"one of {', '.join(words)}"), words)


def integer(*, at_least: int, at_most: int | None = None, expected: str = "") -> Parser[int]:
    """Return a parser of whole numbers from `at_least` on, up to `at_most` if it is given."""

    def parse(value: str) -> int:
        number = int(value.strip())
        if number < at_least or (at_most is not None and number > at_most):
            raise ValueError
        return number

    return Parser(
        parse, expected or ("a whole number above 0" if at_least == 1 else f"a whole number, {at_least} or more")
    )


_UNITS_MS = {
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}


def duration_ms(*, at_least: int | None = None) -> Parser[int]:
    """Return a parser of milliseconds, or of a number with a unit as in Flink and Spark (`5 min`, `30s`).

    Args:
        at_least: The shortest duration in milliseconds; None allows negative ones, which usually mean "never".
    """

    def parse(value: str) -> int:
        match = re.fullmatch(r"(-?\d+)\s*([a-z]*)", value.strip().lower())
        if match is None or match[2] not in _UNITS_MS:
            raise ValueError
        found_ms = int(match[1]) * _UNITS_MS[match[2]]
        if at_least is not None and found_ms < at_least:
            raise ValueError
        return found_ms

    limit = "" if at_least is None else f", {at_least} or more"
    return Parser(parse, f"milliseconds, or a number with a unit such as '30 s' or '5 min'{limit}")


def name_list(expected: str) -> Parser[tuple[str, ...]]:
    """Return a parser of one or more names with `;` or `,` between them."""

    def parse(value: str) -> tuple[str, ...]:
        found = tuple(name.strip() for name in re.split("[;,]", value))
        if not all(found):
            raise ValueError
        return found

    return Parser(parse, expected)


# --- declarations -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """The declaration of an option.

    Args:
        key: The canonical name.
        parser: The parser of its text.
        default: The default as the user would write it; None if there is no value without the option.
        doc: One or two sentences: what the value is, and when to change it.
        shown_default: The default as the documentation shows it, where that is not just `default`.
        aliases: Other names of the same option.
    """

    key: str
    parser: Parser[T]
    default: str | None = None
    doc: str = field(kw_only=True)
    shown_default: str = field(default="", kw_only=True)
    aliases: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the key and the aliases."""
        return (self.key, *self.aliases)

    @property
    def expected(self) -> str:
        """Return the description of a right value."""
        return self.parser.expected

    @property
    def default_value(self) -> T | None:
        """Return the value of the default."""
        return None if self.default is None else self.parser(self.default)

    def parse(self, value: str, name: str | None = None) -> T:
        """Return the value of a text. Raise `InvalidOptionError` if it is wrong, with the user's spelling of the option."""
        try:
            return self.parser(value)
        except ValueError:
            raise InvalidOptionError(name or self.key, value, self.expected) from None

    def of(self, values: Mapping[str, Any]) -> Any:
        """Return this option's value among parsed values by key; the default if it is not among them."""
        return values.get(self.key, self.default_value)


@overload
def option(
    key: str, parser: Parser[T], default: str, *, doc: str, shown_default: str = "", aliases: tuple[str, ...] = ()
) -> T: ...


@overload
def option(
    key: str, parser: Parser[T], *, doc: str, shown_default: str = "", aliases: tuple[str, ...] = ()
) -> T | None: ...


def option(key: str, parser: Parser[Any], default: str | None = None, **words: Any) -> Any:
    """Declare an option as a field of a settings dataclass; the arguments are those of `Option`."""
    declared = Option(key, parser, default, **words)
    return field(default=declared.default_value, metadata={_METADATA: declared})


def options_of(settings: type) -> dict[str, Option[Any]]:
    """Return the options that a settings dataclass declares, by the name of the field."""
    return {f.name: f.metadata[_METADATA] for f in dataclasses.fields(settings) if _METADATA in f.metadata}


def option_names(table: Iterable[Option[Any]]) -> dict[str, Option[Any]]:
    """Return the options of a table by each of their names, aliases too."""
    return {name: declared for declared in table for name in declared.names}


# --- what the user gave -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ParsedOptions:
    """Options after parsing.

    Args:
        values: The values of the options that were given, by key.
        properties: The properties of Kafka clients.
        service_options: The options of the metadata service as texts, by their whole names in lower case.
        spelling: The names that the user used, by key.
    """

    values: Mapping[str, Any]
    properties: Mapping[str, str]
    service_options: Mapping[str, str]
    spelling: Mapping[str, str]

    def __getitem__(self, declared: Option[Any]) -> Any:
        """Return the value of an option, or its default."""
        return declared.of(self.values)

    def given(self, *options: Option[Any]) -> list[str]:
        """Return those of the options that the user gave, as the user spelled them."""
        return [self.spelling[declared.key] for declared in options if declared.key in self.values]

    def fields_of(self, settings: type) -> dict[str, Any]:
        """Return the values of a settings dataclass's options that the user gave, by the name of the field."""
        return {
            name: self.values[declared.key]
            for name, declared in options_of(settings).items()
            if declared.key in self.values
        }


def parse_options(options: Mapping[str, str], table: Iterable[Option[Any]]) -> ParsedOptions:
    """Parse what the user gave, by the table of the options that exist.

    Raises:
        UnknownOptionError: For a name that is not in the table.
        ConflictingOptionsError: For two spellings of one option with different values.
        InvalidOptionError: For a value that does not parse.
    """
    known = option_names(table)
    as_spelled = {name.lower(): name for name in known}
    values: dict[str, Any] = {}
    texts: dict[str, str] = {}
    spelling: dict[str, str] = {}
    properties: dict[str, tuple[str, str]] = {}
    service_options: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        shown = as_spelled.get(lower)
        if shown is None:
            if lower.startswith("metadata-service."):
                service_options[lower] = value
            elif lower.startswith(("properties.", "kafka.")):
                key = lower.partition(".")[2]
                other, other_value = properties.setdefault(key, (lower, value))
                if other_value != value:
                    raise ConflictingOptionsError(
                        [other, lower], "they are one property with two values; give one of them"
                    )
            elif lower not in _IGNORED:
                raise UnknownOptionError(name, known)
            continue
        declared = known[shown]
        if texts.setdefault(declared.key, value) != value:
            raise ConflictingOptionsError(
                [spelling[declared.key], shown], "they are one option with two values; give one of them"
            )
        spelling[declared.key] = shown
        values[declared.key] = declared.parse(value, shown)
    return ParsedOptions(values, {k: value for k, (_, value) in properties.items()}, service_options, spelling)


def texts(options: Mapping[str, object]) -> dict[str, str]:
    """Return options as texts; True becomes `true`, as in Spark's `option`."""
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()}


def markdown_table(
    table: Iterable[Option[Any]], prefixes: Mapping[str, str] = PREFIXES, *, heading: str = "option"
) -> str:
    """Return the table of the documentation. Names that begin with `__` are for the package itself."""
    lines = [f"| {heading} | default | meaning |", "|---|---|---|"]
    for declared in table:
        if declared.key.startswith("__"):
            continue
        names = "<br>".join(f"`{name}`" for name in declared.names)
        lines.append(f"| {names} | {declared.shown_default or declared.default or ''} | {declared.doc} |")
    lines += [f"| `{prefix}*` | | {doc} |" for prefix, doc in prefixes.items()]
    return "\n".join(lines)


# --- classes of the user ----------------------------------------------------------------------------------------------


def user_object(name: str, value: str, *, kind: str, methods: Sequence[str], make: Callable[[Any], Any]) -> Any:
    """Return the object that an option names as `package.module:Class`.

    Args:
        name: The option, for errors.
        value: `package.module:Class`.
        kind: The kind of object, as it reads after "is not a".
        methods: The methods that such an object has.
        make: The function from the class to the object.

    Raises:
        ConfigurationError: If the class cannot be found or made, or lacks a method.
    """
    module_name, _, path = value.partition(":")
    where = f"Option '{name}' = '{value}'"
    try:
        found: Any = importlib.import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
        made = make(found)
    except DynamicKafkaError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"The class of option '{name}' ('{value}') could not be imported or created: {type(error).__name__}: {error}"
        ) from error
    missing = [method for method in methods if not callable(getattr(made, method, None))]
    if missing:
        raise ConfigurationError(f"{where} is not a {kind}: it lacks {', '.join(missing)}")
    return made
