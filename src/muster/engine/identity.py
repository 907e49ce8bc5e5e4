"""Identity: who a pod is to the rules between pods: its namespace, the labels that somebody selects by, its terms.

Most labels are looked at by nobody, and many (of indexed Jobs, of StatefulSets) are different for each pod. Only labels
whose keys occur in some selector are kept, so that identities, and with them shapes, stay few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from muster.api.codec import Object
from muster.api.selectors import LabelSelector, Operator, Requirement, label_selector

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NO_NAMESPACES: tuple[str, ...] = ()


class PodTerm(Struct, frozen=True):
    """A term of pod affinity or anti-affinity. `weight` 0: a required one.

    It covers the pods of `namespaces` and of namespaces with matching labels (`namespace_selector`, None: no others).
    """

    topology_key: str
    selector: LabelSelector
    namespaces: tuple[str, ...]
    namespace_selector: LabelSelector | None = None
    weight: int = 0


class PodTerms(Struct, frozen=True):
    """All terms of a pod by kind, in the order of the pod."""

    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    preferred: tuple[PodTerm, ...] = ()
    preferred_anti: tuple[PodTerm, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.affinity or self.anti_affinity or self.preferred or self.preferred_anti)

    def selectors(self) -> Iterable[LabelSelector]:
        """The label selectors of all terms."""
        for terms in (self.affinity, self.anti_affinity, self.preferred, self.preferred_anti):
            for term in terms:
                yield term.selector


NO_TERMS = PodTerms()


@dataclass(frozen=True, slots=True)
class Identity:
    """What other pods' rules see of a pod. `labels` are sorted pairs, of selected keys alone; `leaving`: it is deleted.

    Equal identities are interchangeable for every rule; the hash is computed once.
    """

    namespace: str
    labels: tuple[tuple[str, str], ...] = ()
    terms: PodTerms = NO_TERMS
    leaving: bool = False
    label_map: Mapping[str, str] = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "label_map", dict(self.labels))
        object.__setattr__(self, "_hash", hash((self.namespace, self.labels, self.terms, self.leaving)))

    def __hash__(self) -> int:
        return self._hash


class SelectedKeys:
    """The label keys that occur in selectors seen so far; they only become more.

    `active`: whether there is any selector at all; without, pods need no identity.
    """

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.active = False

    def add(self, selectors: Iterable[LabelSelector]) -> bool:
        """Takes note of selectors; whether that made a difference to identities."""
        before, active = len(self.keys), self.active
        for selector in selectors:
            self.active = True
            self.keys.update(requirement.key for requirement in selector.requirements)
        return len(self.keys) != before or self.active != active

    def kept(self, labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """The labels that somebody selects by, sorted."""
        keys = self.keys
        return tuple(sorted(item for item in labels.items() if item[0] in keys)) if keys and labels else ()


def has_terms(spec: Object) -> bool:
    """Whether a pod has affinity or anti-affinity to pods."""
    affinity = spec.get("affinity")
    return affinity is not None and bool(affinity.get("podAffinity") or affinity.get("podAntiAffinity"))


def parse_terms(pod: Object) -> PodTerms:
    """The terms of a pod. Raises SelectorError."""
    affinity = pod["spec"].get("affinity") or {}
    towards, away = affinity.get("podAffinity") or {}, affinity.get("podAntiAffinity") or {}
    if not towards and not away:
        return NO_TERMS
    return PodTerms(
        tuple(_term(pod, each, 0) for each in towards.get(_REQUIRED) or ()),
        tuple(_term(pod, each, 0) for each in away.get(_REQUIRED) or ()),
        tuple(_weighted(pod, each) for each in towards.get(_PREFERRED) or ()),
        tuple(_weighted(pod, each) for each in away.get(_PREFERRED) or ()),
    )


def with_label_keys(
    selector: LabelSelector, labels: Mapping[str, str], keys: Iterable[str], operator: Operator
) -> LabelSelector:
    """The selector that also asks for (or excludes) the pod's own values of these labels; keys it lacks are ignored.

    The API server has merged them already; adding the same requirement again changes nothing.
    """
    known = set(selector.requirements)
    added = [Requirement(key, operator, (labels[key],)) for key in keys if key in labels]
    new = tuple(requirement for requirement in dict.fromkeys(added) if requirement not in known)
    return LabelSelector((*selector.requirements, *new), selector.nothing) if new else selector


def _weighted(pod: Object, entry: Object) -> PodTerm:
    return _term(pod, entry.get("podAffinityTerm") or {}, int(entry.get("weight") or 0))


def _term(pod: Object, entry: Object, weight: int) -> PodTerm:
    labels = pod["metadata"].get("labels") or {}
    selector = label_selector(entry.get("labelSelector"))
    selector = with_label_keys(selector, labels, entry.get("matchLabelKeys") or (), Operator.IN)
    selector = with_label_keys(selector, labels, entry.get("mismatchLabelKeys") or (), Operator.NOT_IN)
    namespaces = tuple(sorted(set(entry.get("namespaces") or ())))
    chosen = entry.get("namespaceSelector")
    if not namespaces and chosen is None:
        namespaces = (pod["metadata"].get("namespace", ""),)
    return PodTerm(
        entry.get("topologyKey") or "",
        selector,
        namespaces,
        None if chosen is None else label_selector(chosen),
        weight,
    )
