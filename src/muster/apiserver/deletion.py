"""How a deletion begins and when an object is gone: grace periods and finalizers, as pure functions.

Source: apiserver `pkg/registry/rest/delete.go` and `pkg/registry/generic/registry/store.go`.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from muster.api.codec import Object
from muster.apiserver.bodies import DeleteOptions
from muster.apiserver.context import Context
from muster.apiserver.registry.strategy import Strategy
from muster.clock import parse_rfc3339, rfc3339

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"


class Step(Struct, frozen=True):
    """What a DELETE does now: `keep` the object, `mark` it (store `obj`), or `remove` it (last state `obj`)."""

    do: Literal["keep", "mark", "remove"]
    obj: Object


def begin(old: Object, strategy: Strategy, options: DeleteOptions, ctx: Context) -> Step:
    """The effect of DELETE on an object; `old` is not changed."""
    metadata = dict(old["metadata"])
    obj = {**old, "metadata": metadata}
    graceful, pending = _grace(old, metadata, strategy, options, ctx)
    if pending:
        return Step("keep", old)
    finalizers = collector_finalizers(metadata.get("finalizers") or [], strategy, options)
    finalizers = [*finalizers, *(name for name in strategy.deletion_finalizers if name not in finalizers)]
    changed = finalizers != (metadata.get("finalizers") or [])
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    held = bool(finalizers) or strategy.holds_deletion(old)
    if not graceful and not held and not changed:
        return Step("remove", obj)
    if not graceful:
        _mark(metadata, ctx)
    strategy.mark_deleted(obj, ctx)
    if held or metadata.get("deletionGracePeriodSeconds"):
        return Step("keep" if obj == old else "mark", obj)
    return Step("remove", obj)


def _grace(
    old: Object, metadata: Object, strategy: Strategy, options: DeleteOptions, ctx: Context
) -> tuple[bool, bool]:
    """Set deletionTimestamp and grace period in `metadata`. Returns (graceful, pending): pending = nothing to do."""
    if metadata.get("deletionTimestamp"):
        current = metadata.get("deletionGracePeriodSeconds")
        if not current or strategy.grace_period_s(old, options.grace_period_s) is None:
            return False, False
        if options.grace_period_s is None or options.grace_period_s >= current:
            return False, True
        requested = max(options.grace_period_s, 1) if options.grace_period_s < 0 else options.grace_period_s
        began_s = parse_rfc3339(metadata["deletionTimestamp"]) - current
        metadata["deletionTimestamp"] = rfc3339(
            max(began_s + requested, ctx.now) if requested == 0 else began_s + requested
        )
        metadata["deletionGracePeriodSeconds"] = requested
        return True, False
    period_s = strategy.grace_period_s(old, options.grace_period_s)
    if period_s is None:
        return False, False
    metadata["deletionTimestamp"] = rfc3339(ctx.now + period_s)
    metadata["deletionGracePeriodSeconds"] = period_s
    _count_generation(metadata)
    return True, False


def _mark(metadata: Object, ctx: Context) -> None:
    if metadata.get("deletionGracePeriodSeconds") is None:
        _count_generation(metadata)
    if not metadata.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = ctx.timestamp
    metadata["deletionGracePeriodSeconds"] = 0


def _count_generation(metadata: Object) -> None:
    if metadata.get("generation"):
        metadata["generation"] += 1


def collector_finalizers(finalizers: list[str], strategy: Strategy, options: DeleteOptions) -> list[str]:
    """The finalizers with which the garbage collector is told what to do with the dependents."""
    orphan, foreground = ORPHAN in finalizers, FOREGROUND in finalizers
    if options.propagation is not None:
        orphan, foreground = options.propagation == "Orphan", options.propagation == "Foreground"
    elif not orphan and not foreground:
        orphan = strategy.garbage_policy == "orphan"
    kept = [name for name in finalizers if name not in (ORPHAN, FOREGROUND)]
    if orphan:
        kept.append(ORPHAN)
    if foreground:
        kept.append(FOREGROUND)
    return kept if sorted(kept) != sorted(finalizers) else finalizers


def is_finished(obj: Object, strategy: Strategy) -> bool:
    """Whether an object that is being deleted has nothing left that keeps it."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds") and not strategy.holds_deletion(obj)
