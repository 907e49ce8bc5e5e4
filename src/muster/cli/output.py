"""How commands answer: a table for people, JSON or YAML for programs, to the terminal or into a file."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import orjson

from muster.api.codec import JSON
from muster.cli.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

Format: TypeAlias = Literal["table", "json", "yaml"]


def emit(value: JSON, format_: Format, write: Path | None, table: Callable[[Console], None]) -> None:
    """Print `value` as JSON or YAML, or let `table` draw it; into the file `write` if there is one.

    Raises `BadInput` if the file cannot be written.
    """
    if format_ == "table" and write is None and sys.stdout.isatty():
        from muster.cli.terminal import console

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


def check_writable(*paths: Path | None) -> None:
    """Refuse files that cannot be written before any work is done for them. Raises `BadInput`."""
    for path in paths:
        if path is None:
            continue
        why = 0
        if path.is_dir():
            why = errno.EISDIR
        elif not path.exists() and not path.parent.is_dir():
            why = errno.ENOTDIR if path.parent.exists() else errno.ENOENT
        elif not os.access(path if path.exists() else path.parent, os.W_OK):
            why = errno.EACCES
        if why:
            raise BadInput(f"{path}: cannot be written: {os.strerror(why)}")


def render(value: JSON, format_: Format, table: Callable[[Console], None]) -> str:
    """The text of a value in a format; tables without colours, and so wide that little is folded."""
    if format_ == "json":
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode() + "\n"
    if format_ == "yaml":
        import yaml

        text: str = yaml.dump(value, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=120)
        return text
    from rich.console import Console

    from muster.cli.terminal import WIDTH

    buffer = io.StringIO()
    table(Console(file=buffer, width=WIDTH, highlight=False))
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())


def warn(lines: Iterable[str]) -> None:
    """Say on standard error what is to be said about the input, as kubectl prints the warnings of a server."""
    for line in lines:
        print(f"Warning: {line}", file=sys.stderr, flush=True)


def _dumper() -> type:
    import yaml

    dumper: type = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return dumper
