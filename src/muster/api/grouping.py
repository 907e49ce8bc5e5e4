"""Gangs with no further object: pods of one owner are a group, by declarative rules; and groups of other schedulers.

An owner (a Job, a JobSet, another scheduler's PodGroup, …) is seen as a Workload with one template, in stored form, and
its pods as if they named that template, as pods of v1alpha1 do. So nothing behind this module knows the difference.
Names with a colon cannot be those of real Workloads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from math import prod

import orjson
import yaml
from msgspec import Struct
from msgspec.structs import replace

from muster.api.codec import JSON, Object
from muster.api.dialects import DIALECTS, Dialect, group_to_hub, marked_group
from muster.api.groups import STAGES, GroupRef, group_of
from muster.api.meta import controller_of, namespace_of
from muster.api.names import job_group_names
from muster.api.resource import JOBS, Resource
from muster.api.topology import TOPOLOGY_KEY
from muster.api.versions import GROUP, HUB

GANG_KEY = "scheduling.muster-k8s.dev/gang"
"""Annotation of an owner: "false" makes its pods plain ones."""

TEMPLATE = "pods"

_MOST_PODS = 1_000_000
_STEP = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")


class GroupingError(ValueError):
    """A rule that cannot be used; the message names the field and what would be right. Not retryable."""


class Condition(Struct, frozen=True):
    """Of an owner: the value at `path` is `equals`, or that at the path `same`; or there is one (`exists`), or none.

    `each`: that holds for some item of the list or map there.
    """

    path: str
    equals: JSON = None
    same: str = ""
    exists: bool | None = None
    each: str = ""

    def holds(self, owner: Object) -> bool:
        """Whether the owner is so."""
        return any(self._holds(item) for item in (_items(owner, self.each) if self.each else (owner,)))

    def _holds(self, item: JSON) -> bool:
        value = at(item, self.path)
        if self.exists is not None:
            return (value is not None) is self.exists
        return bool(value == (at(item, self.same) if self.same else self.equals))


class Factor(Struct, frozen=True):
    """A number at `path`, `missing` where there is none, within the bounds at the paths `at_least` and `at_most`."""

    path: str
    missing: int = 1
    at_least: str = ""
    at_most: str = ""

    def of(self, item: JSON) -> int:
        """The value; bounds that are not there bound nothing."""
        value = _number(item, self.path, self.missing)
        value = min(value, _number(item, self.at_most, value)) if self.at_most else value
        return max(value, _number(item, self.at_least, value)) if self.at_least else value


class Term(Struct, frozen=True):
    """A part of a sum over an owner: `number`, or the product of factors, once or for `each` item of a list or map.

    Only where there is something at the path `if_set`, and nothing true at the path `unless`, if these are given.
    """

    product: tuple[Factor, ...] = ()
    each: str = ""
    number: int = 0
    if_set: str = ""
    unless: str = ""

    def of(self, owner: Object) -> int:
        """The value."""
        items = _items(owner, self.each) if self.each else (owner,)
        return sum(self._of(item) for item in items if self.counts(item))

    def _of(self, item: JSON) -> int:
        return prod(factor.of(item) for factor in self.product) if self.product else self.number

    def counts(self, item: JSON) -> bool:
        """Whether an item is to be counted."""
        return (not self.if_set or at(item, self.if_set) is not None) and not (self.unless and at(item, self.unless))

    def by_name(self, owner: Object, name: str) -> dict[str, int]:
        """The value for each item, by what it says at the path `name`."""
        items = [item for item in _items(owner, self.each) if self.counts(item)]
        return {str(at(item, name)): self._of(item) for item in items}


class Count(Struct, frozen=True):
    """Another count for owners that are as `when` says."""

    when: tuple[Condition, ...]
    min_count: tuple[Term, ...]


class StageRule(Struct, frozen=True):
    """Owners that are as `when` says have their pods one part after the other; `label` tells the parts.

    A part of the name that an item of `each` has at `name` has as many pods as that item counts; the part `first` as
    many as the sum of `count`, and all others together the rest. Without any of this, each pod comes by itself.
    """

    label: str
    when: tuple[Condition, ...]
    each: Term | None = None
    name: str = ""
    first: str = ""
    count: tuple[Term, ...] = ()

    def holds(self, owner: Object) -> bool:
        """Whether the owner is one of those."""
        return all(each.holds(owner) for each in self.when)

    def stages(self, owner: Object, whole: int) -> Object:
        """The parts of an owner that has `whole` pods."""
        if self.each is not None:
            return {"label": self.label, "counts": self.each.by_name(owner, self.name), "others": 1}
        if not self.first:
            return {"label": self.label, "counts": {}, "others": 1}
        first = sum(term.of(owner) for term in self.count)
        return {"label": self.label, "counts": {self.first: first}, "others": max(1, whole - first)}


class GroupingRule(Struct, frozen=True):
    """Pods of one owner are a gang.

    `label`: of the pods, with the owner's name; else they are those that it controls itself. `where`: labels that the
    pods have, too; `where_not`: that they do not have. `split`: a label by whose values the pods are several gangs. An
    owner that is not as `when` says has plain pods. The gang starts with as many as stand `min_count_at`, else with the
    sum of the first of `counts` that fits, else of `min_count`. `stages`: the first that fits says in which parts the
    pods come; each part is then as a gang of its own.
    """

    name: str
    resource: Resource
    min_count: tuple[Term, ...]
    min_count_at: str = ""
    label: str = ""
    split: str = ""
    where: tuple[tuple[str, str], ...] = ()
    where_not: tuple[tuple[str, str], ...] = ()
    when: tuple[Condition, ...] = ()
    counts: tuple[Count, ...] = ()
    stages: tuple[StageRule, ...] = ()

    def owner_of(self, pod: Object) -> tuple[str, str] | None:
        """The name of the owner of a pod that the rule is about, and the part of its pods that it is in."""
        labels = pod["metadata"].get("labels") or {}
        if any(labels.get(key) != value for key, value in self.where):
            return None
        if any(labels.get(key) == value for key, value in self.where_not):
            return None
        if self.label:
            name = labels.get(self.label)
        else:
            owner = controller_of(pod)
            same = owner is not None and owner["kind"] == self.resource.kind and self._is_of_group(owner)
            name = owner["name"] if owner is not None and same else None
        return (name, labels.get(self.split, "") if self.split else "") if name else None

    def _is_of_group(self, owner: Object) -> bool:
        return str(owner["apiVersion"]).rpartition("/")[0] == self.resource.group

    def workload(self, owner: Object) -> Object:
        """The owner as a Workload."""
        spec: Object = {"schedulingPolicy": {"basic": {}}}
        marks = owner["metadata"].get("annotations") or {}
        if marks.get(GANG_KEY) != "false" and all(each.holds(owner) for each in self.when):
            stated = at(owner, self.min_count_at) if self.min_count_at else None
            whole = sum(term.of(owner) for term in self.min_count)
            count = stated if isinstance(stated, int) else sum(term.of(owner) for term in self._terms(owner))
            spec = {"schedulingPolicy": {"gang": {"minCount": max(1, min(count, _MOST_PODS))}}}
            stage = next((each for each in self.stages if each.holds(owner)), None)
            if stage is not None:
                spec[STAGES] = stage.stages(owner, whole)
        return _workload(self.resource.kind, owner, spec)

    def _terms(self, owner: Object) -> tuple[Term, ...]:
        fitting = (each.min_count for each in self.counts if all(one.holds(owner) for one in each.when))
        return next(fitting, self.min_count)


class Grouping(Struct, frozen=True):
    """How pods of ours are grouped besides by Kubernetes' own objects.

    `objects_for_jobs`: Jobs have PodGroups of names that follow from their own (`api.names`), and their pods belong to
    these though they do not name them; a Job without one is seen as a Workload all the same.
    """

    rules: tuple[GroupingRule, ...] = ()
    objects_for_jobs: bool = False

    @property
    def resources(self) -> list[Resource]:
        """What is to be watched where it is served: owners, and other schedulers' PodGroups."""
        foreign = [_foreign_resource(dialect) for dialect in DIALECTS.values()]
        return [*dict.fromkeys(rule.resource for rule in self.rules), *foreign]

    def group_of(self, pod: Object) -> GroupRef | None:
        """The group of a pod: the one that it names, else by its marks, else by the first rule that it matches."""
        named = group_of(pod)
        if named is not None:
            return named
        namespace = namespace_of(pod)
        marked = marked_group(pod["metadata"])
        if marked is not None:
            return _ref(namespace, f"PodGroup.{marked[1].group}:{marked[0]}", "")
        for rule in self.rules:
            found = rule.owner_of(pod)
            if found is not None and self.objects_for_jobs and rule.resource == JOBS and not rule.label:
                return GroupRef(namespace, _group_of_job(found[0], (controller_of(pod) or {}).get("uid", "")))
            if found is not None:
                return _ref(namespace, f"{rule.resource.kind}:{found[0]}", found[1])
        return None

    def workload(self, resource: Resource, obj: Object) -> Object:
        """An object of one of the `resources` as a Workload in stored form."""
        for rule in self.rules:
            if rule.resource == resource:
                return rule.workload(obj)
        hub, _ = group_to_hub({**obj, "apiVersion": resource.api_version, "kind": resource.kind})
        return _workload(_prefix(resource), hub, hub["spec"])

    def group_for(self, workload: Object) -> str:
        """The key of the PodGroup for which a Workload of `workload` stands in while there is none; "" for none."""
        prefix, _, name = workload["metadata"]["name"].partition(":")
        if not self.objects_for_jobs or prefix != JOBS.kind or not name:
            return ""
        return f"{namespace_of(workload)}/{_group_of_job(name, workload['metadata'].get('uid', ''))}"

    def owner_reference(self, workload: Object) -> Object | None:
        """The owner that a Workload of `workload` stands for, as an owner reference; None for a real Workload."""
        prefix, colon, name = workload["metadata"]["name"].partition(":")
        if not colon:
            return None
        found = next((each for each in self.resources if _prefix(each) == prefix), None)
        if found is None:
            return None
        uid = workload["metadata"].get("uid", "")
        return {"apiVersion": found.api_version, "kind": found.kind, "name": name, "uid": uid}


