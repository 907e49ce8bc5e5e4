"""Host ports in use: for each port, how many pods hold it on each node. Arrays are shared until they are written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from muster.engine.arrays import Bools, Ints, Ints32

Port: TypeAlias = tuple[str, str, int]
"""(ip, protocol, port)."""

ANY = "0.0.0.0"


class PortTable:
    """int32[N] pods a port; `copy()` is cheap, because an array is copied when it is first written after that."""

    def __init__(self, nodes: int, held: dict[Port, Ints32] | None = None) -> None:
        self._nodes = nodes
        self._held: dict[Port, Ints32] = dict(held or {})
        self._own: set[Port] = set()

    def copy(self) -> PortTable:
        """An independent table. From now on neither side writes into a shared array."""
        self._own.clear()
        return PortTable(self._nodes, self._held)

    def add(self, row: int, ports: Iterable[Port], count: int = 1) -> None:
        """Counts `count` more pods (or fewer, if negative) with these ports on the node."""
        for port in ports:
            if port not in self._own:
                held = self._held.get(port)
                self._held[port] = np.zeros(self._nodes, dtype=np.int32) if held is None else held.copy()
                self._own.add(port)
            self._held[port][row] += count

    def conflicts(self, wanted: Iterable[Port]) -> Bools:
        """bool[N]: nodes where a wanted port is taken: same protocol and port, equal or unspecified address."""
        taken = np.zeros(self._nodes, dtype=np.bool_)
        for ip, protocol, port in wanted:
            for (held_ip, held_protocol, held_port), pods in self._held.items():
                if (protocol, port) == (held_protocol, held_port) and (ip == held_ip or ANY in (ip, held_ip)):
                    taken |= pods > 0
        return taken

    def moved(self, nodes: int, rows: Ints, old_rows: Ints) -> PortTable:
        """The table for another set of nodes: `rows[j]` there is `old_rows[j]` here."""
        moved = PortTable(nodes)
        for port, pods in self._held.items():
            column = np.zeros(nodes, dtype=np.int32)
            column[rows] = pods[old_rows]
            if column.any():
                moved._held[port] = column
                moved._own.add(port)
        return moved
