"""Instances with volumes: claims that are bound in zones, that wait and compete for few volumes, that are for one pod
or shared; of tiny ones the truth by trying everything, larger ones planted so that they fit by construction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from muster.cli.bench.between import NO_RULES, Rules, Spread
from muster.cli.bench.instances import Instance, Node, Pod
from muster.cli.bench.judging import best_set
from muster.cli.bench.shelf import KEPT, MADE, Claim, Volume

STORED_KINDS = ("few volumes", "zonal volumes", "one pod a claim", "shared claims", "volumes and all else")

_ZONES = ("z1", "z2", "z3")


def tiny_stored(kind: str, seed: int) -> Instance:
    """At most 5 nodes and 6 pods, full enough that both answers are frequent."""
    random = Random(f"stored-{kind}-{seed}")
    nodes = tuple(Node((random.randint(2, 6), 64, 0), zone=random.choice(_ZONES)) for _ in range(random.randint(2, 5)))
    number = random.randint(2, 6)
    volumes = [_volume(random, kind, at, len(nodes)) for at in range(random.randint(1, number + 1))]
    claims, pods = list[Claim](), list[Pod]()
    for at in range(number):
        own = _claims(random, kind, at, volumes, claims)
        rules = _rules(random) if kind == "volumes and all else" else NO_RULES
        pods.append(Pod((random.randint(1, 3), 1, 0), claims=own, rules=rules))
    running = _running(random, kind, claims, volumes, nodes)
    found = Instance(
        f"tiny {kind}",
        seed,
        nodes,
        tuple(pods),
        random.randint(1, number) if random.random() < 0.2 else number,
        running=running,
        volumes=tuple(volumes),
        claims=tuple(claims),
    )
    most = len(best_set(found))
    return replace(found, fits=most >= found.min_count, most=most)


def _volume(random: Random, kind: str, at: int, nodes: int) -> Volume:
    name, size = f"v{at}", random.randint(1, 4)
    made_by = MADE if kind == "volumes and all else" and random.random() < 0.3 else KEPT
    if kind == "zonal volumes" or random.random() < 0.5:
        return Volume(name, size, zone=random.choice((*_ZONES, "")), made_by=made_by)
    return Volume(name, size, node=random.randrange(nodes), made_by=made_by)


def _claims(random: Random, kind: str, at: int, volumes: Sequence[Volume], claims: list[Claim]) -> tuple[str, ...]:
    """The claims of a pod: none, new ones, or some that others have."""
    shares = {"shared claims": 0.5, "one pod a claim": 0.3, "volumes and all else": 0.3}.get(kind, 0.0)
    if claims and random.random() < shares:
        return (random.choice(claims).name,)
    names = []
    for each in range(random.choice([0, 1, 1, 1, 2])):
        claim = Claim(
            f"c{at}-{each}",
            random.randint(1, 3),
            one_pod=kind == "one pod a claim" or (kind == "volumes and all else" and random.random() < 0.3),
            made_by=MADE if kind in ("shared claims", "volumes and all else") and random.random() < 0.4 else KEPT,
        )
        open_ = [volume.name for volume in volumes if volume.name not in {other.bound for other in claims}]
        binds = {"few volumes": 0.0, "zonal volumes": 0.7}.get(kind, 0.3)
        if open_ and random.random() < binds:
            claim = replace(claim, bound=random.choice(open_))
        claims.append(claim)
        names.append(claim.name)
    return tuple(names)


def _rules(random: Random) -> Rules:
    app = random.choice("ab")
    return Rules(app, spread=(Spread("zone", 1, (app,)),)) if random.random() < 0.3 else Rules(app)


def _running(
    random: Random, kind: str, claims: Sequence[Claim], volumes: Sequence[Volume], nodes: Sequence[Node]
) -> tuple[tuple[int, Pod], ...]:
    """At times a pod that runs and has one of the bound claims."""
    bound = [claim for claim in claims if claim.bound]
    if kind not in ("one pod a claim", "volumes and all else") or not bound or random.random() < 0.7:
        return ()
    claim = random.choice(bound)
    volume = next(each for each in volumes if each.name == claim.bound)
    reached = [at for at, node in enumerate(nodes) if volume.reaches(at, node.zone)]
    return ((random.choice(reached), Pod((0, 0, 0), claims=(claim.name,))),) if reached else ()


@dataclass(frozen=True, slots=True)
class PlantedStored:
    """Nodes that are exactly a mix of pods each; every eighth pod has a claim. `volumes`: "zonal" (bound, of mode
    ReadWriteOncePod, in the zone of its node), "local" (it waits; on each node as many volumes as it has such pods).
    `extra`: one pod with a claim too many."""

    name: str
    volumes: str
    extra: bool = False


PLANTED_STORED = (
    PlantedStored("zonal ReadWriteOncePod volumes, full", "zonal"),
    PlantedStored("zonal ReadWriteOncePod volumes, plus one", "zonal", True),
    PlantedStored("local volumes, full", "local"),
    PlantedStored("local volumes, one too few", "local", True),
)
STORED_SIZES = (16, 64)


def planted_stored(kind: PlantedStored, pods: int, shapes: int, seed: int) -> Instance:
    """About so many pods; those without claims of so many shapes."""
    random = Random(f"{kind.name}-{pods}-{shapes}-{seed}")
    kinds = [Pod((random.randint(1, 16), random.randint(1, 64), random.choice([0, 1, 2, 4]))) for _ in range(shapes)]
    nodes, group, volumes, claims = list[Node](), list[Pod](), list[Volume](), list[Claim]()
    while len(group) < pods:
        mix = [random.choice(kinds) for _ in range(random.randint(2, 7))]
        zone = random.choice(_ZONES)
        nodes.append(Node(tuple(sum(pod.asks[each] for pod in mix) for each in range(3)), zone=zone))
        for pod in mix:
            if len(group) % 8 == 0:
                pod = replace(pod, claims=(f"c{len(group)}",))
                _store(kind, f"{len(group)}", len(nodes) - 1, zone, volumes, claims)
            group.append(pod)
    if kind.extra:
        _take_away(random, kind, group, volumes, kinds)
    group.sort(key=lambda pod: (pod.asks, pod.claims))
    return Instance(
        kind.name,
        seed,
        tuple(nodes),
        tuple(group),
        len(group),
        not kind.extra,
        volumes=tuple(volumes),
        claims=tuple(claims),
    )


def _store(kind: PlantedStored, name: str, at: int, zone: str, volumes: list[Volume], claims: list[Claim]) -> None:
    if kind.volumes == "zonal":
        volumes.append(Volume(f"v{name}", 1, zone=zone))
        claims.append(Claim(f"c{name}", 1, bound=f"v{name}", one_pod=True))
    else:
        volumes.append(Volume(f"v{name}", 1, node=at))
        claims.append(Claim(f"c{name}", 1))


def _take_away(
    random: Random, kind: PlantedStored, group: list[Pod], volumes: list[Volume], kinds: Sequence[Pod]
) -> None:
    """A pod more than fits, or a volume less than there must be."""
    if kind.volumes == "local":
        volumes.pop(random.randrange(len(volumes)))
    else:
        group.append(random.choice(kinds))
