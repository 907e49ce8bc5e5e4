"""The annotation `scheduling.muster-k8s.dev/topology`: where a group's pods are to be in relation to each other. Pure.

A small mapping in YAML or JSON, documented in docs/howto/topology.md:

    levels: [LABEL, …]                  the label keys of the tree, the widest first
    topology: NAME                      or: the levels of this Topology object of Kueue
    required: LABEL                     all pods in one domain of this label
    preferred: LABEL | [LABEL, …]       in one domain of the first that fits; with levels, one label stands for wider
                                        ones, too
    subgroups: {size: N, required: LABEL}    pods 0…N-1, N…2N-1, … each in one domain
    distribution: {policy: packed | balanced, over: LABEL}
    replicas: {spreadOver: LABEL}       groups of one Workload template in different domains, as far as possible

On a PodGroup (or a Job, or pods) it is such a mapping; on a Workload a mapping of template names to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, cast

import yaml
from msgspec import Struct
from msgspec.structs import replace

from muster.api.codec import JSON, Object
from muster.api.labels import label_key_errors

TOPOLOGY_KEY = "scheduling.muster-k8s.dev/topology"
"""The annotation."""

KUEUE_REQUIRED = "kueue.x-k8s.io/podset-required-topology"
KUEUE_PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
KUEUE_UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"
KUEUE_SLICE_KEY = "kueue.x-k8s.io/podset-slice-required-topology"
KUEUE_SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size"
"""Kueue's annotations on pods, which mean the same as `required`, `preferred`, nothing, and `subgroups` here."""

Policy: TypeAlias = Literal["packed", "balanced"]

_FIELDS = ("distribution", "levels", "preferred", "replicas", "required", "subgroups", "topology")


class TopologyError(ValueError):
    """The annotation says something that cannot be read; the message names the field. Not retryable."""


class Subgroups(Struct, frozen=True):
    """Each `size` pods that follow each other go to one domain of the label `key`."""

    size: int
    key: str


class Distribution(Struct, frozen=True):
    """How pods (or subgroups) are shared out over the domains of a label: over few of them, or evenly over those."""

    policy: Policy
    key: str


class TopologyTerms(Struct, frozen=True):
    """What a group asks of the topology. `levels`: label keys, the widest first; `preferred`: in the order of trial.

    `topology`: the name of a Kueue Topology object that gives the levels, "" for none. `spread_over`: the label over
    whose domains the groups of one template are spread.
    """

    required: str | None = None
    preferred: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    subgroups: Subgroups | None = None
    distribution: Distribution | None = None
    spread_over: str | None = None
    topology: str = ""

    @property
    def tree(self) -> tuple[str, ...]:
        """The label keys by which distances are measured, the widest first."""
        inner = None if self.subgroups is None else self.subgroups.key
        middle = None if self.distribution is None else self.distribution.key
        named = (*self.levels, self.spread_over, self.required, *reversed(self.preferred), middle, inner)
        return tuple(dict.fromkeys(key for key in named if key is not None))

    def with_levels(self, levels: Sequence[str]) -> TopologyTerms:
        """The same on these levels (the widest first): a preferred label stands for itself and all wider ones."""
        return _on_levels(replace(self, levels=tuple(levels)))

    def with_required(self, key: str | None) -> TopologyTerms:
        """The same with what the API field demands. Raises TopologyError if both demand different labels."""
        if key is None or self.required == key:
            return self
        if self.required is not None:
            raise TopologyError(f"required: {self.required!r} is not the label of schedulingConstraints, {key!r}")
        return _on_levels(replace(self, required=key))


def parse_topology(text: str, template: str | None = None) -> TopologyTerms | None:
    """The terms in an annotation; of a Workload's, those of the template, None if it names it not.

    Raises TopologyError.
    """
    value = _loaded(text)
    if template is not None:
        if template not in value:
            return None
        return _terms(_mapping(value[template], template), f"{template}.")
    return _terms(value, "")


def kueue_terms(annotations: Mapping[str, str]) -> TopologyTerms | None:
    """The terms in Kueue's annotations of a pod; None without any. Raises TopologyError."""
    required, preferred = annotations.get(KUEUE_REQUIRED), annotations.get(KUEUE_PREFERRED)
    inner, size = annotations.get(KUEUE_SLICE_KEY), annotations.get(KUEUE_SLICE_SIZE)
    if required is None and preferred is None and inner is None:
        return None
    if required is not None and preferred is not None:
        raise TopologyError(f"{KUEUE_REQUIRED} and {KUEUE_PREFERRED} are both set")
    if (inner is None) != (size is None):
        missing, present = (KUEUE_SLICE_SIZE, KUEUE_SLICE_KEY) if size is None else (KUEUE_SLICE_KEY, KUEUE_SLICE_SIZE)
        raise TopologyError(f"{missing} is missing beside {present}")
    subgroups = None
    if inner is not None and size is not None:
        if not size.isdecimal() or int(size) < 1:
            raise TopologyError(f"{KUEUE_SLICE_SIZE}: {size!r} is not a number of pods, 1 or more")
        subgroups = Subgroups(int(size), _label(inner, KUEUE_SLICE_KEY))
    return TopologyTerms(
        required=None if required is None else _label(required, KUEUE_REQUIRED),
        preferred=() if preferred is None else (_label(preferred, KUEUE_PREFERRED),),
        subgroups=subgroups,
    )


