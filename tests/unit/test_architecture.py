"""The shape of the package: dependencies point one way, pure modules are pure, and importing it is quick."""

from __future__ import annotations

import ast
import functools
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import dynamic_kafka

ROOT = Path(dynamic_kafka.__file__).parent
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").removesuffix("."): path
    for path in sorted(ROOT.rglob("*.py"))
}

# A part may import itself and what stands below it. `testing` is for tests, and stands above everything.
LAYERS = (
    {"", "__main__"},
    {"testing", "cli"},
    {"builders", "sql", "functions", "archive", "arrow", "lineage"},
    {"spark", "changelog"},
    {"source", "sink", "formats"},
    {"metadata", "history"},
    {"kafka"},
    {"observe"},
    {"files"},
    {"initializer", "options", "native", "filesystems", "continuation", "rows", "spark_versions"},
    {"errors"},
)
LAYER_OF = {part: layer for layer, parts in enumerate(LAYERS) for part in parts}
# The rooms of a part: one imports itself and what stands below it, as with LAYERS. "." has no room.
ROOMS: dict[str, tuple[set[str], ...]] = {
    "source": ({"driver", "executor"}, {"rules"}, {"."}, {"document"}),
    "sink": ({"."}, {"log"}),
    "sql": (
        *({"."}, {"queries"}, {"connectors"}, {"session"}, {"errors"}, {"dialect"}, {"dialect/functions"}),
        *({"parser"}, {"tables"}),
    ),
}
# All modules of these packages are pure, apart from READING.
PURE_PACKAGES = ("source.rules", "source.document")
READING = {"source.document.checkpoint", "source.document.recorded"}
PURE = {
    *(name for name in MODULES if name.rpartition(".")[0] in PURE_PACKAGES and name not in READING),
    *("source.driver.behind", "history.model", "history.coverage"),
    *("history.archive.model", "history.archive.plan"),
    *(
        "observe.reports",
        "observe.status",
        "observe.parts",
        "observe.model",
        "observe.words",
        "observe.summary",
        "observe.series",
    ),
    *("sink.protocol", "sink.log.chain", "sink.log.identity", "sink.log.place", "sink.log.records"),
}
# What the rules are given: settings, metadata, and which of a cluster's properties are no secrets.
GIVEN = {
    "source.rules.batch": {"source.settings", "metadata.subscriber"},
    "source.rules.desired": {"source.settings", "metadata.model", "metadata.snapshot", "kafka.config.secrets"},
}
IMPURE = {
    *("confluent_kafka", "kafka", "pyspark", "pyarrow", "pandas"),
    *("time", "datetime", "random", "threading", "os", "io", "socket", "pathlib", "logging", "uuid", "secrets"),
}
MOST_FILES = 20


def part_of(module: str) -> str:
    """The package or module directly below `dynamic_kafka`."""
    return module.partition(".")[0]


@functools.cache
def parsed(path: Path) -> ast.Module:
    """A file's syntax tree."""
    return ast.parse(path.read_text())


@functools.cache
def imports(path: Path, *, only_when_imported: bool = False, for_types: bool = False) -> set[str]:
    """The modules that a file imports, also inside functions unless told otherwise; those for type checkers if asked."""
    found: set[str] = set()
    pending: list[ast.AST] = [parsed(path)]
    while pending:
        node = pending.pop()
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")) if not for_types:
                continue
            case ast.FunctionDef() | ast.AsyncFunctionDef() if only_when_imported:
                continue
            case ast.Import():
                found |= {alias.name for alias in node.names}
            case ast.ImportFrom(module=str(module), level=0):
                found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
            case _:
                pass
        pending += ast.iter_child_nodes(node)
    return found


def own(names: set[str]) -> set[str]:
    """Those of the imported names that are modules of this package, without its name."""
    inside = {
        name.removeprefix("dynamic_kafka").removeprefix(".") for name in names if part_of(name) == "dynamic_kafka"
    }
    return {name for name in inside if name in MODULES and name}


def foreign(names: set[str]) -> set[str]:
    """The top-level modules of other packages."""
    return {part_of(name) for name in names} - {"dynamic_kafka"}


