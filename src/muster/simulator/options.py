"""What can be set about an embedded cluster, the same for `muster up`, `muster simulate` and tests."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from msgspec import Struct, field
from msgspec.structs import replace

from muster.apiserver.options import Mode, Release, ServerOptions
from muster.controllers.options import ControllerOptions, JobGroups
from muster.controllers.registry import CONTROLLERS, KNOWN_NAMES
from muster.scheduler.options import PlacementMode, SchedulerOptions

ONLY_EMULATED = ("ttl-controller",)
"""Controllers that run only where a release is emulated: they write to every node what nobody here reads."""
ONLY_WITH_ROLES = frozenset({"clusterrole-aggregation-controller"})
"""Controllers that run only where roles decide."""
PARTS = ("controllers", "nodes", "scheduler")
"""What `without` can name besides controllers."""


class UnknownComponent(ValueError):
    """A name of `--without` that means nothing; the message says what would. Not retryable."""


class ClusterOptions(Struct, frozen=True):
    """How a cluster is made up and behaves.

    `without`: components that are left out, as `check_without` accepts them. `emulate`: the API of exactly one release.
    `job_groups`: by which release's rules Jobs get groups; None: those of the emulated release, else of 1.36.
    `placement`: how decisions are made. `pod_by_pod`: groups are ignored, as by a scheduler without them.
    `node_events`: whether simulated kubelets write events. `controllers` and `scheduler`: what else can be set there;
    fields that are also here are overwritten. `authorization_modes`: who decides what users may do.
    `restricts_nodes`: whether kubelets may write only what is theirs.
    """

    without: frozenset[str] = frozenset()
    job_groups: JobGroups | None = None
    emulate: Release | None = None
    placement: PlacementMode = "exact"
    pod_by_pod: bool = False
    node_events: bool = True
    controllers: ControllerOptions = field(default_factory=ControllerOptions)
    scheduler: SchedulerOptions = field(default_factory=SchedulerOptions)
    authorization_modes: tuple[Mode, ...] = ("AlwaysAllow",)
    restricts_nodes: bool = False

    def has(self, component: str) -> bool:
        """Whether a component is part of the cluster."""
        return component not in self.without

    def controller_names(self) -> list[str]:
        """The controllers to run, sorted."""
        if not self.has("controllers"):
            return []
        skipped = frozenset() if self.emulate else frozenset(ONLY_EMULATED)
        if "RBAC" not in self.authorization_modes:
            skipped |= ONLY_WITH_ROLES
        return sorted(name for name in CONTROLLERS if self.has(name) and name not in skipped)

    def server_options(self) -> ServerOptions:
        """The options of the API server."""
        return ServerOptions(
            emulate=self.emulate,
            job_groups=self.job_groups,
            authorization_modes=self.authorization_modes,
            restricts_nodes=self.restricts_nodes,
        )

    def controller_options(self) -> ControllerOptions:
        """The options of the controllers."""
        rules = self.server_options().job_group_rules
        return replace(self.controllers, job_groups=rules, tells_group_failures=self.emulate is None)

    def scheduler_options(self) -> SchedulerOptions:
        """The options of the scheduler."""
        return replace(
            self.scheduler,
            placement=self.placement,
            pod_by_pod=self.pod_by_pod,
            say_why_held=self.scheduler.say_why_held and self.emulate is None,
            repair_after_s=self.scheduler.repair_after_s if self.emulate is None else None,
            keeps_together=self.scheduler.keeps_together and self.emulate is None,
        )


def check_without(names: Iterable[str]) -> frozenset[str]:
    """The names as a set. A name of kube-controller-manager is accepted whether we have that controller or not.

    Raises `UnknownComponent`.
    """
    names = frozenset(names)
    known = {*PARTS, *KNOWN_NAMES, *CONTROLLERS}
    for name in sorted(names):
        if name not in known:
            close = difflib.get_close_matches(name, sorted(known), n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(PARTS)}, and controllers by name"
            raise UnknownComponent(f"there is no component {name!r}: {hint}")
    return names
