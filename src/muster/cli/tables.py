"""The tables of all commands: plain columns under a bold title."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text


def plain_table(title: str, columns: Sequence[str] = ()) -> Table:
    """An empty table; long cells fold, the title ("" for none) does not."""
    heading = Text(title, style="bold", no_wrap=True, overflow="ignore") if title else None
    table = Table(title=heading, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
