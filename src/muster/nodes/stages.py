"""The life of a simulated pod: which stage it is in and when that ends. Pure; `stages.yaml` is the data.

```
 begin ─► pull ─► start ─► ready ─► run ─► ended (gone when it was being deleted)
                             ▲       │ failed, restartPolicy OnFailure
                             └─ back-off
          any ── deletionTimestamp ─► terminating ─► ended
```
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import Path

import yaml
from msgspec import Struct
from msgspec.structs import replace

from muster.api.codec import JSON, Object
from muster.api.meta import controller_of, has_condition, namespace_of
from muster.clock import parse_rfc3339

NEGLIGIBLE_S = 1e-6
"""Less time than this counts as none: sums of floats are not exact."""


class Kind(Enum):
    """What a stage is, where it is not one of the data."""

    STAGE = "stage"
    BACKOFF = "backoff"
    TERMINATING = "terminating"
    ENDED = "ended"


class Stage(Struct, frozen=True):
    """One stage of the data; see there."""

    name: str
    phase: str
    ready: bool
    annotation: str
    default_s: float | None
    owner_s: Mapping[str, float]
    barrier: str


class Stages(Struct, frozen=True):
    """The data of `stages.yaml`."""

    stages: tuple[Stage, ...]
    exit_annotation: str
    exit_code: int
    restart_at: int
    restart_first_s: float
    restart_most_s: float
    terminate_annotation: str
    terminate_s: float
    terminate_code: int
    lost_code: int

    @property
    def annotations(self) -> tuple[str, ...]:
        """The annotations of pods that it reads."""
        of_stages = (key for stage in self.stages for key in (stage.annotation, stage.barrier) if key)
        return (*of_stages, self.exit_annotation, self.terminate_annotation)


class Barrier(Struct, frozen=True):
    """Time counts while `count` pods of this barrier run. `name` is that of the namespace and of the barrier."""

    name: tuple[str, str]
    count: int


class Plan(Struct, frozen=True):
    """What a pod's annotations, owner and restart policy say about its life. `seconds`: one a stage, None for ever."""

    seconds: tuple[float | None, ...]
    exit_code: int
    barrier: Barrier | None
    restarts: bool
    restarts_lost: bool
    stop_s: float
    """How long it takes from being asked to end: at most its grace period."""
    invalid: tuple[str, ...] = ()
    """Annotations whose value has no meaning, which are therefore ignored."""


class Life(Struct, frozen=True):
    """Where a pod is in its life.

    `left_s` of this stage were left at `since` (a time; None: the time does not count now). `index` is the stage of
    the data, `started` when the containers started.
    """

    kind: Kind
    index: int
    left_s: float | None
    since: float | None
    began: float
    started: float | None = None
    exit_code: int = 0
    restarts: int = 0
    ended: float | None = None

    @property
    def deadline(self) -> float | None:
        """When this stage ends, if nothing else happens; None: never."""
        if self.left_s is None or self.since is None or self.kind is Kind.ENDED:
            return None
        return self.since + self.left_s


@cache
def load_stages() -> Stages:
    """The data of this package, read once."""
    return parse_stages(yaml.safe_load(Path(__file__).with_name("stages.yaml").read_text(encoding="utf-8")))


def parse_stages(data: Object) -> Stages:
    """The data as values. Raises KeyError, TypeError or ValueError when it is wrong."""
    stages = tuple(_stage(entry) for entry in data["stages"])
    names = [stage.name for stage in stages]
    restart, terminate = data["restart"], data["terminate"]
    return Stages(
        stages=stages,
        exit_annotation=data["exitCode"]["annotation"],
        exit_code=int(data["exitCode"]["default"]),
        restart_at=names.index(restart["stage"]),
        restart_first_s=float(restart["firstSeconds"]),
        restart_most_s=float(restart["mostSeconds"]),
        terminate_annotation=terminate["seconds"]["annotation"],
        terminate_s=float(terminate["seconds"]["default"]),
        terminate_code=int(terminate["exitCode"]),
        lost_code=int(data["lost"]["exitCode"]),
    )


def plan_of(pod: Object, data: Stages) -> Plan:
    """What will happen to a pod."""
    annotations = pod["metadata"].get("annotations") or {}
    owner = controller_of(pod)
    owner_kind = owner["kind"] if owner else ""
    invalid: list[str] = []
    seconds = tuple(_seconds(stage, annotations, owner_kind, invalid) for stage in data.stages)
    text = annotations.get(data.exit_annotation, str(data.exit_code)).strip()
    if not text.isdecimal() or int(text) > 255:
        invalid.append(data.exit_annotation)
        text = str(data.exit_code)
    grace = pod["spec"].get("terminationGracePeriodSeconds")
    return Plan(
        seconds=seconds,
        exit_code=int(text),
        barrier=_barrier(pod, annotations, data, invalid),
        restarts=pod["spec"].get("restartPolicy") == "OnFailure",
        restarts_lost=pod["spec"].get("restartPolicy") != "Never",
        stop_s=min(_stop_seconds(annotations, data, invalid), 30.0 if grace is None else float(grace)),
        invalid=tuple(invalid),
    )


def begin(plan: Plan, data: Stages, now: float) -> Life:
    """The life of a pod that a node just took."""
    return _enter(plan, data, Life(Kind.STAGE, 0, 0.0, now, began=now), 0, now)


