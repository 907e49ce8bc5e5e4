"""How commands answer: a table for people, JSON or YAML for programs, to the terminal or into a file."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import orjson

from muster.api.codec import JSON
from muster.cli.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 200
"""Columns of a table that does not go to a terminal."""

Format: TypeAlias = Literal["table", "json", "yaml"]


def emit(value: JSON, format_: Format, write: Path | None, table: Callable[[Console], None]) -> None:
    """Print `value` as JSON or YAML, or let `table` draw it; into the file `write` if there is one.

    Raises `BadInput` if the file cannot be written.
    """
    if format_ == "table" and write is None and sys.stdout.isatty():
        table(console())
        return
    text = render(value, format_, table)
    if write is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    write_text(write, text)


def write_text(path: Path, text: str) -> None:
    """Write a file. Raises `BadInput`."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}") from error


def render(value: JSON, format_: Format, table: Callable[[Console], None]) -> str:
    """The text of a value in a format; tables without colours, and so wide that little is folded."""
    if format_ == "json":
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode() + "\n"
    if format_ == "yaml":
        import yaml

        text: str = yaml.dump(value, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=120)
        return text
    from rich.console import Console

    buffer = io.StringIO()
    table(Console(file=buffer, width=WIDTH, highlight=False))
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())


def console() -> Console:
    """The console of standard output; off a terminal it is wide, so that nothing is cut or wrapped."""
    from rich.console import Console

    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=WIDTH)


def error_console() -> Console:
    """The console of standard error, for progress and hints."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def warn(lines: Iterable[str]) -> None:
    """Say on standard error what is to be said about the input, as kubectl prints the warnings of a server."""
    for line in lines:
        print(f"Warning: {line}", file=sys.stderr, flush=True)


def _dumper() -> type:
    import yaml

    dumper: type = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return dumper
