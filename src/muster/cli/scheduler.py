"""`muster scheduler`: the scheduler alone, beside the others of any real cluster, until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import uvloop
from cyclopts import Group, Parameter
from msgspec.structs import replace

from muster.api.grouping import Grouping, GroupingError, default_grouping, parse_rules, with_rules
from muster.api.manifests import ManifestError, load_value
from muster.cli.errors import BadInput
from muster.cli.inputs import read_duration, read_scheduler_options
from muster.cli.logs import configure_logging
from muster.cli.options import DECIDE_LIMIT_S, PLAN_LIMIT_S
from muster.client.connection import Connection, KubeconfigError, in_cluster
from muster.client.kubeconfig import default_paths, read_kubeconfig, read_kubeconfigs
from muster.scheduler.election import LeaseTerms
from muster.scheduler.options import MUSTER, PlacementMode, SchedulerOptions
from muster.scheduler.provisioning.objects import ProvisioningTerms, parse_class

if TYPE_CHECKING:
    from muster.api.codec import Object

ELECTION = Group.create_ordered("Leader election")
SERVING = Group.create_ordered("Serving")

DEFAULT_PORT = 10259
"""Where kube-scheduler answers, too."""


@dataclass(frozen=True, slots=True)
class Serving:
    """Where probes and metrics are answered. `port` None: the usual one if it is free, else any; 0: nowhere."""

    address: str
    port: int | None


@dataclass(frozen=True, slots=True)
class SchedulerPlan:
    """What to run, checked as far as that is possible before a server is asked. `lease` None: without an election."""

    connection: Connection
    options: SchedulerOptions
    lease: LeaseTerms | None
    serving: Serving
    identity: str
    dry_run: bool
    output: Literal["table", "json"]


@Parameter(name="*", group=ELECTION)
@dataclass(frozen=True, slots=True)
class LeaderElection:
    """kube-scheduler's options of leader election."""

    leader_elect: bool | None = None
    """Decide only while holding the lease, so that others may stand by. Default: yes, but not with --dry-run."""
    leader_elect_lease_duration: str | None = None
    """How long others wait after the holder's last sign of life. Default: 15s."""
    leader_elect_renew_deadline: str | None = None
    """The holder gives up when it could not renew for so long. Default: 10s."""
    leader_elect_retry_period: str | None = None
    """How long to wait between two tries. Default: 2s."""
    leader_elect_resource_name: str | None = None
    """The name of the lease. Default: muster-scheduler."""
    leader_elect_resource_namespace: str | None = None
    """The namespace of the lease. Default: kube-system."""


DEFAULT_ELECTION = LeaderElection()