@cache
def default_grouping() -> Grouping:
    """The rules that come with the package."""
    return Grouping(
        parse_rules(yaml.safe_load(resources.files("muster.api").joinpath("grouping-rules.yaml").read_text()))
    )


def with_rules(grouping: Grouping, more: Sequence[GroupingRule]) -> Grouping:
    """A grouping with more rules in front; one of the same name is replaced."""
    names = {rule.name for rule in more}
    return replace(grouping, rules=(*more, *(rule for rule in grouping.rules if rule.name not in names)))


def parse_rules(value: JSON) -> tuple[GroupingRule, ...]:
    """The rules of a file `{rules: […]}`. Raises GroupingError."""
    entries = _object(value, "the file", {"rules"}).get("rules")
    if not isinstance(entries, list) or not entries:
        raise GroupingError("rules: must be a list with at least one rule")
    rules = tuple(_rule(entry, f"rules[{index}]") for index, entry in enumerate(entries))
    names = [rule.name for rule in rules]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise GroupingError(f"rules: the name {twice!r} is there twice")
    return rules


def at(obj: JSON, path: str) -> JSON:
    """The value at a path of fields with dots between them; None if there is none. A key with dots: `field[key]`."""
    for plain, key in _STEP.findall(path):
        obj = obj.get(plain or key) if isinstance(obj, dict) else None
    return obj


