"""Exact placement of the inference services of a public trace: CPU-node and GPU-node roles that start together.

The trace tells the shapes of each service and at most how many instances of a shape may share a node, not the nodes.
For each service a cluster is made of hosts of two kinds, first so few that a total is just enough, then one host of
each kind more until the service is placed; each question is decided by the exact search, by one greedy pass, by
kube-scheduler's greedy group cycle and by first-fit-decreasing. A row for all first questions and one for all last
ones. (A service with an instance that is larger than a host is refused to the last.)
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from time import perf_counter, process_time
from typing import NamedTuple

from muster.api.codec import Object, Objects
from muster.cli.bench.outcome import Outcome, row
from muster.cli.bench.trace import Advance
from muster.engine.decide import decide
from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.mixed import attempts, demands_of
from muster.engine.model import GroupRequest, Member, Placed
from muster.engine.state import ClusterState
from muster.engine.upstream.baseline import greedy

HOSTS = {
    "CN": {"cpu": 192, "memory": 1_024, "rdma": 400, "disk": 3_500, "gpu": 0},
    "HN": {"cpu": 128, "memory": 1_024, "rdma": 400, "disk": 3_500, "gpu": 8},
}
"""Cores, Gi, percent of a NIC, Gi, devices: assumed, the trace does not say."""

_AMOUNTS = ("cpu", "gpu", "rdma", "memory", "disk")
_MOST_TRIES = 40
_PODS = 110


class Kind(NamedTuple):
    """A shape of instances."""

    role: str
    cpu: int
    gpu: int
    rdma: int
    memory: int
    disk: int
    most_per_node: int


class Instance(NamedTuple):
    """A row of the trace: an instance of a service."""

    service: str
    kind: Kind

    @classmethod
    def of(cls, row: Mapping[str, str]) -> Instance:
        cpu, gpu, rdma, memory, disk = (round(float(row[f"{name}_request"])) for name in _AMOUNTS)
        return cls(row["app_name"], Kind(row["role"], cpu, gpu, rdma, memory, disk, int(row["max_instance_per_node"])))


class Answer(NamedTuple):
    """What came of a question, and whether one greedy pass places all."""

    outcome: Outcome
    greedy: bool
    pods: int


def run(instances: Sequence[Instance], advance: Advance) -> Objects:
    """Two rows, see above."""
    first, last = answers_of(instances, advance)
    return [_row("tightest cluster by totals", first), _row("first cluster that holds it", last)]


def families(instances: Sequence[Instance], advance: Advance) -> Objects:
    """The same as rows of the bench of exact placement."""
    first, last = answers_of(instances, advance)
    pods = f"{min(each.pods for each in first)}-{max(each.pods for each in first)}"
    return [
        row("services of the trace, tightest cluster", pods, [each.outcome for each in first]),
        row("services of the trace, first cluster that holds it", pods, [each.outcome for each in last]),
    ]


def answers_of(instances: Sequence[Instance], advance: Advance) -> tuple[list[Answer], list[Answer]]:
    """The first and the last answer about each service."""
    services: dict[str, Counter[Kind]] = {}
    for instance in instances:
        services.setdefault(instance.service, Counter())[instance.kind] += 1
    first, last = list[Answer](), list[Answer]()
    for at, service in enumerate(services.values()):
        advance("services", at, len(services))
        answers = ask(service)
        first.append(answers[0])
        last.append(answers[-1])
    return first, last


def ask(service: Counter[Kind]) -> list[Answer]:
    """The answers on larger and larger clusters, until the service is placed."""
    answers = list[Answer]()
    for more in range(_MOST_TRIES):
        state, hosts = ClusterState(), dict[str, str]()
        for role, host in HOSTS.items():
            for at in range(fewest(service, role, host) + more):
                hosts[f"{role.lower()}-{at:04d}"] = role
                state.set_node(node(f"{role.lower()}-{at:04d}", role, host, service))
        answers.append(decided(state, service, hosts, more in (0, _MOST_TRIES - 1)))
        if answers[-1].outcome.answer == "Placed":
            break
    return answers


def fewest(service: Counter[Kind], role: str, host: dict[str, int]) -> int:
    """So few hosts that each total is just enough."""
    needs = {
        name: sum(number * getattr(kind, name) for kind, number in service.items() if kind.role == role)
        for name in host
    }
    return max((-(-need // host[name]) for name, need in needs.items() if need), default=0)


def decided(state: ClusterState, service: Counter[Kind], hosts: Mapping[str, str], is_told: bool) -> Answer:
    """One question. `hosts`: the role of each. What others do is looked at if it is told of, or if all are placed."""
    shapes = {kind: state.shape_of(pod(kind, at)) for at, kind in enumerate(service)}
    members = [shapes[kind] for kind, number in service.items() for _ in range(number)]
    request = GroupRequest("s", tuple(Member(f"s/{at}", each) for at, each in enumerate(members)), len(members))
    start, cpu_start = perf_counter(), process_time()
    decision = decide(state.snapshot(), request)
    ms, cpu_ms = 1000 * (perf_counter() - start), 1000 * (process_time() - cpu_start)
    one_pass = next(attempts(DEFAULT_PROFILE, state.snapshot(), demands_of(request.members)))
    kinds = [kind for kind, number in service.items() for _ in range(number)]
    wrong = False
    if isinstance(decision, Placed):
        places = {int(each.pod.rpartition("/")[2]): each.node for each in decision.placements}
        wrong = len(places) < len(kinds) or not holds([(kinds[at], host) for at, host in places.items()], hosts)
    is_told = is_told or isinstance(decision, Placed)
    decreasing = first_fit_decreasing(kinds, hosts) if is_told else []
    ffd = len(decreasing) == len(kinds)
    upstream = is_told and greedy(state.snapshot(), request).placed
    held = 0 if ffd else len(decreasing)
    outcome = Outcome(type(decision).__name__, wrong, ms, cpu_ms, ffd, upstream, held)
    return Answer(outcome, len(one_pass.rows) == len(members), len(kinds))


def holds(placed: Sequence[tuple[Kind, str]], hosts: Mapping[str, str]) -> bool:
    """Whether the hosts hold these instances: judged without the engine."""
    here: dict[str, Counter[Kind]] = {}
    for kind, host in placed:
        here.setdefault(host, Counter())[kind] += 1
    return all(_is_room(kinds, hosts[host]) for host, kinds in here.items())


def _is_room(kinds: Counter[Kind], role: str) -> bool:
    if any(kind.role != role or 0 < kind.most_per_node < number for kind, number in kinds.items()):
        return False
    if sum(kinds.values()) > _PODS:
        return False
    return all(
        sum(number * getattr(kind, name) for kind, number in kinds.items()) <= most
        for name, most in HOSTS[role].items()
    )


def first_fit_decreasing(kinds: Sequence[Kind], hosts: Mapping[str, str]) -> list[tuple[Kind, str]]:
    """The largest instance first, each to the first host with room."""
    left = {host: [HOSTS[role][name] for name in _AMOUNTS] + [_PODS] for host, role in hosts.items()}
    placed, numbers = [], Counter[tuple[Kind, str]]()
    start: dict[Kind, int] = {}  # hosts that refused one of a kind refuse the next as well
    for kind in sorted(kinds, key=lambda kind: (-kind.gpu, -kind.cpu, -kind.memory, kind)):
        asked = [*(getattr(kind, name) for name in _AMOUNTS), 1]
        for at, host in enumerate(list(hosts)[start.get(kind, 0) :], start.get(kind, 0)):
            few = kind.most_per_node <= 0 or numbers[kind, host] < kind.most_per_node
            if few and hosts[host] == kind.role and all(map(int.__le__, asked, left[host])):
                placed.append((kind, host))
                numbers[kind, host] += 1
                left[host] = [have - take for have, take in zip(left[host], asked, strict=True)]
                start[kind] = at
                break
        else:
            start[kind] = len(hosts)
    return placed


def node(name: str, role: str, host: dict[str, int], service: Counter[Kind]) -> Object:
    """A host; how many of a kind may share it is a resource of its own."""
    amounts = {f"example.com/kind-{at}": str(max(kind.most_per_node, 0)) for at, kind in enumerate(service)}
    amounts |= {"cpu": str(host["cpu"]), "memory": f"{host['memory']}Gi", "ephemeral-storage": f"{host['disk']}Gi"}
    amounts |= {"nvidia.com/gpu": str(host["gpu"]), "example.com/rdma": str(host["rdma"]), "pods": str(_PODS)}
    return {"metadata": {"name": name, "labels": {"role": role}}, "spec": {}, "status": {"allocatable": amounts}}


def pod(kind: Kind, at: int) -> Object:
    """An instance."""
    requests = {"cpu": str(kind.cpu), "memory": f"{kind.memory}Gi", "ephemeral-storage": f"{kind.disk}Gi"}
    requests |= {"nvidia.com/gpu": str(kind.gpu), "example.com/rdma": str(kind.rdma)}
    if kind.most_per_node > 0:
        requests[f"example.com/kind-{at}"] = "1"
    container = {"name": "main", "image": "busybox", "resources": {"requests": requests}}
    spec = {"containers": [container], "nodeSelector": {"role": kind.role}}
    return {"metadata": {"name": "pod", "namespace": "default"}, "spec": spec}


def _row(title: str, answers: Sequence[Answer]) -> Object:
    times = sorted(answer.outcome.ms for answer in answers)
    counts = Counter(answer.outcome.answer for answer in answers)
    return {
        "what": title,
        "services": len(answers),
        "placed": counts["Placed"],
        "proved_impossible": counts["Infeasible"],
        "undecided": counts["Undecided"],
        "wrong": sum(answer.outcome.wrong for answer in answers),
        "placed_by_one_greedy_pass": sum(answer.greedy for answer in answers),
        "ffd_places": sum(answer.outcome.ffd for answer in answers),
        "upstream_places": sum(answer.outcome.upstream for answer in answers),
        "p50_ms": round(statistics.median(times), 1),
        "p99_ms": round(times[int(0.99 * (len(times) - 1))], 1),
        "max_ms": round(times[-1], 1),
    }