def scheduler(
    *,
    kubeconfig: Path | None = None,
    context: Annotated[str, Parameter(show_default=False)] = "",
    scheduler_name: Annotated[tuple[str, ...], Parameter(consume_multiple=1, negative="", show_default=False)] = (),
    config: Path | None = None,
    placement: PlacementMode = "exact",
    repair_after: str = "30s",
    allow_consolidation: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    grouping: bool = True,
    grouping_rules: Annotated[tuple[Path, ...], Parameter(consume_multiple=1, negative="", show_default=False)] = (),
    create_workloads: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    provisioning_requests: Annotated[str, Parameter(show_default=False)] = "",
    provisioning_parameter: Annotated[
        tuple[str, ...], Parameter(consume_multiple=1, negative="", show_default=False)
    ] = (),
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    output: Annotated[Literal["table", "json"], Parameter(name=["--output", "-o"])] = "table",
    election: LeaderElection = DEFAULT_ELECTION,
    bind_address: Annotated[str, Parameter(show_default=False, group=SERVING)] = "",
    port: Annotated[int | None, Parameter(group=SERVING)] = None,
    log_format: Annotated[Literal["text", "json"], Parameter(group=SERVING)] = "text",
    log_level: Annotated[str, Parameter(show_default=False, group=SERVING)] = "",
) -> int:
    """Schedule the pods of a real cluster that ask for it (schedulerName: muster), and groups of them as a whole.

    Runs beside kube-scheduler until Ctrl-C. What all pods use counts. Prints one line when it decides.

    Parameters
    ----------
    kubeconfig
        How to reach the cluster. Default: as in a pod of the cluster, else what kubectl would use.
    context
        The context of the kubeconfig. Default: its current one.
    scheduler_name
        The schedulerName of pods to schedule. Repeatable. Default: muster, or those of --config.
    config
        A KubeSchedulerConfiguration (YAML or JSON): profiles, backoff, leader election, kubeconfig.
    placement
        How decisions are made: exactly, or as kube-scheduler of a release makes them.
    repair_after
        Give a gang up that is bound in part for so long: its bound pods are deleted. "never" leaves them.
    allow_consolidation
        Evict pods that fit on other nodes, within their PodDisruptionBudgets, where that lets a group run.
    grouping
        Whether pods of one owner (an Indexed Job, a JobSet, a LeaderWorkerSet, ...) are a gang with no further object,
        and marks of coscheduling, Volcano and KAI count.
    grouping_rules
        A file with more rules of that kind. Repeatable; a rule replaces the built-in one of its name.
    create_workloads
        Make a Workload and a PodGroup for each Job that is a gang, on clusters whose Job controller makes none.
    provisioning_requests
        Make a ProvisioningRequest of this class for each gang that lacks room: best-effort-atomic-scale-up,
        check-capacity, or another one that the cluster's autoscaler knows.
    provisioning_parameter
        A parameter of these requests, such as ValidUntilSeconds=600. Repeatable.
    dry_run
        Say what would be written, one line each, and write nothing.
    output
        How --dry-run says it: table for people, json for programs (one object a line).
    bind_address
        Where /healthz, /livez, /readyz and /metrics are answered. Default: this machine only; in a pod, everywhere.
    port
        The port for them; 0 for none. Default: 10259, another one if that is in use.
    log_format
        One line of text or one JSON object for each log record, on standard error.
    log_level
        DEBUG, INFO, WARNING or ERROR. Default: INFO.
    """
    if create_workloads and not grouping:
        raise BadInput("--create-workloads: not with --no-grouping, by which pods of a Job are no group")
    configure_logging(log_format, log_level or os.environ.get("MUSTER_LOG") or "INFO")
    if port is not None and not 0 <= port <= 65535:
        raise BadInput(f"--port {port}: must be a number from 0 to 65535")
    said = _configuration(config)
    connection, is_inside = _connection(kubeconfig, context, said)
    plan = SchedulerPlan(
        connection,
        replace(
            _options(config, scheduler_name, placement, repair_after),
            allow_consolidation=allow_consolidation,
            grouping=read_grouping(grouping_rules, objects_for_jobs=create_workloads) if grouping else None,
            provisioning=provisioning_terms(provisioning_requests, provisioning_parameter),
        ),
        None if dry_run and not election.leader_elect else lease_terms(election, said.get("leaderElection") or {}),
        Serving(bind_address or ("0.0.0.0" if is_inside else "127.0.0.1"), port),
        f"{socket.gethostname()}_{uuid.uuid4()}",
        dry_run,
        output,
    )
    from muster.cli.scheduler_run import serve

    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(serve(plan))
    except KubeconfigError as error:
        raise BadInput(str(error)) from error
    finally:
        gc.enable()


def read_grouping(files: Sequence[Path], *, objects_for_jobs: bool = False) -> Grouping:
    """The built-in rules with those of files in front. Raises `BadInput`."""
    grouping = replace(default_grouping(), objects_for_jobs=objects_for_jobs)
    for file in files:
        try:
            grouping = with_rules(grouping, parse_rules(load_value(file)))
        except ManifestError as error:
            raise BadInput(f"--grouping-rules {error}") from error
        except GroupingError as error:
            raise BadInput(f"--grouping-rules {file}: {error}") from error
    return grouping


