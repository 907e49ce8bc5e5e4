"""The consoles that commands draw on: where tables, help and progress go."""

from __future__ import annotations

import sys

from rich.console import Console

WIDTH = 200
"""Columns where it is not a terminal that is written to, so that little is folded."""


class _Terminal(Console):
    """A console that leaves it to the caller what to do when its reader goes away."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(width: int = WIDTH, *, most: int | None = None) -> Console:
    """The console of standard output; off a terminal it has so many columns, on one not more than `most`."""
    if not sys.stdout.isatty():
        return _Terminal(highlight=False, width=width)
    found = _Terminal(highlight=False)
    return found if most is None or found.width <= most else _Terminal(highlight=False, width=most)


def error_console() -> Console:
    """The console of standard error, for progress and hints."""
    if sys.stderr.isatty():
        return _Terminal(stderr=True, highlight=False)
    return _Terminal(stderr=True, highlight=False, width=WIDTH)