def _items(owner: JSON, path: str) -> Iterable[JSON]:
    found = at(owner, path)
    return found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()


def _number(item: JSON, path: str, missing: int) -> int:
    value = at(item, path)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else missing


def _ref(namespace: str, workload: str, part: str) -> GroupRef:
    name = "/".join(each for each in (workload, TEMPLATE, part) if each)
    return GroupRef(namespace, name, workload, TEMPLATE)


def _workload(prefix: str, obj: Object, spec: Object) -> Object:
    metadata = {**obj["metadata"], "name": f"{prefix}:{obj['metadata']['name']}"}
    topology = (metadata.get("annotations") or {}).get(TOPOLOGY_KEY)
    metadata["annotations"] = {} if topology is None else {TOPOLOGY_KEY: _by_template(topology)}
    entry = {"name": TEMPLATE, **spec}
    return {
        "apiVersion": f"{GROUP}/{HUB}",
        "kind": "Workload",
        "metadata": metadata,
        "spec": {"podGroupTemplates": [entry]},
    }


def _by_template(text: str) -> str:
    """What an annotation of an owner says about its pods, as that of a Workload says it about a template."""
    try:
        return orjson.dumps({TEMPLATE: yaml.safe_load(text)}).decode()
    except (yaml.YAMLError, TypeError):
        return text  # whoever reads it says what is wrong with it


