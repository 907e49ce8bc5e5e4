"""Instances of mixed groups made from seeds, with the truth where it is known, and checks that share no engine code.

An instance is plain numbers first (`Node`, `Pod`), so that a placement can be judged without the engine, and Kubernetes
objects second, so that everybody can replay it. Same family and seed, same instance.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from muster.api.codec import Object, Objects
from muster.cli.bench.between import KEYS, NO_RULES, Crowd, Rules, Site, Spread

RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
"""In cores, Gi and devices."""

POOL_LABEL = "pool"


@dataclass(frozen=True, slots=True)
class Node:
    """Free amounts of RESOURCES, pod slots, the pool it is labelled with, a taint key or "", host ports in use, its
    zone and rack ("": no label)."""

    free: tuple[int, ...]
    pods: int = 110
    pool: str = ""
    taint: str = ""
    ports: frozenset[int] = frozenset()
    zone: str = ""
    rack: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """Requests of RESOURCES, the pool it must be in or "", taint keys it tolerates, the host port it wants or 0, its
    rules about other pods."""

    asks: tuple[int, ...]
    pool: str = ""
    tolerates: frozenset[str] = frozenset()
    port: int = 0
    rules: Rules = NO_RULES

    def allowed(self, node: Node) -> bool:
        """Whether the rules other than room let it onto the node."""
        return (
            self.pool in ("", node.pool)
            and (not node.taint or node.taint in self.tolerates)
            and (not self.port or self.port not in node.ports)
        )


@dataclass(frozen=True, slots=True)
class Instance:
    """A cluster and a group. `fits`: whether min_count pods fit, None where nobody knows.

    `running`: pods that run already, by node; what nodes have free is what these leave. `domain`: "zone" or "rack" of
    which the whole group must be in one, or "".
    """

    family: str
    seed: int
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    min_count: int
    fits: bool | None = None
    running: tuple[tuple[int, Pod], ...] = ()
    domain: str = ""
    most: int | None = field(default=None, compare=False)
    """The most pods that fit at all, where it is known."""

    def node_objects(self) -> Objects:
        """The nodes; ports in use are held by the pods of `running_objects`."""
        here = [sum(at == each for each, _ in self.running) for at in range(len(self.nodes))]
        return [
            _node_object(at, replace(node, pods=node.pods + taken))
            for at, (node, taken) in enumerate(zip(self.nodes, here, strict=True))
        ]

    def running_objects(self) -> list[tuple[str, Object]]:
        """(node name, pod) of the pods that hold host ports, and of the others that run."""
        others = [(node_name(at), _pod_object(f"runs-{place}", pod)) for place, (at, pod) in enumerate(self.running)]
        return others + [
            (node_name(at), _pod_object(f"holds-{at}-{port}", Pod((0, 0, 0), port=port)))
            for at, node in enumerate(self.nodes)
            for port in sorted(node.ports)
        ]

    def pod_objects(self) -> Objects:
        """The pending pods, `pod-<position>`."""
        return [_pod_object(f"pod-{at:04d}", pod) for at, pod in enumerate(self.pods)]


def node_name(at: int) -> str:
    """The name of a node; names sort as positions do."""
    return f"node-{at:05d}"


# -- judging -----------------------------------------------------------------------------------------------------------


def violations(instance: Instance, placed: Mapping[int, int]) -> list[str]:
    """What is wrong with a placement, pod position → node position."""
    wrong = []
    here: dict[int, list[Pod]] = {}
    for pod, at in placed.items():
        here.setdefault(at, []).append(instance.pods[pod])
    for at, pods in sorted(here.items()):
        wrong += [f"node {at}: {text}" for text in _wrong_on(instance.nodes[at], pods)]
    domains = {getattr(instance.nodes[at], instance.domain) for at in here} if instance.domain else set()
    if len(domains) > 1 or "" in domains:
        wrong.append(f"not in one {instance.domain}")
    if has_rules(instance) and not can_come(instance, placed):
        wrong.append("rules between pods let it come about in no order")
    return wrong


def has_rules(instance: Instance) -> bool:
    """Whether pods have rules about each other."""
    return any(pod.rules.matter for pod in (*instance.pods, *(pod for _, pod in instance.running)))


def can_come(instance: Instance, placed: Mapping[int, int]) -> bool:
    """Whether the pods can come to where they are in some order: all are tried.

    For many pods it is what must hold in the end, which says the same where no pod counts for a constraint that it does
    not have itself.
    """
    crowd = crowd_of(instance)
    if len(placed) > _FEW:
        for pod, at in placed.items():
            crowd.add(instance.pods[pod].rules, at)
        return crowd.is_at_rest((instance.pods[pod].rules, at) for pod, at in placed.items())
    left: dict[tuple[Pod, int], int] = {}
    for pod, at in sorted(placed.items()):
        left[instance.pods[pod], at] = left.get((instance.pods[pod], at), 0) + 1
    domain = getattr(instance.nodes[min(placed.values())], instance.domain) if instance.domain and placed else ""
    open_ = [at for at, node in enumerate(instance.nodes) if not domain or getattr(node, instance.domain) == domain]
    return _come(crowd, _Eligible(instance, open_), left, set())


def _come(crowd: Crowd, eligible: _Eligible, left: dict[tuple[Pod, int], int], failed: set[tuple[int, ...]]) -> bool:
    state = tuple(left.values())
    if not any(state):
        return True
    if state in failed:
        return False
    for pod, at in left:
        if left[pod, at] and crowd.lets(pod.rules, at, eligible.of(pod)):
            crowd.add(pod.rules, at)
            left[pod, at] -= 1
            if _come(crowd, eligible, left, failed):
                return True
            crowd.add(pod.rules, at, -1)
            left[pod, at] += 1
    failed.add(state)
    return False


_FEW = 12


class _Eligible:
    """Which nodes the constraints of a pod look at, found once a pod. A group that must be in one domain is judged as
    if there were only the nodes of the one that it is in."""

    def __init__(self, instance: Instance, open_: Collection[int] | None = None) -> None:
        self._nodes = instance.nodes
        self._open = range(len(instance.nodes)) if open_ is None else open_
        self._known: dict[Pod, dict[Spread, list[bool]]] = {}

    def of(self, pod: Pod) -> Mapping[Spread, Sequence[bool]]:
        """bool a node for each constraint."""
        known = self._known.get(pod)
        if known is None:
            known = self._known[pod] = {
                each: [
                    at in self._open
                    and (not each.honor_taints or not node.taint or node.taint in pod.tolerates)
                    and (not each.honor_pools or pod.pool in ("", node.pool))
                    for at, node in enumerate(self._nodes)
                ]
                for each in pod.rules.spread
            }
        return known


def crowd_of(instance: Instance) -> Crowd:
    """The pods that run."""
    sites = [
        Site({"zone": node.zone, "rack": node.rack, "host": node_name(at)}) for at, node in enumerate(instance.nodes)
    ]
    crowd = Crowd(sites)
    for at, pod in instance.running:
        crowd.add(pod.rules, at)
    return crowd


def _wrong_on(node: Node, pods: Sequence[Pod]) -> Iterator[str]:
    for resource, free in enumerate(node.free):
        asked = sum(pod.asks[resource] for pod in pods)
        if asked > free and asked > 0:
            yield f"{asked} of {free} {RESOURCES[resource]}"
    if pods and len(pods) > node.pods:
        yield f"{len(pods)} pods of {node.pods}"
    ports = [pod.port for pod in pods if pod.port]
    if len(ports) != len(set(ports)):
        yield "a host port twice"
    if not all(pod.allowed(node) for pod in pods):
        yield "a pod that may not be there"


def best_set(instance: Instance) -> tuple[int, ...]:
    """By trying everything, for tiny ones: the positions of the most pods that fit, the first of such sets in order."""
    number = len(instance.pods)
    if has_rules(instance) or instance.domain:
        return _best_in_order(instance)
    reachable = {0}
    for node in instance.nodes:
        fitting = [mask for mask in range(1, 1 << number) if not any(_wrong_on(node, _subset(instance, mask)))]
        reachable |= {have | mask for have in reachable for mask in fitting if not have & mask}
    sets = [tuple(at for at in range(number) if mask >> at & 1) for mask in reachable]
    return min(sets, key=lambda chosen: (-len(chosen), chosen))


def _best_in_order(instance: Instance) -> tuple[int, ...]:
    """The same with rules between pods: every pod is tried on every node after all that can be there before."""
    kinds = list(dict.fromkeys(instance.pods))
    places = [[at for at, pod in enumerate(instance.pods) if pod == kind] for kind in kinds]
    domains = sorted({getattr(node, instance.domain) for node in instance.nodes} - {""}) if instance.domain else [""]
    most: dict[tuple[int, ...], None] = {(0,) * len(kinds): None}
    for domain in domains:
        open_ = [at for at, node in enumerate(instance.nodes) if not domain or getattr(node, instance.domain) == domain]
        most |= dict.fromkeys(_reachable(instance, kinds, [len(found) for found in places], open_))
    sets = [
        tuple(sorted(at for found, number in zip(places, counts, strict=True) for at in found[:number]))
        for counts in most
    ]
    return min(sets, key=lambda chosen: (-len(chosen), chosen))


def _reachable(instance: Instance, kinds: list[Pod], numbers: list[int], open_: list[int]) -> set[tuple[int, ...]]:
    """The numbers of pods of each kind that can be placed."""
    eligible, start = _Eligible(instance, open_), crowd_of(instance)
    cells = [(kind, at) for kind in range(len(kinds)) for at in open_ if kinds[kind].allowed(instance.nodes[at])]
    found: set[tuple[int, ...]] = set()
    seen: set[tuple[int, ...]] = {(0,) * len(cells)}
    stack = list(seen)
    while stack:
        state = stack.pop()
        placed = [
            sum(n for n, (each, _) in zip(state, cells, strict=True) if each == kind) for kind in range(len(kinds))
        ]
        found.add(tuple(placed))
        if placed == numbers:
            return found
        crowd = Crowd(start.sites, [dict(counts) for counts in start.counts])
        for number, (kind, at) in zip(state, cells, strict=True):
            if number:
                crowd.add(kinds[kind].rules, at, number)
        for cell, (kind, at) in enumerate(cells):
            after = (*state[:cell], state[cell] + 1, *state[cell + 1 :])
            if (
                placed[kind] == numbers[kind]
                or after in seen
                or not crowd.lets(kinds[kind].rules, at, eligible.of(kinds[kind]))
            ):
                continue
            here = [kinds[k] for n, (k, where) in zip(after, cells, strict=True) if where == at for _ in range(n)]
            if not any(_wrong_on(instance.nodes[at], here)):
                seen.add(after)
                stack.append(after)
    return found


def _subset(instance: Instance, mask: int) -> list[Pod]:
    return [pod for at, pod in enumerate(instance.pods) if mask >> at & 1]


def first_fit_decreasing(instance: Instance) -> dict[int, int]:
    """The usual heuristic: the largest pod first, each to the first node that has room."""
    total = [max(1, sum(node.free[each] for node in instance.nodes)) for each in range(len(RESOURCES))]
    sizes = [max(ask / all_ for ask, all_ in zip(pod.asks, total, strict=True)) for pod in instance.pods]
    here: list[list[Pod]] = [[] for _ in instance.nodes]
    left = [list(node.free) for node in instance.nodes]
    placed = {}
    for at in sorted(range(len(instance.pods)), key=lambda at: (-sizes[at], at)):
        pod = instance.pods[at]
        for where, node in enumerate(instance.nodes):
            room = all(ask <= free or not ask for ask, free in zip(pod.asks, left[where], strict=True))
            ports = pod.port and any(other.port == pod.port for other in here[where])
            if room and not ports and pod.allowed(node) and len(here[where]) < node.pods:
                here[where].append(pod)
                left[where] = [free - ask for ask, free in zip(pod.asks, left[where], strict=True)]
                placed[at] = where
                break
    return placed


# -- families ----------------------------------------------------------------------------------------------------------

TINY_KINDS = ("room", "ports", "pools", "taints", "slots", "elastic", "everything")


def tiny(kind: str, seed: int) -> Instance:
    """At most 6 nodes and 8 pods, full enough that both answers are frequent; the truth by trying everything."""
    random = Random(f"tiny-{kind}-{seed}")
    rules = {kind} if kind != "everything" else set(TINY_KINDS)
    shapes = [_tiny_pod(random, rules) for _ in range(random.randint(2, 4))]
    pods = tuple(random.choice(shapes) for _ in range(random.randint(3, 8)))
    nodes = _tiny_nodes(random, rules, pods)
    found = Instance(f"tiny {kind}", seed, nodes, pods, len(pods))
    most = len(best_set(found))
    min_count = random.randint(1, len(pods)) if "elastic" in rules else len(pods)
    return Instance(found.family, seed, nodes, pods, min_count, most >= min_count, most=most)


def _tiny_nodes(random: Random, rules: set[str], pods: Sequence[Pod]) -> tuple[Node, ...]:
    """Nodes until their totals are a little more than what is asked for, at most 6."""
    wanted = random.uniform(0.95, 1.5 if rules == {"room"} else 2.0)
    asked = [sum(pod.asks[each] for pod in pods) for each in range(len(RESOURCES))]
    nodes = [_tiny_node(random, rules)]
    while len(nodes) < 6 and any(sum(node.free[at] for node in nodes) < wanted * ask for at, ask in enumerate(asked)):
        nodes.append(_tiny_node(random, rules))
    return tuple(nodes)


def _tiny_pod(random: Random, rules: set[str]) -> Pod:
    return Pod(
        (random.randint(1, 6), random.randint(1, 8), random.choice([0, 0, 1, 2])),
        random.choice(["", "", "a", "b"]) if "pools" in rules else "",
        frozenset(random.sample(["x", "y"], random.randint(0, 2))) if "taints" in rules else frozenset(),
        random.choice([0, 0, 8080, 9090]) if "ports" in rules else 0,
    )


def _tiny_node(random: Random, rules: set[str]) -> Node:
    return Node(
        (random.randint(2, 16), random.randint(3, 20), random.choice([0, 1, 2, 4, 4])),
        random.randint(1, 3) if "slots" in rules else 110,
        random.choice(["a", "b"]) if "pools" in rules else "",
        random.choice(["", "", "x", "y"]) if "taints" in rules else "",
        frozenset({8080} if random.random() < 0.2 else ()) if "ports" in rules else frozenset(),
    )


@dataclass(frozen=True, slots=True)
class Planted:
    """Nodes that are exactly a mix of 2-7 pods each, so that the group fits by construction.

    `classes`: of so many kinds of nodes (0: all differ). `slack`: each free amount is up to this part larger. `extra`:
    pods added on top, "one" or "until a total is too small". `pools`: shapes and nodes belong to one of two pools.
    """

    name: str
    classes: int
    slack: float = 0.0
    extra: str = ""
    pools: bool = False
    ports: bool = False


PLANTED = (
    Planted("planted, 3 classes, full", 3),
    Planted("planted, all different, full", 0),
    Planted("planted, 3 classes, 95-100 %", 3, 0.05),
    Planted("planted, all different, 95-100 %", 0, 0.05),
    Planted("planted, two pools, 95-100 %", 0, 0.05, pools=True),
    Planted("planted, host ports, 95-100 %", 0, 0.05, ports=True),
    Planted("plus one, 3 classes, full", 3, 0.0, "one"),
    Planted("plus one, all different, 95-100 %", 0, 0.05, "one"),
    Planted("plus many, 3 classes, 95-100 %", 3, 0.05, "many"),
    Planted("plus many, all different, 95-100 %", 0, 0.05, "many"),
)


def planted(kind: Planted, pods: int, shapes: int, seed: int) -> Instance:
    """About so many pods (the last node may bring a few more) of so many shapes."""
    random = Random(f"{kind.name}-{pods}-{shapes}-{seed}")
    kinds = [_planted_pod(random, kind, at) for at in range(shapes)]
    mixes = [_mix(random, kinds) for _ in range(kind.classes)]
    nodes, group = list[Node](), list[Pod]()
    while len(group) < pods:
        mix = random.choice(mixes) if mixes else _mix(random, kinds)
        asked = [sum(pod.asks[each] for pod in mix) for each in range(len(RESOURCES))]
        free = tuple(round(amount * (1 + random.uniform(0, kind.slack))) for amount in asked)
        nodes.append(Node(free, pool=mix[0].pool))
        group += mix
    if kind.extra:
        group += _extra(random, kind, nodes, group, kinds)
    random.shuffle(nodes)
    ordered = sorted(group, key=lambda pod: kinds.index(pod))
    fits = None if kind.extra and kind.slack else not kind.extra
    return Instance(kind.name, seed, tuple(nodes), tuple(ordered), len(ordered), fits)


def _planted_pod(random: Random, kind: Planted, at: int) -> Pod:
    asks = (random.randint(1, 16), random.randint(1, 64), random.choice([0, 1, 2, 4]))
    port = 8000 + at % 3 if kind.ports and at % 2 else 0
    return Pod(asks, random.choice(["a", "b"]) if kind.pools else "", port=port)


def _mix(random: Random, kinds: Sequence[Pod]) -> list[Pod]:
    first = random.choice(kinds)
    mix = [first]
    for _ in range(random.randint(1, 6)):
        pod = random.choice(kinds)
        if pod.pool == first.pool and (not pod.port or all(other.port != pod.port for other in mix)):
            mix.append(pod)
    return mix


def _extra(
    random: Random, kind: Planted, nodes: Sequence[Node], group: Sequence[Pod], kinds: Sequence[Pod]
) -> list[Pod]:
    """One pod too many, or so many that no further one fits into the totals."""
    if kind.extra == "one":
        return [random.choice(kinds)]
    totals = [sum(node.free[each] for node in nodes) for each in range(len(RESOURCES))]
    left = [total - sum(pod.asks[each] for pod in group) for each, total in enumerate(totals)]
    added: list[Pod] = []
    while fitting := [pod for pod in kinds if all(ask <= have for ask, have in zip(pod.asks, left, strict=True))]:
        added.append(random.choice(fitting))
        left = [have - ask for ask, have in zip(added[-1].asks, left, strict=True)]
    return added or [random.choice(kinds)]


# -- objects -----------------------------------------------------------------------------------------------------------


def _node_object(at: int, node: Node) -> Object:
    cpu, memory, gpus = node.free
    allocatable = {"cpu": str(cpu), "memory": f"{memory}Gi", "nvidia.com/gpu": str(gpus)}
    allocatable["pods"] = str(node.pods + len(node.ports))
    labels = {KEYS["host"]: node_name(at), POOL_LABEL: node.pool, KEYS["zone"]: node.zone, KEYS["rack"]: node.rack}
    labels = {key: value for key, value in labels.items() if value}
    taints = [{"key": node.taint, "effect": "NoSchedule"}] if node.taint else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node_name(at), "labels": labels},
        "spec": {"taints": taints} if taints else {},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _pod_object(name: str, pod: Pod) -> Object:
    cpu, memory, gpus = pod.asks
    requests = {"cpu": str(cpu), "memory": f"{memory}Gi", "nvidia.com/gpu": str(gpus)}
    resources = {"requests": requests, "limits": {"nvidia.com/gpu": str(gpus)}}
    container: Object = {"name": "main", "image": "busybox", "resources": resources}
    if pod.port:
        container["ports"] = [{"containerPort": pod.port, "hostPort": pod.port, "protocol": "TCP"}]
    spec: Object = {"containers": [container]}
    if pod.pool:
        spec["nodeSelector"] = {POOL_LABEL: pod.pool}
    if pod.tolerates:
        spec["tolerations"] = [{"key": key, "operator": "Exists"} for key in sorted(pod.tolerates)]
    found: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }
    pod.rules.into(found)
    return found