def provisioning_terms(class_name: str, parameters: Sequence[str]) -> ProvisioningTerms | None:
    """What is asked of the autoscaler; None: nothing. Raises `BadInput`."""
    if not class_name:
        if parameters:
            raise BadInput("--provisioning-parameter: only with --provisioning-requests")
        return None
    found: dict[str, str] = {}
    for text in parameters:
        key, equals, value = text.partition("=")
        if not key or not equals or len(value) > 255:
            raise BadInput(f"--provisioning-parameter {text}: must be KEY=VALUE, the value of at most 255 characters")
        found[key] = value
    try:
        return ProvisioningTerms(parse_class(class_name), tuple(sorted(found.items())))
    except ValueError as error:
        raise BadInput(f"--provisioning-requests: {error}") from error


def lease_terms(election: LeaderElection, configured: Object) -> LeaseTerms | None:
    """The lease by the options, else by the configuration file, else the defaults; None: no election.

    Raises `BadInput`.
    """
    is_wanted = election.leader_elect
    if not (configured.get("leaderElect", True) if is_wanted is None else is_wanted):
        return None
    default = LeaseTerms()
    name = election.leader_elect_resource_name or configured.get("resourceName") or default.name
    namespace = election.leader_elect_resource_namespace or configured.get("resourceNamespace") or default.namespace
    lease_s = _seconds("lease-duration", election.leader_elect_lease_duration, configured, default.lease_s)
    renew_s = _seconds("renew-deadline", election.leader_elect_renew_deadline, configured, default.renew_s)
    retry_s = _seconds("retry-period", election.leader_elect_retry_period, configured, default.retry_s)
    if lease_s <= renew_s:
        raise BadInput("--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline")
    if renew_s <= 1.2 * retry_s:
        raise BadInput("--leader-elect-renew-deadline must be longer than 1.2 times --leader-elect-retry-period")
    if retry_s <= 0 or lease_s < 1:
        raise BadInput("--leader-elect-retry-period must be positive, --leader-elect-lease-duration at least 1s")
    return LeaseTerms(name, namespace, lease_s, renew_s, retry_s)


def _seconds(option: str, text: str | None, configured: Object, default_s: float) -> float:
    first, _, second = option.partition("-")
    said = text if text is not None else configured.get(f"{first}{second.capitalize()}")
    return default_s if said is None else read_duration(f"--leader-elect-{option}", str(said))


def _configuration(config: Path | None) -> Object:
    """The configuration file as it is; `read_scheduler_options` judges it. Raises `BadInput`."""
    try:
        value = load_value(config) if config is not None else {}
    except ManifestError as error:
        raise BadInput(f"--config {error}") from error
    if config is not None:
        read_scheduler_options(config)
    return value if isinstance(value, dict) else {}


def _connection(kubeconfig: Path | None, context: str, said: Object) -> tuple[Connection, bool]:
    """How to reach the cluster, and whether that is from inside of it. Raises `BadInput`."""
    named = kubeconfig or _path((said.get("clientConnection") or {}).get("kubeconfig"))
    try:
        if named is not None:
            return read_kubeconfig(named, context), False
        if not context and not os.environ.get("KUBECONFIG"):
            inside = in_cluster(os.environ)
            if inside is not None:
                return inside, True
        return read_kubeconfigs(default_paths(os.environ), context), False
    except KubeconfigError as error:
        raise BadInput(str(error)) from error


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _options(
    config: Path | None, names: Sequence[str], placement: PlacementMode, repair_after: str
) -> SchedulerOptions:
    options = read_scheduler_options(config)
    repair_after_s = None if repair_after == "never" else read_duration("--repair-after", repair_after)
    wanted = frozenset(each.strip() for name in names for each in name.split(",") if each.strip())
    if not wanted:
        wanted = frozenset({MUSTER}) if config is None else options.scheduler_names
    return replace(
        options,
        scheduler_names=wanted,
        placement=placement,
        event_source=min(wanted),
        repair_after_s=repair_after_s,
        decide_in_thread=True,
        decide_limit_s=DECIDE_LIMIT_S,
        plan_limit_s=PLAN_LIMIT_S,
    )
