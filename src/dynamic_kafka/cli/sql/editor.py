"""Lines that a user types, with history and completion: by prompt_toolkit on a terminal, else by Python's own `input`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamic_kafka.cli.output import draws
from dynamic_kafka.cli.sql.completion import Known, candidates
from dynamic_kafka.errors import SqlError

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

__all__ = ["HISTORY", "editor", "is_complete"]

HISTORY = Path("~/.dynamic-kafka-history")
"""The statements of earlier sessions, without their secrets. prompt_toolkit has its own format, in a file beside it."""
_PROMPT, _CONTINUED = "sql> ", "   > "
_MOST_LINES = 2000
_WORDS = ("QUIT", "EXIT", "HELP", "CLEAR")
"""The prompt's own statements; the semicolon may be missing."""


def editor(known: Callable[[], Known], below: Callable[[], str]) -> Callable[[], str]:
    """Return a function that reads one statement or more, up to a semicolon at the end of a line.

    `known` returns what statements can name, and `below` what is shown below the line that is being typed; may be empty.

    It raises EOFError for Ctrl-D, and KeyboardInterrupt for Ctrl-C.
    """
    if sys.stdin.isatty() and draws(sys.stdout):
        with suppress(ImportError):
            session = _session(known)

            def read() -> str:
                session.bottom_toolbar = below if below() else None  # an empty one would be drawn, too
                return session.prompt()

            return read
    with suppress(ImportError, OSError):
        _use_readline(known)
    return _plain


def is_complete(text: str) -> bool:
    """Return whether a text ends with a semicolon, has only comments, or has an error that more text does not mend."""
    from dynamic_kafka.sql.parser.lexer import tokenize
    from dynamic_kafka.sql.parser.parse import parse_script

    if text.strip().upper() in _WORDS:
        return True
    try:
        *tokens, _ = tokenize(text)
        if tokens and not tokens[-1].is_word(";"):
            return False
        parse_script(text)
    except SqlError as error:
        return not error.unfinished
    return True


def _plain() -> str:
    text = input(_PROMPT)
    while not is_complete(text):
        text += "\n" + input(_CONTINUED)
    _remember(text)
    return text


# --- readline -----------------------------------------------------------------------------------------------------------


def _use_readline(known: Callable[[], Known]) -> None:
    """Complete with the tabulator, and keep a history, by GNU's readline."""
    import readline

    found: list[str] = []

    def complete(_: str, number: int) -> str | None:
        if number == 0:
            line, start = readline.get_line_buffer()[: readline.get_endidx()], readline.get_begidx()
            found[:] = [text[start - at :] for text, at, _ in candidates(line, known()) if at <= start]
        return found[number] if number < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n'`(),;=")
    readline.parse_and_bind("tab: complete")
    readline.set_auto_history(False)  # it would keep secrets
    with suppress(OSError):
        readline.read_history_file(HISTORY.expanduser())


def _remember(text: str) -> None:
    """Add a statement to the history of readline, if that is used, and write it."""
    readline: Any = sys.modules.get("readline")
    if readline is None or not sys.stdin.isatty() or not text.strip():
        return
    from dynamic_kafka.sql.parser.errors import without_secrets

    for line in without_secrets(text).splitlines():
        readline.add_history(line)
    readline.set_history_length(_MOST_LINES)
    with suppress(OSError):
        readline.write_history_file(HISTORY.expanduser())


# --- prompt_toolkit -----------------------------------------------------------------------------------------------------


def _session(known: Callable[[], Known]) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.shortcuts import CompleteStyle

    class Completions(Completer):
        def get_completions(self, document: Document, _: CompleteEvent) -> Iterator[Completion]:
            before = document.text_before_cursor
            for text, start, shown in candidates(before, known(), document.text_after_cursor):
                yield Completion(text, start_position=start - len(before), display=shown)

    keys = KeyBindings()

    @keys.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None  # it takes the chosen one
        elif is_complete(buffer.text):
            buffer.cursor_position = len(buffer.text)
            buffer.validate_and_handle()
        else:
            buffer.newline(copy_margin=False)

    return PromptSession(
        _PROMPT,
        multiline=True,
        prompt_continuation=_CONTINUED,
        history=_history(),
        auto_suggest=AutoSuggestFromHistory(),
        completer=Completions(),
        complete_while_typing=False,
        complete_style=CompleteStyle.COLUMN,
        key_bindings=keys,
        lexer=_lexer(),
        refresh_interval=1.0,
        reserve_space_for_menu=6,
    )


def _history() -> Any:
    """Return a history in a file that only the user can read, in which secrets are hidden."""
    from prompt_toolkit.history import FileHistory

    from dynamic_kafka.sql.parser.errors import without_secrets

    class WithoutSecrets(FileHistory):
        def store_string(self, string: str) -> None:
            with suppress(OSError):
                super().store_string(without_secrets(string))

        def load_history_strings(self) -> list[str]:
            try:
                return list(super().load_history_strings())
            except OSError:
                return []

    path = HISTORY.expanduser().with_name(f"{HISTORY.name}-sql")
    with suppress(OSError):
        path.touch(mode=0o600)
        path.chmod(0o600)  # of one that was there
    return WithoutSecrets(str(path))


def _lexer() -> Any:
    try:
        from prompt_toolkit.lexers import PygmentsLexer
        from pygments.lexers.sql import SqlLexer
    except ImportError:
        return None
    return PygmentsLexer(SqlLexer)
