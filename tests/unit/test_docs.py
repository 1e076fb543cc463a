"""The documents name files, names, links, commands and imports that exist."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.versions import SINCE

from dynamic_kafka import errors

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "src" / "dynamic_kafka"
DOCUMENTS = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "benchmarks" / "README.md")
TEXTS = {str(path.relative_to(ROOT)): path.read_text() for path in DOCUMENTS}

# Words that stop a reader, each with what to write.
IDIOM = {
    r"pass(es|ed|ing)? over": "skip, parse, or ignore",
    r"(is|are|was|were) told": "gets, is reported, or is logged",
    r"(is|are) not there": "does not exist, or is missing",
    r"(goes|go|going) on behind": "goes on after",
    r"right behind": "right after",
    r"of a (?-i:DOUBLE|BIGINT|INT|STRING|DECIMAL)": "of a column or value of that type",
}
# Folders that exist only after a build, and those of a checkpoint.
NOT_HERE = {".venv-spark42", "dist/", "offsets/", "commits/"}


def prose(text: str) -> str:
    """The text without its code blocks."""
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def slug(heading: str) -> str:
    """The anchor that GitHub makes from a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def found(path: str, document: str) -> Path | None:
    """The file or folder that a document names, as seen from the project, the package or the document."""
    bases = (ROOT, PACKAGE, (ROOT / document).parent)
    return next((base / path for base in bases if (base / path).exists()), None)


def named_paths(text: str) -> Iterator[str]:
    """The paths in backticks: `a/b.py`, `a/`, `tests/model`, `b.py`, and `tests/engine.Query` as `tests/engine.py`."""
    for name in re.findall(r"`([\w./-]+)`", prose(text)):
        in_folder = re.match(r"(docs|tests|src|benchmarks|examples|scripts|formats|kafka|sql|source|sink|spark)/", name)
        if name.endswith((".py", "/")) or in_folder:
            yield re.sub(r"\.[A-Z]\w*$", ".py", name)


@pytest.mark.parametrize("document", TEXTS)
def test_every_path_that_a_document_names_exists(document: str) -> None:
    """A file that moved is renamed in the documents, too."""
    missing = {path for path in named_paths(TEXTS[document]) if found(path, document) is None}
    assert missing - NOT_HERE == set()


def test_the_code_of_each_page_is_run() -> None:
    """As a program that the page links to, by test_tutorials.py, or by the test with the page's name in test_guides.py."""
    guides = (ROOT / "tests" / "spark" / "test_guides.py").read_text()
    of_pages = {page: text for page, text in TEXTS.items() if page.startswith("docs/")}
    with_code = {page for page, text in of_pages.items() if re.search("^```(python|sql)$", text, re.M)}
    as_programs = {page for page in with_code if re.search(r"\(\.\./\.\./examples/\w+/\w+\.py\)", of_pages[page])}
    here = {page for page in with_code if f"def test_{Path(page).stem.replace('-', '_')}(" in guides}
    assert with_code - as_programs - here == set(), "Add a test with the page's name to tests/spark/test_guides.py"
    assert {page for page in with_code if "--8<--" in of_pages[page]} <= as_programs, "Link to the program"


def test_no_mark_of_an_included_program_is_formatted() -> None:
    """Of Python in a page, `make format` takes the mark for a comparison: pyproject.toml excludes such pages."""
    assert [page for page, text in TEXTS.items() if "--8 < --" in text] == []


def test_every_page_has_its_place_in_the_navigation() -> None:
    """A page without one would be found by the search only."""
    navigation = re.findall(r'= "([\w/.-]+\.md)"', (ROOT / "zensical.toml").read_text())
    assert sorted(navigation) == sorted(TEXTS)


def test_every_page_that_the_code_names_exists() -> None:
    """Errors, docstrings and comments say `docs/guides/security.md` and the like."""
    folders = ("src", "tests", "scripts", "examples", "benchmarks")
    files = [*(file for folder in folders for file in (ROOT / folder).rglob("*.py")), ROOT / "Makefile"]
    named = {page for file in files for page in re.findall(r"\bdocs/[\w/-]+\.md", file.read_text())}
    assert len(named) > 10
    assert [page for page in sorted(named) if not (ROOT / page).exists()] == []


def test_words_are_plain() -> None:
    """In documents, docstrings, comments and errors."""
    texts = {**TEXTS, **{str(path.relative_to(ROOT)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}}
    found = [
        f"{name}: '{match[0]}'; write {better}"
        for words, better in IDIOM.items()
        for name, text in texts.items()
        for match in re.finditer(rf"\b{words}\b", text, re.IGNORECASE)
    ]
    assert not found


@pytest.mark.parametrize("document", TEXTS)
def test_links_between_documents_resolve(document: str) -> None:
    """The file exists, and so does the heading behind the `#`."""
    broken = []
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose(TEXTS[document])):
        path, _, anchor = link.partition("#")
        target = (ROOT / document).parent / path if path else ROOT / document
        if not target.exists():
            broken.append(link)
        elif anchor:
            headings = re.findall(r"^#+ (.+)$", prose(target.read_text()), re.MULTILINE)
            if anchor not in map(slug, headings):
                broken.append(link)
    assert broken == []


