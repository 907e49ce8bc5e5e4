"""What can be set about the scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from muster.api.grouping import Grouping
from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.profile import Profile
from muster.engine.registry import DynamicResourcesArguments, VolumeBindingArguments
from muster.engine.upstream.model import Choices, Release
from muster.scheduler.configuration.reading import DEFAULT_SCHEDULER, SchedulerConfiguration
from muster.scheduler.provisioning.objects import ProvisioningTerms
from muster.scheduler.queue import Backoff

MUSTER = "muster"
"""The schedulerName of pods that ask for this scheduler and no other."""

PlacementMode: TypeAlias = Literal["exact", "upstream-1.36", "upstream-1.37"]

RELEASES: dict[PlacementMode, Release] = {"upstream-1.36": "1.36", "upstream-1.37": "1.37"}
"""The releases of kube-scheduler by whose rules groups may be decided."""


class SchedulerOptions(Struct, frozen=True):
    """`scheduler_names`: pods with another schedulerName are not placed; what they use counts nevertheless.

    `profiles`: the rules by schedulerName; a name without any has the default profile.
    `pod_by_pod` ignores groups: each pod is scheduled alone, as kube-scheduler does without the gate GenericWorkload.
    `say_why_held` writes a condition on members that PreEnqueue holds; real servers say nothing.
    `placement`: how groups are decided: exactly, or as a release of kube-scheduler does; `choices` then takes what
    upstream leaves to chance.
    `decide_in_thread`: what may take long is decided in a thread beside the event loop; for live use only.
    `decide_limit_s`: a cap for each such decision in a live scheduler, besides the work that it may do.
    `strict_order`: plain pods of one priority are decided one after the other even where that makes no difference to
    who gets a node. `batch` and `passes`: about how many pods, and how many groups or pods that differ, are decided
    between two turns of the event loop.
    `event_source`: the component in whose name events are written.
    `repair_after_s`: a gang that is bound in part for so long is undone (see `repair`); None: never.
    `keeps_together`: whether gangs that ask for it are evicted as a whole when they lose members (see `keeping`).
    `grouping`: which of our pods are a group besides those that Kubernetes' own objects make one.
    `bind_timeouts_s`: how long the volumes of a pod may take, by schedulerName (VolumeBindingArgs).
    `device_timeouts_s`: how long it may take until its devices are ready, likewise (DynamicResourcesArgs).
    `bindings`: how many bind requests are under way at once. Times are in seconds. `plan_limit_s`: a cap for each
    search for victims in a live scheduler; without, work alone is counted, and equal runs have equal plans.
    `allow_consolidation`: pods that fit elsewhere are evicted, so that their controllers make them anew there, if that
    lets a group fit that does not fit otherwise.
    `provisioning`: a ProvisioningRequest is made for each group that lacks room, where the cluster has the kind.
    """

    scheduler_names: frozenset[str] = frozenset({DEFAULT_SCHEDULER, MUSTER})
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    bind_timeouts_s: Mapping[str, float] = field(default_factory=dict)
    device_timeouts_s: Mapping[str, float] = field(default_factory=dict)
    placement: PlacementMode = "exact"
    pod_by_pod: bool = False
    say_why_held: bool = True
    backoff: Backoff = field(default_factory=Backoff)
    flush_after_s: float = 300.0
    flush_every_s: float = 30.0
    say_why_held_after_s: float = 1.0
    strict_order: bool = False
    decide_in_thread: bool = False
    decide_limit_s: float | None = None
    batch: int = 2000
    passes: int = 64
    bindings: int = 32
    plan_limit_s: float | None = None
    event_source: str = DEFAULT_SCHEDULER
    repair_after_s: float | None = 30.0
    keeps_together: bool = True
    allow_consolidation: bool = False
    grouping: Grouping | None = None
    provisioning: ProvisioningTerms | None = None
    choices: Choices = field(default_factory=Choices)

    @property
    def release(self) -> Release | None:
        """The release by whose rules groups are decided; None for our own."""
        return RELEASES.get(self.placement)

    def profile_of(self, scheduler_name: str) -> Profile:
        """The rules for pods with this schedulerName."""
        return self.profiles.get(scheduler_name, DEFAULT_PROFILE)

    def bind_timeout_s(self, scheduler_name: str) -> float:
        """How long the volumes of pods with this schedulerName may take."""
        return self.bind_timeouts_s.get(scheduler_name, float(VolumeBindingArguments().bind_timeout_s))

    def device_timeout_s(self, scheduler_name: str) -> float:
        """How long it may take until the devices of pods with this schedulerName are ready."""
        return self.device_timeouts_s.get(scheduler_name, DynamicResourcesArguments().binding_timeout_s)

    def with_configuration(self, configuration: SchedulerConfiguration) -> SchedulerOptions:
        """The same, with what a configuration file sets: profiles and backoff.

        Only pods that name one of its profiles are placed; `muster` means the same as `default-scheduler` where the
        file has a profile of that name and none for `muster`.
        """
        profiles = {each.scheduler_name: each.profile for each in configuration.profiles}
        arguments = {each.scheduler_name: each.arguments for each in configuration.profiles}
        if DEFAULT_SCHEDULER in profiles:
            profiles.setdefault(MUSTER, profiles[DEFAULT_SCHEDULER])
            arguments.setdefault(MUSTER, arguments[DEFAULT_SCHEDULER])
        timeouts = {name: float(each.volume_binding.bind_timeout_s) for name, each in arguments.items()}
        return replace(
            self,
            scheduler_names=frozenset(profiles),
            profiles=profiles,
            bind_timeouts_s=timeouts,
            device_timeouts_s={name: each.dynamic_resources.binding_timeout_s for name, each in arguments.items()},
            backoff=configuration.backoff,
        )
