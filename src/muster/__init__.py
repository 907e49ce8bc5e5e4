"""Muster, a workload-aware scheduler for Kubernetes: groups of pods start as a whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.cluster import Cluster, Result

__version__ = "0.1.0"

__all__ = ["Cluster", "Result", "__version__"]


def __getattr__(name: str) -> object:
    """`Cluster` and `Result`, imported when they are first asked for: the rest must not pay for numpy."""
    if name in ("Cluster", "Result"):
        from muster import cluster

        return getattr(cluster, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
