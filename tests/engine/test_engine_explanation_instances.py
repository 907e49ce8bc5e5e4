"""Changes told for groups of the public instance families: made in the numbers of the instance, then judged by trying
everything. Every change works; a minimal one does not work one step smaller; without any change the group does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from muster.api.codec import Object
from muster.cli.bench.exact import request_of
from muster.cli.bench.instances import Instance, Pod, node_name
from muster.cli.bench.judging import best_set
from muster.cli.bench.planted import tiny
from muster.cli.bench.ruled import tiny_ruled
from muster.cli.bench.stored import tiny_stored
from muster.engine.decide import decide
from muster.engine.explanation.explain import explain
from muster.engine.model import Infeasible

Make = Callable[[str, int], Instance]

FAMILIES: list[tuple[Make, str, int]] = [
    (tiny, "room", 4),
    (tiny, "pools", 3),
    (tiny, "taints", 3),
    (tiny, "ports", 3),
    (tiny, "elastic", 3),
    (tiny_ruled, "one zone", 2),
    (tiny_ruled, "spread", 2),
    (tiny_ruled, "affinity", 2),
    (tiny_ruled, "anti-affinity", 2),
    (tiny_stored, "one pod a claim", 1),
]
_MOST_PODS = 5
"""Trying everything is done often here."""


def refused(make: Make, kind: str, number: int) -> Iterator[Instance]:
    """Instances of a family that do not fit, and are small."""
    for seed in range(20_000, 21_000):
        instance = make(kind, seed)
        if not instance.fits and len(instance.pods) <= _MOST_PODS and len(instance.nodes) <= 4:
            number -= 1
            yield instance
            if not number:
                return


def fits(instance: Instance) -> bool:
    return len(best_set(instance)) >= instance.min_count


def told(instance: Instance) -> list[Object]:
    """The changes, of which those with groups that end come from the pods that run, each a group."""
    snapshot, request = request_of(instance)
    decision = decide(snapshot, request)
    assert isinstance(decision, Infeasible)
    groups = [(f"g{at}", [f"default/runs-{at}"]) for at in range(len(instance.running))]
    changes: list[Object] = explain(snapshot, request, decision, groups=groups)["changes"]
    return changes


def with_nodes(instance: Instance, change: Object, number: int) -> Instance:
    like = next(node for at, node in enumerate(instance.nodes) if node_name(at) == change["like"])
    at = next(at for at, _ in enumerate(instance.nodes) if node_name(at) == change["like"])
    taken = [pod for where, pod in instance.running if where == at]
    free = tuple(have + sum(pod.asks[each] for pod in taken) for each, have in enumerate(like.free))
    zone = next(iter(change.get("new", {}).values()), like.zone)
    # The slots of a new node are those of the old one with the pods that run there, which the judge counts as free.
    fresh = replace(like, free=free, ports=frozenset(), zone=zone, pods=like.pods + len(taken) + len(like.ports))
    return replace(instance, nodes=instance.nodes + (fresh,) * number)


def with_pods(instance: Instance, changed: Callable[[Pod], Pod]) -> Instance:
    return replace(instance, pods=tuple(map(changed, instance.pods)))


def asking(pod: Pod) -> str:
    """The pod in the words of a change."""
    cpu, memory, gpus = pod.asks
    parts = [f"{gpus} nvidia.com/gpu"] if gpus else []
    return " and ".join([*parts, f"{cpu} cpu", f"{memory}Gi memory"])


def lowered(instance: Instance, change: Object, more: int) -> Instance | None:
    """None where the amount is no whole number of what an instance counts in. `more`: what is asked for above it."""
    at = ("cpu", "memory", "nvidia.com/gpu").index(change["resource"])
    amount = str(change["to"]).removesuffix("Gi")
    if not amount.isdigit():
        return None

    def changed(pod: Pod) -> Pod:
        asks = tuple(int(amount) + more if each == at else have for each, have in enumerate(pod.asks))
        return replace(pod, asks=asks) if asking(pod) == change["shape"] and not pod.claims else pod

    found = with_pods(instance, changed)
    return None if found == instance else found


def applied(instance: Instance, change: Object, less: int) -> Instance | None:
    """With the change (`less` 0), or one that is a step smaller (1); None where that cannot be said in numbers."""
    kind = change["kind"]
    if kind == "addNodes":
        return with_nodes(instance, change, change["nodes"] - less)
    if kind == "lowerMinCount":
        return replace(instance, min_count=change["to"] + less)
    if kind == "lowerRequest":
        return lowered(instance, change, less)
    if less:
        return instance
    if kind == "changeTopology" and change["to"] is None:
        return replace(instance, domain="")
    if kind == "endGroups":
        gone = {int(name[1:]) for name in change["groups"]}
        return replace(instance, running=tuple(each for at, each in enumerate(instance.running) if at not in gone))
    if kind == "dropRule" and change["rule"].startswith("the node selector pool="):
        pool = change["rule"].rpartition("=")[2]
        return with_pods(instance, lambda pod: replace(pod, pool="") if pod.pool == pool else pod)
    if kind == "tolerate" and change["shape"] == "all pods":
        taint = change["taint"].partition(":")[0].partition("=")[0]
        return with_pods(instance, lambda pod: replace(pod, tolerates=pod.tolerates | {taint}))
    return None


@pytest.mark.parametrize(("make", "kind", "number"), FAMILIES, ids=[kind for _, kind, _ in FAMILIES])
def test_changes_told_for_instances_work_and_minimal_ones_are_not_undercut(make: Make, kind: str, number: int) -> None:
    looked_at = 0
    for instance in refused(make, kind, number):
        assert not fits(instance)
        for change in told(instance):
            changed = applied(instance, change, 0)
            if changed is None or len(changed.nodes) > 7:
                continue
            looked_at += 1
            assert fits(changed), (instance.seed, change)
            smaller = applied(instance, change, 1) if change["minimal"] else None
            assert smaller is None or not fits(smaller), (instance.seed, change)
    assert looked_at
