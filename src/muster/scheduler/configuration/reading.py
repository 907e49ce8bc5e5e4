"""KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1): kube-scheduler's file, and what it means here.

Pure: a decoded file becomes a `SchedulerConfiguration`, or a `ConfigurationError` that names every fault with its path.
What is accepted and means nothing to this scheduler is listed in `ignored` (docs/howto/scheduler-configuration.md).
Source of the rules: kube-scheduler `apis/config/{v1,validation}`.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from muster.api.codec import JSON
from muster.engine.profile import Profile
from muster.engine.registry import PluginArguments, build_profile
from muster.scheduler.configuration.arguments import API_VERSION, read_arguments
from muster.scheduler.configuration.fields import INT32, INT64, Fault, Fields
from muster.scheduler.configuration.plugins import PluginChoice, read_plugins
from muster.scheduler.errors import ConfigurationError
from muster.scheduler.queue import Backoff

KIND = "KubeSchedulerConfiguration"
DEFAULT_SCHEDULER = "default-scheduler"


class ProfileConfiguration(Struct, frozen=True):
    """The rules for the pods of one schedulerName. `plugins`: who acts where; `arguments`: of all plugins."""

    scheduler_name: str
    profile: Profile
    plugins: PluginChoice
    arguments: PluginArguments


class SchedulerConfiguration(Struct, frozen=True):
    """A configuration file. `ignored`: the paths of settings that are accepted and change nothing here."""

    profiles: tuple[ProfileConfiguration, ...]
    backoff: Backoff
    ignored: tuple[str, ...] = ()


def read_configuration(value: JSON) -> SchedulerConfiguration:
    """What a decoded file says, with the defaults of what it leaves out. Raises ConfigurationError."""
    faults: list[Fault] = []
    if not isinstance(value, dict):
        raise ConfigurationError((Fault("", f"must be an object of kind {KIND}"),))
    fields = Fields(value, "", faults)
    fields.text("apiVersion", "", one_of=(API_VERSION,))
    fields.text("kind", "", one_of=(KIND,))
    if faults:  # of another kind: nothing else in it means anything
        raise ConfigurationError(tuple(faults))
    entries = fields.objects("profiles")
    profiles = _profiles(entries or [Fields({}, "profiles[0]", faults)])
    backoff = _backoff(fields)
    ignored = [*_ignored(fields), *(entry.at(_PERCENTAGE) for entry in entries if entry.has(_PERCENTAGE))]
    if fields.raw("extenders"):
        fields.fault("extenders", "extenders are not supported")
    fields.finish()
    if faults:
        raise ConfigurationError(tuple(faults))
    return SchedulerConfiguration(tuple(profiles), backoff, tuple(ignored))


def _profiles(entries: list[Fields]) -> list[ProfileConfiguration]:
    found: list[ProfileConfiguration] = []
    for entry in entries:
        profile = _profile(entry, DEFAULT_SCHEDULER if len(entries) == 1 else "")
        if profile.scheduler_name in (each.scheduler_name for each in found):
            entry.fault("schedulerName", f"duplicate value {profile.scheduler_name!r}")
        found.append(profile)
    return found


def _profile(entry: Fields, default_name: str) -> ProfileConfiguration:
    name = entry.text("schedulerName") or default_name
    if not name:
        entry.fault("schedulerName", "is missing: only a single profile may leave it out")
    entry.integer(_PERCENTAGE, 0, 0, 100)
    plugins, arguments = read_plugins(entry), read_arguments(entry)
    entry.finish()
    profile = build_profile(plugins.points["filter"], plugins.scores, arguments)
    evicts = "DefaultPreemption" in plugins.points["postFilter"]
    profile = replace(profile, preemption=arguments.preemption if evicts else None)
    return ProfileConfiguration(name, profile, plugins, arguments)


def _backoff(fields: Fields) -> Backoff:
    initial_s = fields.integer("podInitialBackoffSeconds", 1, 1, INT64)
    max_s = fields.integer("podMaxBackoffSeconds", 10, -INT64, INT64)
    if max_s < initial_s:
        what = f"must be at least podInitialBackoffSeconds ({initial_s})"
        fields.fault("podMaxBackoffSeconds", f"invalid value {max_s}: {what}")
    return Backoff(float(initial_s), float(max_s))


def _ignored(fields: Fields) -> list[str]:
    """Check what means nothing here; the paths of what is there."""
    fields.integer("parallelism", 16, 1, INT32)
    fields.integer(_PERCENTAGE, 0, 0, 100)
    for name in ("enableProfiling", "enableContentionProfiling", "delayCacheUntilActive"):
        fields.boolean(name)
    _client_connection(fields)
    _leader_election(fields)
    return [name for name in _MEANINGLESS if fields.has(name)]


_PERCENTAGE = "percentageOfNodesToScore"
_MEANINGLESS = (
    "parallelism",
    _PERCENTAGE,
    "enableProfiling",
    "enableContentionProfiling",
    "delayCacheUntilActive",
    "clientConnection",
    "leaderElection",
)


def _client_connection(fields: Fields) -> None:
    connection = fields.object("clientConnection")
    if connection is not None:
        for name in ("kubeconfig", "acceptContentTypes", "contentType"):
            connection.text(name)
        connection.number("qps", 50.0)
        connection.integer("burst", 100, 0)
        connection.finish()


def _leader_election(fields: Fields) -> None:
    election = fields.object("leaderElection")
    if election is None:
        return
    is_used = election.boolean("leaderElect", True)
    lock = election.text("resourceLock", "leases")
    election.text("resourceName")
    election.text("resourceNamespace")
    lease_s, renew_s = election.seconds("leaseDuration", 15.0), election.seconds("renewDeadline", 10.0)
    retry_s = election.seconds("retryPeriod", 2.0)
    election.finish()
    if is_used and lock != "leases":
        election.fault("resourceLock", f"unsupported value {lock!r}: must be leases")
    if is_used and not lease_s > renew_s:
        election.fault("leaseDuration", "must be longer than renewDeadline")
    if is_used and not renew_s > 1.2 * retry_s:
        election.fault("renewDeadline", "must be longer than 1.2 times retryPeriod")
