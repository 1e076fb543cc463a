"""The shape of the package: dependencies point one way, pure modules are pure, and importing it is quick."""

from __future__ import annotations

import ast
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
    {"testing", "cli", "functions", "changelog"},
    {"builders", "sql"},
    {"spark"},
    {"source", "sink", "formats"},
    {"metadata"},
    {"kafka"},
    {"initializer", "options"},
    {"errors"},
)
LAYER_OF = {part: layer for layer, parts in enumerate(LAYERS) for part in parts}
PURE = ("source.reconcile", "source.admission", "source.planning", "source.offsets")


def part_of(module: str) -> str:
    """The package or module directly below `dynamic_kafka`."""
    return module.partition(".")[0]


def imports(path: Path, *, only_when_imported: bool = False) -> set[str]:
    """The modules that a file imports, also inside functions unless told otherwise; never those for type checkers."""
    found: set[str] = set()
    pending: list[ast.AST] = [ast.parse(path.read_text())]
    while pending:
        node = pending.pop()
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
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


@pytest.mark.parametrize("module", MODULES)
def test_dependencies_point_one_way(module: str) -> None:
    """`spark, builders -> source -> metadata, kafka -> initializer, options, errors`."""
    assert part_of(module) in LAYER_OF, "a new part: give it a place in LAYERS"
    layer = LAYER_OF[part_of(module)]
    upwards = {
        name
        for name in own(imports(MODULES[module]))
        if part_of(name) != part_of(module) and LAYER_OF[part_of(name)] <= layer
    }
    assert upwards == set()


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_know_neither_clients_nor_spark_nor_clocks(module: str) -> None:
    """State in, state out; and they import no module of `source` that is not pure."""
    names = imports(MODULES[module])
    assert not foreign(names) & {
        *("confluent_kafka", "pyspark", "pyarrow", "pandas"),
        *("time", "datetime", "random", "threading", "os", "io", "socket", "pathlib", "logging", "uuid", "secrets"),
    }
    assert {name for name in own(names) if part_of(name) == "source"} <= {*PURE, "source"}
    assert {part_of(name) for name in own(names)} <= {"source", "initializer", "errors"}


@pytest.mark.parametrize("module", MODULES)
def test_only_the_fronts_import_pyspark(module: str) -> None:
    """`dynamic_kafka.spark`, the builders with their deserializers, SQL, and the formats, which are columns of Spark."""
    fronts = {"spark", "builders", "sql", "formats", "functions", "changelog", "testing"}
    if part_of(module) not in fronts and module != "cli.sql":
        assert "pyspark" not in foreign(imports(MODULES[module]))


@pytest.mark.parametrize("module", MODULES)
def test_nothing_but_tests_imports_the_testing_package(module: str) -> None:
    """It starts brokers, and needs what users do not install."""
    if part_of(module) != "testing":
        assert "testing" not in {part_of(name) for name in own(imports(MODULES[module]))}


@pytest.mark.parametrize("module", MODULES)
def test_optional_libraries_are_imported_where_they_are_used(module: str) -> None:
    """An import at the top would make them required, or slow down every worker."""
    if part_of(module) != "testing":
        optional = {"httpx2", "cryptography", "rich", "pandas", "sqlglot", "fastavro", "google", "grpc_tools"}
        assert not foreign(imports(MODULES[module], only_when_imported=True)) & optional


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


@pytest.mark.parametrize("name", [name for name in MODULES if part_of(name) != "testing"])
def test_all_is_sorted_and_true(name: str) -> None:
    """Every name in `__all__` exists, once and in order."""
    module = importlib.import_module(f"dynamic_kafka.{name}".rstrip("."))
    if MODULES[name].name == "__init__.py" and not hasattr(module, "__all__"):
        assert not own(imports(MODULES[name])), "it has names to offer"
        return
    names = module.__all__
    assert len(set(names)) == len(names)
    # As ruff sorts them: constants, then classes, then the rest.
    assert names == sorted(names, key=lambda n: (not n.isupper(), not n[:1].isupper(), n))
    assert all(hasattr(module, n) for n in names)


def test_every_module_says_what_it_is() -> None:
    """One sentence at least."""
    assert [name for name, path in MODULES.items() if not ast.get_docstring(ast.parse(path.read_text()))] == []
