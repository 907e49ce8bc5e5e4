"""Options that several commands share, as cyclopts reads them from annotations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Group, Parameter
from msgspec.structs import replace

from muster.cli.errors import BadInput
from muster.cli.output import Format

if TYPE_CHECKING:
    from muster.scheduler.options import SchedulerOptions
    from muster.simulator.options import ClusterOptions

INPUT_RANK, CLUSTER_RANK, OUTPUT_RANK = range(3)
"""The order of options in the help of a command: what it reads comes first."""
CLUSTER = Group("Cluster", sort_key=CLUSTER_RANK)
OUTPUT = Group("Output", sort_key=OUTPUT_RANK)

Output: TypeAlias = Annotated[Format, Parameter(name=["--output", "-o"], group=OUTPUT)]
Write: TypeAlias = Annotated[Path | None, Parameter(name="--write", group=OUTPUT)]
NodeSpecs: TypeAlias = Annotated[
    tuple[str, ...],
    Parameter(name="--nodes", consume_multiple=1, negative="", show_default=False, group=CLUSTER),
]


@Parameter(name="*", group=CLUSTER)
@dataclass(frozen=True, slots=True)
class Behaviour:
    """How the cluster behaves, the same for `up` and `simulate`."""

    job_groups: Literal["off", "1.36", "1.37"] | None = None
    """When the Job controller makes a group for a Job: never, by the rules of 1.36 (every Indexed Job whose parallelism
    equals its completions), or by those of 1.37 (`spec.scheduling`). By default 1.36, or the emulated release's."""

    pod_by_pod: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Ignore groups: schedule every pod by itself, as schedulers without groups do."""

    without: Annotated[tuple[str, ...], Parameter(consume_multiple=1, negative="", show_default=False)] = ()
    """Leave components out, separated by commas: nodes, scheduler, controllers, or a controller by its name, such as
    job-controller."""

    placement: Literal["exact", "upstream-1.36", "upstream-1.37"] = "exact"
    """How decisions are made: exactly, or as kube-scheduler of a release makes them."""

    emulate: Literal["1.35", "1.36", "1.37"] | None = None
    """Serve the API exactly as one release does."""

    allow_consolidation: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Evict pods that fit on other nodes, within their PodDisruptionBudgets, where that lets a group run that fits
    nowhere else: their controllers make them anew."""

    config: Path | None = None
    """A KubeSchedulerConfiguration (YAML or JSON) for the scheduler: profiles, plugins, weights, scoring strategies."""


DEFAULT_BEHAVIOUR = Behaviour()


def cluster_options(behaviour: Behaviour) -> ClusterOptions:
    """The options of the embedded cluster. Raises `BadInput` for what it does not know or cannot do."""
    from muster.cli.inputs import read_scheduler_options
    from muster.simulator.options import ClusterOptions, UnknownComponent, check_without

    try:
        options = ClusterOptions(
            without=check_without(_names(behaviour.without)),
            job_groups=behaviour.job_groups,
            emulate=behaviour.emulate,
            placement=behaviour.placement,
            pod_by_pod=behaviour.pod_by_pod,
            scheduler=replace(
                read_scheduler_options(behaviour.config), allow_consolidation=behaviour.allow_consolidation
            ),
        )
    except UnknownComponent as error:
        raise BadInput(f"--without: {error}") from error
    return options


DECIDE_LIMIT_S = 1.0
"""The longest search for a placement, or for a proof that there is none, of a live scheduler."""
PLAN_LIMIT_S = 2.0
"""The longest search for victims of a live scheduler."""


def live_options(behaviour: Behaviour) -> ClusterOptions:
    """Those of a cluster in real time: decisions that take long do not hold up the rest. Raises `BadInput`."""
    options = cluster_options(behaviour)
    return replace(options, scheduler=live_scheduler(options.scheduler))


def live_scheduler(options: SchedulerOptions) -> SchedulerOptions:
    """The same scheduler in real time: what may take long runs beside the rest, and no longer than so many seconds."""
    return replace(options, decide_in_thread=True, decide_limit_s=DECIDE_LIMIT_S, plan_limit_s=PLAN_LIMIT_S)


def _names(entries: Iterable[str]) -> list[str]:
    return [name.strip() for entry in entries for name in entry.split(",") if name.strip()]
