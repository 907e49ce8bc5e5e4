"""Placements of instances judged without the engine, and what can be placed at all by trying everything."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from muster.cli.bench.between import Crowd, Site, Spread
from muster.cli.bench.instances import RESOURCES, Instance, Node, Pod, node_name
from muster.cli.bench.shelf import Shelf


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
    """Whether pods have rules about each other, or claims that do."""
    if any(pod.claims for pod in instance.pods):
        return True
    return any(pod.rules.matter for pod in (*instance.pods, *(pod for _, pod in instance.running)))


def can_come(instance: Instance, placed: Mapping[int, int]) -> bool:
    """Whether the pods can come to where they are in some order: all are tried.

    For many pods it is what must hold in the end, which says the same where no pod counts for a constraint that it does
    not have itself.
    """
    crowd, shelf = crowd_of(instance), shelf_of(instance)
    if len(placed) > _FEW:
        if not _come_by_need(instance, shelf, placed):
            return False
        for pod, at in placed.items():
            crowd.add(instance.pods[pod].rules, at)
        return crowd.is_at_rest((instance.pods[pod].rules, at) for pod, at in placed.items())
    left: dict[tuple[Pod, int], int] = {}
    for pod, at in sorted(placed.items()):
        left[instance.pods[pod], at] = left.get((instance.pods[pod], at), 0) + 1
    domain = getattr(instance.nodes[min(placed.values())], instance.domain) if instance.domain and placed else ""
    open_ = [at for at, node in enumerate(instance.nodes) if not domain or getattr(node, instance.domain) == domain]
    return _come(crowd, shelf, _Eligible(instance, open_), left, set())


def _come_by_need(instance: Instance, shelf: Shelf, placed: Mapping[int, int]) -> bool:
    """Whether all claims find volumes if those with the least choice come first."""
    left = [(instance.pods[pod].claims, at) for pod, at in sorted(placed.items()) if instance.pods[pod].claims]
    while left:
        claims, at = min(left, key=lambda each: shelf.choices(*each))
        left.remove((claims, at))
        if not shelf.put(claims, at):
            return False
    return True


def shelf_of(instance: Instance) -> Shelf:
    """The volumes, with the pods that run."""
    shelf = Shelf(instance.volumes, instance.claims, [node.zone for node in instance.nodes])
    for at, pod in instance.running:
        shelf.put(pod.claims, at)
    return shelf


def _come(
    crowd: Crowd,
    shelf: Shelf,
    eligible: _Eligible,
    left: dict[tuple[Pod, int], int],
    failed: set[tuple[object, ...]],
) -> bool:
    state = (*left.values(), shelf.state)
    if not any(left.values()):
        return True
    if state in failed:
        return False
    for pod, at in left:
        after = shelf.copy()
        if left[pod, at] and crowd.lets(pod.rules, at, eligible.of(pod)) and after.put(pod.claims, at):
            crowd.add(pod.rules, at)
            left[pod, at] -= 1
            if _come(crowd, after, eligible, left, failed):
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
    seen: set[tuple[object, ...]] = set()
    stack = [((0,) * len(cells), shelf_of(instance))]
    while stack:
        state, shelf = stack.pop()
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
            taken = shelf.copy()
            if (
                placed[kind] == numbers[kind]
                or not taken.put(kinds[kind].claims, at)
                or (after, taken.state) in seen
                or not crowd.lets(kinds[kind].rules, at, eligible.of(kinds[kind]))
            ):
                continue
            here = [kinds[k] for n, (k, where) in zip(after, cells, strict=True) if where == at for _ in range(n)]
            if not any(_wrong_on(instance.nodes[at], here)):
                seen.add((after, taken.state))
                stack.append((after, taken))
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