def _group_of_job(name: str, uid: str) -> str:
    return job_group_names(name, uid)[2]


def _prefix(resource: Resource) -> str:
    """How names of what stands for objects of a resource begin."""
    return f"PodGroup.{resource.group}" if resource.kind == "PodGroup" else resource.kind


def _foreign_resource(dialect: Dialect) -> Resource:
    group, _, version = dialect.api_version.partition("/")
    return Resource(group, version, "podgroups", "PodGroup")


_FIELDS = {"name", "owner", "pods", "when", "minCount", "minCountAt", "minCountWhen", "stages"}
_POD_FIELDS = {"label", "split", "where", "whereNot", "owned"}


def _rule(value: JSON, path: str) -> GroupingRule:
    entry = _object(value, path, _FIELDS)
    owner = _object(entry.get("owner"), f"{path}.owner", {"apiVersion", "kind", "plural"})
    group, _, version = _text(owner, "apiVersion", f"{path}.owner").rpartition("/")
    kind, plural = _text(owner, "kind", f"{path}.owner"), _text(owner, "plural", f"{path}.owner")
    pods = _object(entry.get("pods"), f"{path}.pods", _POD_FIELDS)
    if bool(pods.get("label")) == bool(pods.get("owned")):
        raise GroupingError(f"{path}.pods: must have either label (with the owner's name) or owned: true")
    return GroupingRule(
        _text(entry, "name", path),
        Resource(group, version, plural, kind),
        _terms(entry, "minCount", path),
        _text(entry, "minCountAt", path, ""),
        _text(pods, "label", f"{path}.pods", ""),
        _text(pods, "split", f"{path}.pods", ""),
        _labels(pods, "where", f"{path}.pods"),
        _labels(pods, "whereNot", f"{path}.pods"),
        _conditions(entry, path),
        tuple(_count(each, where) for each, where in _entries(entry, "minCountWhen", path)),
        tuple(_stage(each, where) for each, where in _entries(entry, "stages", path)),
    )


def _count(value: JSON, path: str) -> Count:
    entry = _object(value, path, {"when", "minCount"})
    return Count(_conditions(entry, path), _terms(entry, "minCount", path))


def _stage(value: JSON, path: str) -> StageRule:
    entry = _object(value, path, {"label", "when", "each", "name", "first", "count"})
    if ("each" in entry) != ("name" in entry) or ("first" in entry) != ("count" in entry):
        raise GroupingError(f"{path}: each goes with name, and first with count")
    return StageRule(
        _text(entry, "label", path),
        _conditions(entry, path),
        _term(entry["each"], f"{path}.each") if "each" in entry else None,
        _text(entry, "name", path, ""),
        _text(entry, "first", path, ""),
        _terms(entry, "count", path) if "count" in entry else (),
    )


