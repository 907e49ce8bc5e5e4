"""Instances with rules between pods: spreading, affinity and anti-affinity over zones, racks and nodes; of tiny ones
the truth by trying everything, larger ones planted so that they fit by construction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from muster.cli.bench.between import Rules, Spread, Term
from muster.cli.bench.instances import Instance, Node, Pod
from muster.cli.bench.judging import best_set

RULED_KINDS = ("spread", "affinity", "anti-affinity", "racks", "one zone", "elastic", "everything")

_APPS = ("a", "b", "c")


def tiny_ruled(kind: str, seed: int) -> Instance:
    """At most 6 nodes and 8 pods, full enough that both answers are frequent."""
    random = Random(f"ruled-{kind}-{seed}")
    shapes = [_tiny_pod(random, kind) for _ in range(random.randint(1, 3))]
    pods = tuple(random.choice(shapes) for _ in range(random.randint(2, 8)))
    nodes = tuple(_tiny_node(random, kind) for _ in range(random.randint(2, 6)))
    nodes = _fitted(random, nodes, pods)
    running = tuple(
        (random.randrange(len(nodes)), Pod((0, 0, 0), rules=_running_rules(random, kind)))
        for _ in range(random.choice([0, 0, 1, 2, 3]))
    )
    domain = "zone" if kind == "one zone" or (kind == "everything" and random.random() < 0.15) else ""
    found = Instance(f"tiny {kind}", seed, nodes, pods, len(pods), running=running, domain=domain)
    most = len(best_set(found))
    if kind == "elastic" or (kind == "everything" and random.random() < 0.3):
        found = replace(found, min_count=random.randint(1, len(pods)))
    return replace(found, fits=most >= found.min_count, most=most)


def _fitted(random: Random, nodes: Sequence[Node], pods: Sequence[Pod]) -> tuple[Node, ...]:
    """Nodes with so much cpu that their total is a little more than what is asked for."""
    asked = sum(pod.asks[0] for pod in pods)
    weights = [random.uniform(0.5, 1.5) for _ in nodes]
    total = asked * random.uniform(1.0, 1.9)
    sizes = [max(1, round(total * weight / sum(weights))) for weight in weights]
    return tuple(replace(node, free=(size, *node.free[1:])) for node, size in zip(nodes, sizes, strict=True))


def _tiny_node(random: Random, kind: str) -> Node:
    everything = kind == "everything"
    zone = random.choice(["z1", "z2", "z2", "z3"])
    return Node(
        (0, 64, 0),
        random.choice([1, 2, 3, 110]) if everything else 110,
        random.choice(["a", "b"]) if everything else "",
        random.choice(["", "", "", "x"]) if everything else "",
        zone="" if everything and random.random() < 0.05 else zone,
        rack=random.choice(["", "r1"]) if random.random() < 0.1 else f"{zone}-r{random.randint(1, 2)}",
    )


def _tiny_pod(random: Random, kind: str) -> Pod:
    everything = kind == "everything"
    return Pod(
        (random.randint(1, 4), random.randint(1, 8), 0),
        random.choice(["", "", "", "a"]) if everything else "",
        frozenset({"x"} if random.random() < 0.4 else ()) if everything else frozenset(),
        random.choice([0, 0, 0, 8080]) if everything else 0,
        _rules(random, kind),
    )


def _rules(random: Random, kind: str) -> Rules:
    keys = ("rack", "rack", "zone") if kind == "racks" else ("zone", "zone", "rack", "host")
    spreads = 0 if kind in ("affinity", "anti-affinity") else random.choice([0, 1, 1, 1, 2])
    nears = 0 if kind in ("spread", "anti-affinity") else random.choice([0, 0, 1, 1, 2])
    aparts = 0 if kind in ("spread", "affinity") else random.choice([0, 0, 1, 1, 2])
    if kind in ("elastic", "everything", "racks", "one zone"):  # seldom all at once
        spreads, nears, aparts = (number if random.random() < 0.5 else 0 for number in (spreads, nears, aparts))
    return Rules(
        random.choice(_APPS),
        tuple(dict.fromkeys(Term(random.choice(keys), _apps(random)) for _ in range(nears))),
        tuple(dict.fromkeys(Term(random.choice(keys), _apps(random)) for _ in range(aparts))),
        tuple({(each.key): each for each in (_spread(random, kind, keys) for _ in range(spreads))}.values()),
    )


def _running_rules(random: Random, kind: str) -> Rules:
    """What runs: mostly only an app, at times with anti-affinity of its own."""
    apart = (Term(random.choice(["zone", "host"]), _apps(random)),) if random.random() < 0.3 else ()
    return Rules(random.choice((*_APPS, "")), (), apart if kind in ("anti-affinity", "everything") else ())


def _apps(random: Random) -> tuple[str, ...]:
    return tuple(sorted(random.sample(_APPS, random.choice([1, 1, 2]))))


def _spread(random: Random, kind: str, keys: Sequence[str]) -> Spread:
    return Spread(
        random.choice(keys),
        random.choice([1, 1, 2]),
        _apps(random),
        random.choice([0, 0, 0, 2, 3]),
        honor_taints=kind == "everything" and random.random() < 0.5,
        honor_pools=kind != "everything" or random.random() < 0.7,
    )


@dataclass(frozen=True, slots=True)
class PlantedRuled:
    """Nodes that are exactly a mix of pods each, in zones (and racks) so that the rules hold by construction.

    `rule`: "spread" (each shape evenly over four zones), "together" (workers in the zone of their leader), "apart" (two
    kinds that share no rack), "one rack" (the whole group by a topology constraint). `slack`: as in `Planted`.
    `extra`: pods added on top.
    """

    name: str
    rule: str
    slack: float = 0.0
    extra: bool = False


PLANTED_RULED = (
    PlantedRuled("spread over 4 zones, full", "spread"),
    PlantedRuled("spread over 4 zones, 95-100 %", "spread", 0.05),
    PlantedRuled("spread over 4 zones, plus one", "spread", 0.0, True),
    PlantedRuled("leader and workers in one zone, full", "together"),
    PlantedRuled("leader and workers in one zone, plus one", "together", 0.0, True),
    PlantedRuled("two kinds apart by rack, full", "apart"),
    PlantedRuled("two kinds apart by rack, plus one", "apart", 0.0, True),
    PlantedRuled("all in one of 8 racks, full", "one rack"),
    PlantedRuled("all in one of 8 racks, plus one", "one rack", 0.0, True),
)
_ZONES = ("z1", "z2", "z3", "z4")


def planted_ruled(kind: PlantedRuled, pods: int, shapes: int, seed: int) -> Instance:
    """About so many pods of so many shapes."""
    random = Random(f"{kind.name}-{pods}-{shapes}-{seed}")
    make = {"spread": _spread_out, "together": _together, "apart": _kept_apart, "one rack": _in_one_rack}[kind.rule]
    nodes, group = make(random, kind, pods, shapes)
    if kind.extra:
        group.append(random.choice([pod for pod in group if pod.rules.matter] or group))
    group.sort(key=lambda pod: (pod.rules.app, pod.asks))
    random.shuffle(nodes)
    fits = None if kind.extra and kind.slack else not kind.extra
    domain = "rack" if kind.rule == "one rack" else ""
    return Instance(kind.name, seed, tuple(nodes), tuple(group), len(group), fits, domain=domain)


def _asks(random: Random) -> tuple[int, int, int]:
    return random.randint(1, 16), random.randint(1, 64), random.choice([0, 1, 2, 4])


def _node(random: Random, kind: PlantedRuled, pods: Sequence[Pod], zone: str, rack: str) -> Node:
    asked = [sum(pod.asks[each] for pod in pods) for each in range(3)]
    free = tuple(round(amount * (1 + random.uniform(0, kind.slack))) for amount in asked)
    return Node(free, zone=zone, rack=rack)


def _packed(random: Random, kind: PlantedRuled, pods: Sequence[Pod], zone: str, racks: int = 2) -> list[Node]:
    """Nodes that hold exactly these pods, 2 to 7 each."""
    left, nodes = list(pods), list[Node]()
    random.shuffle(left)
    while left:
        size = random.randint(2, 7)
        nodes.append(_node(random, kind, left[:size], zone, f"{zone}-r{len(nodes) % racks}"))
        left = left[size:]
    return nodes


def _spread_out(random: Random, kind: PlantedRuled, pods: int, shapes: int) -> tuple[list[Node], list[Pod]]:
    kinds = [
        Pod(_asks(random), rules=Rules(f"s{at}", spread=(Spread("zone", 1, (f"s{at}",)),))) for at in range(shapes)
    ]
    by_zone: dict[str, list[Pod]] = {zone: [] for zone in _ZONES}
    for pod in kinds:
        number = max(1, round(pods / shapes * random.uniform(0.7, 1.3)))
        zones = random.sample(_ZONES, len(_ZONES))
        for at in range(number):
            by_zone[zones[at % len(zones)]].append(pod)
    nodes = [node for zone, found in by_zone.items() for node in _packed(random, kind, found, zone)]
    return nodes, [pod for found in by_zone.values() for pod in found]


def _together(random: Random, kind: PlantedRuled, pods: int, shapes: int) -> tuple[list[Node], list[Pod]]:
    leader = Pod(_asks(random), rules=Rules("leader"))
    workers = [
        Pod(_asks(random), rules=Rules("worker", near=(Term("zone", ("leader",)),))) for _ in range(max(1, shapes - 1))
    ]
    group = [leader, *(random.choice(workers) for _ in range(pods - 1))]
    home = random.choice(_ZONES)
    nodes = _packed(random, kind, group, home)
    for zone in _ZONES:  # elsewhere there is nearly as much room, in nodes of the same sizes
        if zone != home:
            nodes += [replace(node, zone=zone, rack=f"{zone}-r0") for node in nodes if node.zone == home][1:]
    return nodes, group


def _kept_apart(random: Random, kind: PlantedRuled, pods: int, shapes: int) -> tuple[list[Node], list[Pod]]:
    terms = {"red": (Term("rack", ("blue",)),), "blue": ()}
    kinds = [
        Pod(_asks(random), rules=Rules(app, apart=terms[app])) for app in (["red", "blue"] * shapes)[: max(2, shapes)]
    ]
    nodes, group = list[Node](), list[Pod]()
    racks = max(2, min(12, pods // 8))
    for rack in range(racks):
        app = "red" if rack % 2 else "blue"
        own = [pod for pod in kinds if pod.rules.app == app]
        found = [random.choice(own) for _ in range(max(1, pods // racks))]
        zone = _ZONES[rack % len(_ZONES)]
        nodes += [replace(node, rack=f"{zone}-{rack}") for node in _packed(random, kind, found, zone)]
        group += found
    return nodes, group


def _in_one_rack(random: Random, kind: PlantedRuled, pods: int, shapes: int) -> tuple[list[Node], list[Pod]]:
    """One rack that is filled exactly; the others lack a node."""
    kinds = [Pod(_asks(random)) for _ in range(shapes)]
    group = [random.choice(kinds) for _ in range(pods)]
    rack = _packed(random, kind, group, _ZONES[0])
    home, nodes = random.randrange(8), list[Node]()
    for each in range(8):
        left = rack if each == home else random.sample(rack, max(1, len(rack) - 1))
        nodes += [replace(node, zone=_ZONES[each % 4], rack=f"r{each}") for node in left]
    return nodes, group