def test_dependencies_point_one_way() -> None:
    """A part imports itself and what stands below it in LAYERS: `cli -> sql -> spark -> source, formats -> kafka`."""
    assert {part_of(module) for module in MODULES} - LAYER_OF.keys() == set(), "a new part: give it a place in LAYERS"
    assert LAYER_OF.keys() - {part_of(module) for module in MODULES} == set(), (
        "a part that is gone: take it out of LAYERS"
    )
    upwards = {
        module: found
        for module, path in MODULES.items()
        if (
            found := {
                name
                for name in own(imports(path))
                if part_of(name) != part_of(module) and LAYER_OF[part_of(name)] <= LAYER_OF[part_of(module)]
            }
        )
    }
    assert upwards == {}


@pytest.mark.parametrize("part", ROOMS)
def test_the_rooms_of_a_part_stand_one_above_the_other(part: str) -> None:
    """Such as `document` below the settings of the source, `rules` above them, and on top `driver` beside `executor`."""
    floor_of = {room: floor for floor, rooms in enumerate(ROOMS[part]) for room in rooms}

    def room_of(module: str) -> str:
        return str(MODULES[module].parent.relative_to(ROOT / part))

    inside = {module: path for module, path in MODULES.items() if part_of(module) == part}
    assert {room_of(module) for module in inside} == floor_of.keys(), "a room is new or gone: correct ROOMS"
    upwards = {
        module: found
        for module, path in inside.items()
        if (
            found := {
                name
                for name in own(imports(path)) & inside.keys()
                if room_of(name) != room_of(module) and floor_of[room_of(name)] <= floor_of[room_of(module)]
            }
        )
    }
    assert upwards == {}


def test_no_modules_import_each_other() -> None:
    """Not even inside functions, or for type checkers alone."""
    # An import of a module runs its packages too, but those only gather names.
    reach = {
        module: own(imports(path, for_types=True)) for module, path in MODULES.items() if path.name != "__init__.py"
    }
    grown = True
    while grown:
        grown = False
        for module, found in reach.items():
            more = found.union(*(reach.get(name, set()) for name in found))
            if len(more) > len(found):
                reach[module], grown = more, True
    circles = {frozenset(n for n in reach[m] if m in reach.get(n, set())) for m in reach if m in reach[m]}
    assert not circles


def test_no_package_has_too_many_files() -> None:
    """Who looks for a file reads the list of its folder."""
    sizes: dict[str, int] = {}
    for path in MODULES.values():
        package = ".".join(path.parent.relative_to(ROOT).parts)
        sizes[package] = sizes.get(package, 0) + 1
    assert {name for name, size in sizes.items() if size > MOST_FILES} == set()


def test_pure_modules_know_neither_clients_nor_spark_nor_clocks() -> None:
    """State in, state out; and of their own package they import pure modules alone."""
    unclean = {}
    for module in PURE:
        names = imports(MODULES[module])
        others = own(names) - {*PURE, *PURE_PACKAGES, *GIVEN.get(module, ()), "initializer", "continuation", "errors"}
        if found := (foreign(names) & IMPURE) | others:
            unclean[module] = found
    assert unclean == {}


def test_the_parser_of_sql_needs_no_session_and_no_cluster() -> None:
    """Text in, statements out: of Kafka it knows only which properties are secrets."""
    allowed = {
        "errors",
        "kafka",
        "kafka.config",
        "kafka.config.secrets",
        "sql",
        "sql.tables.definition",
        "sql.tables.types",
    }
    unclean = {}
    for module, path in MODULES.items():
        if f"{module}.".startswith("sql.parser."):
            names = imports(path)
            others = {name for name in own(names) if not f"{name}.".startswith("sql.parser.")} - allowed
            if found := (foreign(names) & (IMPURE | {"sqlglot"})) | others:
                unclean[module] = found
    assert unclean == {}


