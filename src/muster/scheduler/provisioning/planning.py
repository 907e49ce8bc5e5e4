"""Which ProvisioningRequests are to be made and removed next. Pure; time is passed in.

One request for each entity of the queue that lacks room, made once it has lacked it for a moment (a group may still
fill up, or fit when the next pod ends). It goes when the entity has room, is held or is gone, and gives way to another
one when more or other pods are wanted, or when the autoscaler gave it up: then after a pause that doubles.

    lacks room, SETTLE_S       other pods wanted, not provided; failed, expired, revoked and the pause is over
    ──────────────────► ASKED ───────────────────────────────────────────────────► removed, made anew
                          └──── placed, held, waits for victims, gone, LET_GO_S ──► removed
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from muster.api.codec import Object
from muster.api.meta import condition, is_deleting, key_of, name_of
from muster.clock import parse_rfc3339
from muster.scheduler.provisioning.objects import (
    PodSet,
    State,
    asked_of,
    attempt_of,
    entity_of,
    request_name,
    state_of,
    wanted_of,
)

SETTLE_S = 3.0
LET_GO_S = 5.0
"""How long an entity has to lack room before it is asked for, and to do without before the request goes."""
FIRST_PAUSE_S = 60.0
MAX_PAUSE_S = 1800.0
"""The pause before one that was given up is made anew doubles from the first to the longest (Kueue's defaults)."""


class Want(Struct, frozen=True):
    """An entity that lacks room since `since_s`. `owner`: apiVersion, kind, name and uid of its object."""

    entity: str
    namespace: str
    owner: Object
    sets: tuple[PodSet, ...]
    since_s: float

    @property
    def name(self) -> str:
        """The name of its request."""
        return request_name(self.entity, self.owner)


class Make(Struct, frozen=True):
    """Make a request, the `attempt`-th."""

    want: Want
    attempt: int


class Remove(Struct, frozen=True):
    """Remove a request and its templates."""

    request: Object


class Steps(Struct, frozen=True):
    """What to do now, and when to look again (None: only when something changes)."""

    now: tuple[Make | Remove, ...]
    again_s: float | None


def next_steps(
    wants: Mapping[str, Want],
    idle_since_s: Mapping[str, float],
    requests: Iterable[Object],
    attempts: Mapping[str, int],
    now: float,
) -> Steps:
    """What to do. `idle_since_s`: since when entities need no request; those in neither mapping are not judged yet.

    `attempts`: how many requests there were for each entity.
    """
    steps: list[Make | Remove] = []
    times_s: list[float] = []
    standing: set[str] = set()
    for request in sorted(requests, key=key_of):
        entity = entity_of(request)
        if is_deleting(request):
            standing.add(entity)
            continue
        due_s = _removed_at(request, wants.get(entity), idle_since_s.get(entity))
        if due_s is None or due_s > now:
            standing.add(entity)
        if due_s is not None:
            _put(steps, times_s, Remove(request), due_s, now)
    for entity in sorted(wants.keys() - standing):
        want = wants[entity]
        if not any(isinstance(step, Remove) and entity_of(step.request) == entity for step in steps):
            _put(steps, times_s, Make(want, attempts.get(entity, 0) + 1), want.since_s + SETTLE_S, now)
    return Steps(tuple(steps), min(times_s, default=None))


def _removed_at(request: Object, want: Want | None, idle_s: float | None) -> float | None:
    """When a request is to go; None: not as far as is known."""
    if want is None:
        return None if idle_s is None else idle_s + LET_GO_S
    state = state_of(request)
    if name_of(request) != want.name:
        return want.since_s
    if state.is_over:
        return _time_of(request, state) + pause_s(attempt_of(request))
    if asked_of(request) == wanted_of(want.entity, want.owner, want.sets):
        return None
    # What was provided is given time to be used: its nodes become ready one after the other.
    earliest_s = _time_of(request, state) + FIRST_PAUSE_S if state == State.PROVISIONED else 0.0
    return max(want.since_s + SETTLE_S, earliest_s)


def pause_s(attempt: int) -> float:
    """How long to wait after an attempt that was given up."""
    return min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(attempt - 1, 30))


def _time_of(request: Object, state: State) -> float:
    """When the state began; the beginning of time if that is not said."""
    text = str((condition(request, state.value) or {}).get("lastTransitionTime") or "")
    try:
        return parse_rfc3339(text)
    except ValueError:
        return 0.0


def _put(steps: list[Make | Remove], times_s: list[float], step: Make | Remove, due_s: float, now: float) -> None:
    if due_s <= now:
        steps.append(step)
    else:
        times_s.append(due_s)
