"""How often Python collects garbage in processes that keep many objects for long."""

from __future__ import annotations

import gc

GC_THRESHOLDS = (50_000, 20, 100)
"""With Python's own thresholds, collections cost more than all decoding once many objects are kept."""


def raise_gc_thresholds() -> None:
    """Leave what exists now to itself, and collect the rest more rarely."""
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()
    gc.enable()