def test_only_the_fronts_import_pyspark() -> None:
    """`dynamic_kafka.spark`, the builders with their deserializers, SQL, and the formats, which are columns of Spark."""
    fronts = {"spark", "spark_versions", "builders", "sql", "formats", "functions", "changelog", "arrow", "lineage"}
    fronts.add("testing")
    others = {m: path for m, path in MODULES.items() if part_of(m) not in fronts and not m.startswith("cli.sql.")}
    assert [module for module, path in others.items() if "pyspark" in foreign(imports(path))] == []


def test_nothing_but_tests_imports_the_testing_package() -> None:
    """It starts brokers, and needs what users do not install."""
    others = {module: path for module, path in MODULES.items() if part_of(module) != "testing"}
    assert [m for m, path in others.items() if "testing" in {part_of(name) for name in own(imports(path))}] == []


def test_optional_libraries_are_imported_where_they_are_used() -> None:
    """An import at the top would make them required, or slow down every worker."""
    optional = {"httpx2", "cryptography", "rich", "pandas", "fastavro", "google", "grpc_tools"}
    optional |= {"prometheus_client", "opentelemetry", "fsspec", "deltalake", "pyiceberg", "prompt_toolkit", "pygments"}
    early = {
        module: found
        for module, path in MODULES.items()
        if part_of(module) != "testing" and (found := foreign(imports(path, only_when_imported=True)) & optional)
    }
    assert early == {}


@pytest.mark.parametrize("module", ["pyspark_dynamic_kafka", "dynamic_kafka"])
def test_importing_is_quick(module: str) -> None:
    """Every Spark session on the machine imports the former: no client, no Arrow, no parser comes with it."""
    heavy = ["confluent_kafka", "pyarrow", "pandas", "numpy", "pydantic", "yaml", "httpx2", "cryptography", "rich"]
    code = f"import pyspark.sql.datasource, sys; before = set(sys.modules); import {module}; "
    code += f"print(*sorted(set({heavy!r}) & (set(sys.modules) - before)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_importing_the_package_alone_does_not_import_pyspark() -> None:
    """`dynamic_kafka` says what it has without loading it."""
    code = "import sys, dynamic_kafka; dir(dynamic_kafka); print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_command_line_starts_without_pyspark() -> None:
    """A command that asks Kafka alone runs where Spark is not installed, and does not wait for its modules."""
    code = "import sys, dynamic_kafka.cli.main; print({'pyspark', 'sqlglot', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_importing_what_reads_does_not_import_pandas() -> None:
    """Each new worker of Spark imports it before its first record, and pandas takes 120 ms."""
    code = "import sys, dynamic_kafka.source.executor.reader; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_all_is_sorted_and_true() -> None:
    """Every name in `__all__` exists, once and in order."""
    wrong = {}
    for name in (name for name in MODULES if part_of(name) != "testing"):
        module = importlib.import_module(f"dynamic_kafka.{name}".rstrip("."))
        if MODULES[name].name == "__init__.py" and not hasattr(module, "__all__"):
            if own(imports(MODULES[name])):
                wrong[name] = "it has names to offer"
            continue
        names = module.__all__
        # As ruff sorts them: constants, then classes, then the rest.
        if names != sorted(set(names), key=lambda n: (not n.isupper(), not n[:1].isupper(), n)):
            wrong[name] = f"not in order, or twice: {names}"
        elif missing := [n for n in names if not hasattr(module, n)]:
            wrong[name] = f"not there: {missing}"
    assert wrong == {}


def test_every_module_says_what_it_is() -> None:
    """One sentence at least."""
    assert [name for name, path in MODULES.items() if not ast.get_docstring(parsed(path))] == []


def test_temporary_files_have_names_that_nobody_can_guess() -> None:
    """They are made by `tempfile`, private to the user; one folder has a known name, and is checked to be the user's own."""
    guessed = {
        module
        for module, path in MODULES.items()
        for node in ast.walk(parsed(path))
        if (isinstance(node, ast.Attribute) and node.attr in ("gettempdir", "mktemp"))
        or (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value.startswith(("/tmp", "/var/tmp"))
        )
    }
    assert guessed == {"filesystems", "sink.transactional_ids"}
