"""Options that several commands share, as cyclopts reads them from annotations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from cyclopts import Group, Parameter

from muster.cli.output import Format

CLUSTER = Group.create_ordered("Cluster")
OUTPUT = Group.create_ordered("Output")

Output: TypeAlias = Annotated[Format, Parameter(name=["--output", "-o"], group=OUTPUT)]
Write: TypeAlias = Annotated[Path | None, Parameter(name="--write", group=OUTPUT)]
NodeSpecs: TypeAlias = Annotated[
    tuple[str, ...], Parameter(name="--nodes", consume_multiple=True, negative="", group=CLUSTER)
]


@Parameter(name="*", group=CLUSTER)
@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """How the cluster behaves, the same for `up` and `simulate`."""

    job_groups: Literal["off", "1.36", "1.37"] = "1.36"
    """When the Job controller makes a group for a Job: never, by the rules of 1.36 (every Indexed Job whose parallelism
    equals its completions), or by those of 1.37 (`spec.scheduling`)."""

    pod_by_pod: Annotated[bool, Parameter(negative="")] = False
    """Ignore groups: schedule every pod by itself, as schedulers without groups do."""

    without: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")] = ()
    """Leave components out, comma-separated: nodes, scheduler, controllers, or a controller by its name, such as
    job-controller."""

    placement: Literal["exact", "upstream-1.36", "upstream-1.37"] = "exact"
    """How decisions are made: exactly, or as kube-scheduler of a release makes them."""

    emulate: Literal["1.35", "1.36", "1.37"] | None = None
    """Serve the API exactly as one release does."""

    def left_out(self) -> frozenset[str]:
        """The names given by `--without`, one by one."""
        return frozenset(name.strip() for entry in self.without for name in entry.split(",") if name.strip())


DEFAULT_CLUSTER = ClusterOptions()