def adopt(plan: Plan, data: Stages, pod: Object, now: float) -> Life | None:
    """The life of a pod that ran before this agent did; None if its status does not tell, so that it begins anew.

    What had counted towards a barrier is not known, so that its time begins anew.
    """
    started = _started_at(pod)
    running = next((index for index, stage in enumerate(data.stages) if stage.ready), None)
    if started is None or running is None or not has_condition(pod, "Ready"):
        return None
    left = plan.seconds[running]
    if left is not None and plan.barrier is None:
        left = max(0.0, left - (now - started))
    restarts = (pod["status"]["containerStatuses"][0]).get("restartCount", 0)
    return Life(Kind.STAGE, running, left, now, began=started, started=started, restarts=restarts)


def advance(plan: Plan, data: Stages, life: Life, now: float) -> Life:
    """The life after the time of its stage is up."""
    if life.kind is Kind.ENDED:
        return life
    if life.kind is Kind.TERMINATING:
        return _end(life, data.terminate_code, now)
    if life.kind is Kind.BACKOFF:
        return _enter(plan, data, replace(life, restarts=life.restarts + 1, started=None), data.restart_at, now)
    return _enter(plan, data, life, life.index + 1, now)


def terminate(plan: Plan, data: Stages, life: Life, now: float) -> Life:
    """The life of a pod that is asked to end."""
    if life.kind in (Kind.ENDED, Kind.TERMINATING):
        return life
    if plan.stop_s <= NEGLIGIBLE_S:
        return _end(life, data.terminate_code, now)
    return replace(life, kind=Kind.TERMINATING, left_s=plan.stop_s, since=now)


def lose(plan: Plan, data: Stages, life: Life, now: float) -> Life:
    """The life of a pod whose node comes back after it was down: its containers are gone, and started again if the
    restart policy is not Never."""
    if life.kind is Kind.ENDED:
        return life
    if plan.restarts_lost:
        return _enter(plan, data, replace(life, restarts=life.restarts + 1, started=None), data.restart_at, now)
    return _end(life, data.lost_code, now)


def freeze(life: Life, now: float) -> Life:
    """The same with its time stopped (idempotent)."""
    if life.since is None or life.left_s is None:
        return replace(life, since=None)
    return replace(life, left_s=max(0.0, life.left_s - (now - life.since)), since=None)


def resume(life: Life, now: float) -> Life:
    """The same with its time going on (idempotent)."""
    return life if life.since is not None else replace(life, since=now)


def waits_at(plan: Plan, data: Stages, life: Life) -> Barrier | None:
    """The barrier whose members the pod is one of in its present stage."""
    if life.kind is Kind.STAGE and data.stages[life.index].barrier:
        return plan.barrier
    return None


def _started_at(pod: Object) -> float | None:
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        started = ((container.get("state") or {}).get("running") or {}).get("startedAt")
        if started:
            return parse_rfc3339(started)
    return None


def _enter(plan: Plan, data: Stages, life: Life, index: int, now: float) -> Life:
    started = life.started
    while index < len(data.stages):
        if started is None and data.stages[index].phase == "Running":
            started = now
        left = plan.seconds[index]
        if left is None or left > NEGLIGIBLE_S:
            return replace(life, kind=Kind.STAGE, index=index, left_s=left, since=now, started=started)
        index += 1
    life = replace(life, started=started)
    if plan.exit_code and plan.restarts:
        wait = min(data.restart_most_s, data.restart_first_s * 2.0 ** min(life.restarts, 30))
        return replace(life, kind=Kind.BACKOFF, left_s=wait, since=now, exit_code=plan.exit_code)
    return _end(life, plan.exit_code, now)


def _end(life: Life, exit_code: int, now: float) -> Life:
    return replace(life, kind=Kind.ENDED, left_s=None, since=None, exit_code=exit_code, ended=now)


def _stage(entry: Object) -> Stage:
    seconds = entry["seconds"]
    default = seconds["default"]
    return Stage(
        name=entry["name"],
        phase=entry["phase"],
        ready=bool(entry.get("ready")),
        annotation=seconds["annotation"],
        default_s=None if default is None else float(default),
        owner_s={kind: float(value) for kind, value in (seconds.get("ownedBy") or {}).items()},
        barrier=entry.get("barrier", ""),
    )


def _seconds(stage: Stage, annotations: Mapping[str, str], owner_kind: str, invalid: list[str]) -> float | None:
    text = annotations.get(stage.annotation)
    if text is not None:
        value = _positive(text)
        if value is not None:
            return value
        invalid.append(stage.annotation)
    return stage.owner_s.get(owner_kind, stage.default_s)


def _stop_seconds(annotations: Mapping[str, str], data: Stages, invalid: list[str]) -> float:
    text = annotations.get(data.terminate_annotation)
    value = data.terminate_s if text is None else _positive(text)
    if value is None:
        invalid.append(data.terminate_annotation)
        return data.terminate_s
    return value


def _positive(text: JSON) -> float | None:
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if value >= 0 and math.isfinite(value) else None


def _barrier(pod: Object, annotations: Mapping[str, str], data: Stages, invalid: list[str]) -> Barrier | None:
    key = next((stage.barrier for stage in data.stages if stage.barrier), "")
    text = annotations.get(key)
    if text is None:
        return None
    name, slash, count = text.rpartition("/")
    if not slash or not name or not count.isdecimal() or int(count) < 1:
        invalid.append(key)
        return None
    return Barrier((namespace_of(pod), name), int(count))