def test_the_tables_of_files_name_what_is_in_them() -> None:
    """In docs/explanations/architecture.md each name in the last column is defined in one of the files of its row."""
    rows = re.findall(r"^\| (.+) \| (.+) \| ?(.*?) ?\|$", TEXTS["docs/explanations/architecture.md"], re.MULTILINE)
    checked = 0
    for first, second, names in rows:
        files = [path for path in re.findall(r"`([\w./-]+)`", f"{first} {second}") if path.endswith((".py", "/"))]
        sources = "\n".join(_source(path) for path in files)
        for name in re.findall(r"`(\w+)`", names) if files else ():
            checked += 1
            assert re.search(rf"^\s*(async def|def|class) {name}\b|^\s*{name}\b.*=", sources, re.MULTILINE), (
                f"{name} is not in {', '.join(files)}"
            )
    assert checked > 50


def _source(path: str) -> str:
    at = found(path, "docs/explanations/architecture.md")
    assert at is not None, path
    return "\n".join(file.read_text() for file in (at.rglob("*.py") if at.is_dir() else [at]))


@pytest.mark.parametrize("document", TEXTS)
def test_every_make_target_that_a_document_names_exists(document: str) -> None:
    """`make demo` and the like."""
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^\s*make ([a-z][\w-]*)|`make ([a-z][\w-]*)", TEXTS[document], re.MULTILINE))
    assert {one or other for one, other in named} <= targets


@pytest.mark.parametrize("document", TEXTS)
def test_python_snippets_compile_and_import_what_there_is(document: str) -> None:
    """A snippet can be pasted: it is Python, and its imports from this package work."""
    for snippet in re.findall(r"^```python\n(.*?)^```", TEXTS[document], flags=re.DOTALL | re.MULTILINE):
        for node in ast.walk(ast.parse(snippet)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("dynamic_kafka"):
                module = importlib.import_module(str(node.module))
                unknown = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                assert [name for name in unknown if not find_spec(f"{node.module}.{name}")] == []


def test_every_error_that_a_document_names_exists() -> None:
    """`LostTransactionsError` and the like can be imported from `dynamic_kafka.errors`."""
    named = {name for text in TEXTS.values() for name in re.findall(r"`(\w+Error)`", text)}
    assert named >= {"LostTransactionsError", "ProducerFencedError"}
    assert [name for name in named if not hasattr(errors, name)] == []


def test_every_heading_of_the_page_of_errors_is_the_text_of_an_error() -> None:
    """With `...` where the text of the code has a value."""
    trees = (ast.parse(file.read_text()) for file in PACKAGE.rglob("*.py"))
    texts = "\n".join(text.replace("\n", " ") for tree in trees for text in _texts(tree))
    headings = re.findall(r"^### (.+)$", TEXTS["docs/reference/errors.md"], re.MULTILINE)
    patterns = {heading: ".*".join(map(re.escape, heading.strip(".").split("..."))) for heading in headings}
    unknown = [heading for heading, pattern in patterns.items() if not re.search(pattern, texts)]
    assert unknown == []
    assert len(headings) > 20


def _texts(tree: ast.AST) -> Iterator[str]:
    """Return the texts of a module, with `{}` in place of values."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_the_page_of_the_python_api_has_every_public_name() -> None:
    """Also the builders, and the brokers for tests."""
    described = set(
        re.findall(r"^(?:::: dynamic_kafka\.(?:[a-z]+\.)*|        - )(\w+)$", TEXTS["docs/reference/python.md"], re.M)
    )
    modules = ("", ".arrow", ".builders", ".errors", ".functions", ".lineage", ".sql", ".testing")
    public = {name for module in modules for name in importlib.import_module(f"dynamic_kafka{module}").__all__}
    assert sorted(public - described) == []


def test_the_document_of_the_command_line_shows_what_the_commands_print() -> None:
    """Headings, lines and states are those of the code."""
    text = TEXTS["docs/reference/cli.md"]
    source = "".join(path.read_text() for path in (PACKAGE / "cli").rglob("*.py"))
    for shown in ("TRANSACTIONAL ID", "STATE BEFORE", "TIME LEFT", "Dry run, nothing was changed: add --execute to "):
        assert shown in text
        assert shown in source
    states = re.findall(r"^\| `([a-z ]+)` \|.*(?:yes|never|--force)", text, re.MULTILINE)
    assert len(states) == 6
    assert [state for state in states if f'"{state}"' not in source] == []


def test_every_argument_in_the_document_of_the_command_line_exists() -> None:
    """`--prefix` and the like are arguments of `dynamic-kafka`."""
    known = "".join(path.read_text() for path in (PACKAGE / "cli").rglob("*.py"))
    named = set(re.findall(r"(--[a-z][a-z-]+)", TEXTS["docs/reference/cli.md"]))
    assert {argument for argument in named if f'"{argument}"' not in known} <= {"--command-config"}


def test_what_versions_of_spark_lack_is_in_the_document_for_operators() -> None:
    """Each thing for which tests are skipped has its row, with the version that has it, and no row is left over."""
    chapter = TEXTS["docs/guides/versions.md"].partition("## Versions of Spark")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| .*`(?:Trigger\.)?(\w+)`.* \| (\d+)\.(\d+) \|", chapter, re.MULTILINE)
    assert {what: (int(major), int(minor)) for what, major, minor in rows} == SINCE
