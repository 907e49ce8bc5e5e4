"""Rules between pods, judged in plain Python: what kube-scheduler's filters say about one pod after the other.

Shares no code with the engine. A pod is judged by what is on the nodes at its turn, so a placement is right if its pods
can come in some order; what can be placed at all is found by trying every pod on every node after everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from muster.api.codec import Object

KEYS = {
    "zone": "topology.kubernetes.io/zone",
    "rack": "topology.kubernetes.io/rack",
    "host": "kubernetes.io/hostname",
}


@dataclass(frozen=True, slots=True)
class Term:
    """A required term of affinity or anti-affinity to pods of these apps, in domains of a key of KEYS."""

    key: str
    apps: tuple[str, ...]

    def to_object(self) -> Object:
        """As it stands in a pod."""
        return {"topologyKey": KEYS[self.key], "labelSelector": _selector(self.apps)}


@dataclass(frozen=True, slots=True)
class Spread:
    """A hard topology spread constraint. `min_domains` 0: not given."""

    key: str
    skew: int
    apps: tuple[str, ...]
    min_domains: int = 0
    honor_taints: bool = False
    honor_pools: bool = True

    def to_object(self) -> Object:
        """As it stands in a pod."""
        return {
            "topologyKey": KEYS[self.key],
            "maxSkew": self.skew,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": _selector(self.apps),
            "nodeTaintsPolicy": "Honor" if self.honor_taints else "Ignore",
            "nodeAffinityPolicy": "Honor" if self.honor_pools else "Ignore",
        } | ({"minDomains": self.min_domains} if self.min_domains else {})


@dataclass(frozen=True, slots=True)
class Rules:
    """The app that a pod belongs to ("" for none), and its rules about other pods."""

    app: str = ""
    near: tuple[Term, ...] = ()
    apart: tuple[Term, ...] = ()
    spread: tuple[Spread, ...] = ()

    @property
    def matter(self) -> bool:
        """Whether there are any."""
        return bool(self.near or self.apart or self.spread)

    def into(self, pod: Object) -> None:
        """Writes them into a pod."""
        if self.app:
            pod["metadata"]["labels"] = {"app": self.app}
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        affinity = {
            kind: {required: [term.to_object() for term in terms]}
            for kind, terms in (("podAffinity", self.near), ("podAntiAffinity", self.apart))
            if terms
        }
        if affinity:
            pod["spec"]["affinity"] = affinity
        if self.spread:
            pod["spec"]["topologySpreadConstraints"] = [each.to_object() for each in self.spread]


NO_RULES = Rules()


def _selector(apps: tuple[str, ...]) -> Object:
    return {"matchExpressions": [{"key": "app", "operator": "In", "values": list(apps)}]}


@dataclass(frozen=True, slots=True)
class Site:
    """A node as rules between pods see it: its domain for each key ("" where it lacks the label)."""

    domains: Mapping[str, str]


@dataclass(slots=True)
class Crowd:
    """How many pods of each kind of rules are on each node; `usable(rules, constraint, node)` whether a node counts."""

    sites: Sequence[Site]
    counts: list[dict[Rules, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts = self.counts or [{} for _ in self.sites]

    def add(self, rules: Rules, at: int, number: int = 1) -> None:
        """More pods of these rules on a node."""
        self.counts[at][rules] = self.counts[at].get(rules, 0) + number

    def lets(self, rules: Rules, at: int, eligible: Mapping[Spread, Sequence[bool]]) -> bool:
        """Whether one more pod may come to the node. `eligible`: the nodes that each of its constraints looks at."""
        return (
            self._is_near(rules, at)
            and self._is_apart(rules, at)
            and all(self._is_even(rules, each, at, eligible[each]) for each in rules.spread)
        )

    def is_at_rest(self, placed: Iterable[tuple[Rules, int]]) -> bool:
        """Whether nothing is broken in the end: for pods that are all here, on nodes that all count."""
        totals: dict[tuple[str, str], Counter[str]] = {}
        for site, counts in zip(self.sites, self.counts, strict=True):
            for key, domain in site.domains.items():
                here = totals.setdefault((key, domain), Counter())
                for rules, number in counts.items():
                    here[rules.app] += number
        return all(self._rests(rules, at, totals) for rules, at in dict.fromkeys(placed))

    def _rests(self, rules: Rules, at: int, totals: Mapping[tuple[str, str], Counter[str]]) -> bool:
        def number(key: str, apps: tuple[str, ...], domain: str = "") -> int:
            found = totals[key, domain or self.sites[at].domains[key]]
            return sum(found[app] for app in apps)

        for near in rules.near:
            if not number(near.key, near.apps):
                return False
        for apart in rules.apart:
            if number(apart.key, apart.apps) > int(rules.app in apart.apps):
                return False
        for spread in rules.spread:
            least = min(
                number(spread.key, spread.apps, domain) for key, domain in totals if key == spread.key and domain
            )
            if number(spread.key, spread.apps) - least > spread.skew:
                return False
        return True

    def _pods(self, nodes: Iterator[int], apps: tuple[str, ...]) -> int:
        return sum(
            number for at in nodes for rules, number in self.counts[at].items() if rules.app and rules.app in apps
        )

    def _within(self, key: str, at: int) -> Iterator[int]:
        domain = self.sites[at].domains[key]
        return (each for each, site in enumerate(self.sites) if domain and site.domains[key] == domain)

    def _is_near(self, rules: Rules, at: int) -> bool:
        if not rules.near:
            return True
        if not all(self.sites[at].domains[term.key] for term in rules.near):
            return False
        apps = tuple(set.intersection(*(set(term.apps) for term in rules.near)))
        if all(self._pods(self._within(term.key, at), apps) for term in rules.near):
            return True
        labelled = [each for each, site in enumerate(self.sites) if any(site.domains[t.key] for t in rules.near)]
        return rules.app in apps and not self._pods(iter(labelled), apps)

    def _is_apart(self, rules: Rules, at: int) -> bool:
        if any(self._pods(self._within(term.key, at), term.apps) for term in rules.apart):
            return False
        for node, counts in enumerate(self.counts):
            for other in counts:
                for term in other.apart if rules.app and counts[other] else ():
                    domain = self.sites[node].domains[term.key]
                    if rules.app in term.apps and domain and domain == self.sites[at].domains[term.key]:
                        return False
        return True

    def _is_even(self, rules: Rules, constraint: Spread, at: int, eligible: Sequence[bool]) -> bool:
        if not all(self.sites[at].domains[each.key] for each in rules.spread):
            return False
        totals: dict[str, int] = {}
        for node, counts in enumerate(self.counts):
            site = self.sites[node]
            if eligible[node] and all(site.domains[each.key] for each in rules.spread):
                here = sum(number for other, number in counts.items() if other.app and other.app in constraint.apps)
                domain = site.domains[constraint.key]
                totals[domain] = totals.get(domain, 0) + here
        least = min(totals.values(), default=0)
        if len(totals) < (constraint.min_domains or 1):
            least = 0
        own = int(bool(rules.app) and rules.app in constraint.apps)
        return totals.get(self.sites[at].domains[constraint.key], 0) + own - least <= constraint.skew