def _conditions(entry: Mapping[str, JSON], path: str) -> tuple[Condition, ...]:
    return tuple(_condition(each, where) for each, where in _entries(entry, "when", path))


def _terms(entry: Mapping[str, JSON], field: str, path: str) -> tuple[Term, ...]:
    found = _entries(entry, field, path)
    if not found:
        raise GroupingError(f"{path}.{field}: must be a list of parts of a sum")
    return tuple(_term(each, where) for each, where in found)


def _term(value: JSON, path: str) -> Term:
    entry = _object(value, path, {"product", "each", "number", "ifSet", "unless"})
    number = entry.get("number", 0)
    if not isinstance(number, int) or bool(entry.get("product")) == ("number" in entry):
        raise GroupingError(f"{path}: must have either product, or number with a whole number")
    factors = tuple(_factor(each, where) for each, where in _entries(entry, "product", path))
    marks = (_text(entry, field, path, "") for field in ("ifSet", "unless"))
    return Term(factors, _text(entry, "each", path, ""), number, *marks)


def _factor(value: JSON, path: str) -> Factor:
    if isinstance(value, str) and value:
        return Factor(value)
    if not isinstance(value, dict):
        raise GroupingError(f"{path}: must be a path, such as spec.parallelism, or an object with one")
    entry = _object(value, path, {"path", "missing", "atLeast", "atMost"})
    missing = entry.get("missing", 1)
    if not isinstance(missing, int) or isinstance(missing, bool) or missing < 0:
        raise GroupingError(f"{path}.missing: must be a whole number, 0 or more")
    bounds = (_text(entry, field, path, "") for field in ("atLeast", "atMost"))
    return Factor(_text(entry, "path", path), missing, *bounds)


def _condition(value: JSON, path: str) -> Condition:
    entry = _object(value, path, {"path", "equals", "same", "exists", "each"})
    if sum(field in entry for field in ("equals", "same", "exists")) != 1:
        raise GroupingError(f"{path}: must have one of equals (a value), same (a path) and exists (true or false)")
    exists = entry.get("exists")
    if exists is not None and not isinstance(exists, bool):
        raise GroupingError(f"{path}.exists: must be true or false")
    found, same, each = (_text(entry, "path", path), _text(entry, "same", path, ""), _text(entry, "each", path, ""))
    return Condition(found, entry.get("equals"), same, exists, each)


def _labels(entry: Mapping[str, JSON], field: str, path: str) -> tuple[tuple[str, str], ...]:
    found = _object(entry.get(field) or {}, f"{path}.{field}", None)
    return tuple(sorted((str(key), str(each)) for key, each in found.items()))


def _entries(entry: Mapping[str, JSON], field: str, path: str) -> list[tuple[JSON, str]]:
    """The items of a list, which may be missing, each with its path."""
    found = entry.get(field)
    if found is None:
        return []
    if not isinstance(found, list):
        raise GroupingError(f"{path}.{field}: must be a list")
    return [(each, f"{path}.{field}[{index}]") for index, each in enumerate(found)]


def _object(value: JSON, path: str, fields: set[str] | None) -> Mapping[str, JSON]:
    if not isinstance(value, dict):
        raise GroupingError(f"{path}: must be an object")
    if fields is not None and (unknown := sorted(set(value) - fields)):
        raise GroupingError(f"{path}: unknown field {unknown[0]!r}: there are {', '.join(sorted(fields))}")
    return value


def _text(entry: Mapping[str, JSON], field: str, path: str, default: str | None = None) -> str:
    value = entry.get(field, default)
    if not isinstance(value, str) or (default is None and not value):
        raise GroupingError(f"{path}.{field}: must be text")
    return value