def levels_of(topology: Object) -> tuple[str, ...]:
    """The label keys of a Topology object of Kueue, the widest first."""
    levels = (topology.get("spec") or {}).get("levels") or ()
    return tuple(str(each["nodeLabel"]) for each in levels if each.get("nodeLabel"))


def _loaded(text: str) -> dict[str, JSON]:
    try:
        value = yaml.load(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or "not readable"
        raise TopologyError(f"not YAML: {problem}") from error
    return _mapping(value, "the whole")


def _terms(value: dict[str, JSON], path: str) -> TopologyTerms:
    _check_fields(value, _FIELDS, path)
    levels = tuple(_labels(value["levels"], f"{path}levels")) if "levels" in value else ()
    name = value.get("topology", "")
    if not isinstance(name, str):
        raise TopologyError(f"{path}topology: the name of a Topology object is wanted, not {name!r}")
    if levels and name:
        raise TopologyError(f"{path}topology: not beside {path}levels")
    terms = TopologyTerms(
        required=_label(value["required"], f"{path}required") if "required" in value else None,
        preferred=tuple(_labels(value["preferred"], f"{path}preferred")) if "preferred" in value else (),
        levels=levels,
        subgroups=_subgroups(value["subgroups"], f"{path}subgroups") if "subgroups" in value else None,
        distribution=_distribution(value["distribution"], f"{path}distribution") if "distribution" in value else None,
        spread_over=_replicas(value["replicas"], f"{path}replicas") if "replicas" in value else None,
        topology=name,
    )
    return _on_levels(terms, path)


def _on_levels(terms: TopologyTerms, path: str = "") -> TopologyTerms:
    """Checks the labels against the levels, if there are any, and completes the preferred ones."""
    levels = terms.levels
    if not levels:
        return terms
    inner = None if terms.subgroups is None else terms.subgroups.key
    named = [("required", terms.required), ("subgroups.required", inner), ("replicas.spreadOver", terms.spread_over)]
    named += [("preferred", key) for key in terms.preferred]
    named += [("distribution.over", None if terms.distribution is None else terms.distribution.key)]
    for field, key in named:
        if key is not None and key not in levels:
            raise TopologyError(f"{path}{field}: {key!r} is none of the levels {', '.join(levels)}")
    if terms.required is not None and inner is not None and levels.index(inner) < levels.index(terms.required):
        raise TopologyError(f"{path}subgroups.required: {inner!r} is wider than required, {terms.required!r}")
    if len(terms.preferred) != 1:
        return terms
    widest = 0 if terms.required is None else levels.index(terms.required) + 1
    chain = levels[widest : levels.index(terms.preferred[0]) + 1]
    return replace(terms, preferred=tuple(reversed(chain)))


def _subgroups(value: JSON, path: str) -> Subgroups:
    found = _complete(value, ("required", "size"), path)
    size = found["size"]
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise TopologyError(f"{path}.size: {size!r} is not a number of pods, 1 or more")
    return Subgroups(size, _label(found["required"], f"{path}.required"))


def _distribution(value: JSON, path: str) -> Distribution:
    found = _complete(value, ("over", "policy"), path)
    policy = found["policy"]
    if policy not in ("packed", "balanced"):
        raise TopologyError(f"{path}.policy: {policy!r} is neither packed nor balanced")
    return Distribution(cast("Policy", policy), _label(found["over"], f"{path}.over"))


def _replicas(value: JSON, path: str) -> str:
    return _label(_complete(value, ("spreadOver",), path)["spreadOver"], f"{path}.spreadOver")


def _complete(value: JSON, fields: tuple[str, ...], path: str) -> dict[str, JSON]:
    """A mapping with exactly these fields."""
    found = _mapping(value, path)
    _check_fields(found, fields, f"{path}.")
    for field in fields:
        if field not in found:
            raise TopologyError(f"{path}.{field} is missing")
    return found


def _check_fields(value: Mapping[str, JSON], fields: tuple[str, ...], path: str) -> None:
    for name in value:
        if name not in fields:
            raise TopologyError(f"{path}{name}: no such field; there are {', '.join(fields)}")


def _mapping(value: JSON, path: str) -> dict[str, JSON]:
    if not isinstance(value, dict) or any(not isinstance(name, str) for name in value):
        raise TopologyError(f"{path}: a mapping is wanted, not {value!r}")
    return value


def _labels(value: JSON, path: str) -> list[str]:
    entries = [value] if isinstance(value, str) else value
    if not isinstance(entries, list) or not entries:
        raise TopologyError(f"{path}: a label key or a list of them is wanted, not {value!r}")
    keys = [_label(entry, f"{path}[{at}]" if isinstance(value, list) else path) for at, entry in enumerate(entries)]
    if len(set(keys)) < len(keys):
        raise TopologyError(f"{path}: a label is named twice")
    return keys


def _label(value: JSON, path: str) -> str:
    if not isinstance(value, str):
        raise TopologyError(f"{path}: a label key is wanted, not {value!r}")
    errors = label_key_errors(value)
    if errors:
        raise TopologyError(f"{path}: {value!r} is not a label key: {errors[0]}")
    return value
