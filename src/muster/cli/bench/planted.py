"""Instances made from seeds: tiny ones with the truth by trying everything, larger ones that fit by construction.

Same family and seed, same instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from muster.cli.bench.instances import RESOURCES, Instance, Node, Pod
from muster.cli.bench.judging import best_set

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
