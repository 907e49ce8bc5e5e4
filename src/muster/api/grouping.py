"""Gangs with no further object: pods of one owner are a group, by declarative rules; and groups of other schedulers.

An owner (a Job, a JobSet, another scheduler's PodGroup, …) is seen as a Workload with one template, in stored form, and
its pods as if they named that template, as pods of v1alpha1 do. So nothing behind this module knows the difference.
Names with a colon cannot be those of real Workloads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources

import orjson
import yaml
from msgspec import Struct
from msgspec.structs import replace

from muster.api.codec import JSON, Object
from muster.api.dialects import DIALECTS, Dialect, group_to_hub, marked_group
from muster.api.groups import GroupRef, group_of
from muster.api.meta import controller_of, namespace_of
from muster.api.names import job_group_names
from muster.api.resource import JOBS, Resource
from muster.api.topology import TOPOLOGY_KEY
from muster.api.versions import GROUP, HUB

GANG_KEY = "scheduling.muster-k8s.dev/gang"
"""Annotation of an owner: "false" makes its pods plain ones."""

TEMPLATE = "pods"

_MOST_PODS = 1_000_000


class GroupingError(ValueError):
    """A rule that cannot be used; the message names the field and what would be right. Not retryable."""


class Condition(Struct, frozen=True):
    """Of an owner: the value at `path` is `equals`, or the value at the path `same`."""

    path: str
    equals: JSON = None
    same: str = ""

    def holds(self, owner: Object) -> bool:
        """Whether the owner is so."""
        return bool(at(owner, self.path) == (at(owner, self.same) if self.same else self.equals))


class Term(Struct, frozen=True):
    """A part of a sum over an owner: `number`, or the product of fields, once or for `each` item of a list or map.

    A field that is missing counts as 1.
    """

    product: tuple[str, ...] = ()
    each: str = ""
    number: int = 0

    def of(self, owner: Object) -> int:
        """The value; what is no whole number counts as 1."""
        if not self.product:
            return self.number
        if not self.each:
            return _product(owner, self.product)
        found = at(owner, self.each)
        items = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
        return sum(_product(item, self.product) for item in items)


class GroupingRule(Struct, frozen=True):
    """Pods of one owner are a gang.

    `label`: of the pods, with the owner's name; else they are those that it controls itself. `where`: labels that the
    pods have, too. `split`: a label by whose values the pods are several gangs. An owner that is not as `when` says has
    plain pods. The gang starts with as many as stand `min_count_at`, else with the sum of `min_count`.
    """

    name: str
    resource: Resource
    min_count: tuple[Term, ...]
    min_count_at: str = ""
    label: str = ""
    split: str = ""
    where: tuple[tuple[str, str], ...] = ()
    when: tuple[Condition, ...] = ()

    def owner_of(self, pod: Object) -> tuple[str, str] | None:
        """The name of the owner of a pod that the rule is about, and the part of its pods that it is in."""
        labels = pod["metadata"].get("labels") or {}
        if any(labels.get(key) != value for key, value in self.where):
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
            count = stated if isinstance(stated, int) else sum(term.of(owner) for term in self.min_count)
            spec = {"schedulingPolicy": {"gang": {"minCount": max(1, min(count, _MOST_PODS))}}}
        return _workload(self.resource.kind, owner, spec)


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
        return _workload(_prefix(resource), obj, hub["spec"])

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
    """The value at a path of fields with dots between them; None if there is none."""
    for field in path.split("."):
        obj = obj.get(field) if isinstance(obj, dict) else None
    return obj


def _product(item: JSON, paths: Iterable[str]) -> int:
    result = 1
    for path in paths:
        value = at(item, path)
        result *= value if isinstance(value, int) and value >= 0 else 1
    return result


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


def _rule(value: JSON, path: str) -> GroupingRule:
    entry = _object(value, path, {"name", "owner", "pods", "when", "minCount", "minCountAt"})
    owner = _object(entry.get("owner"), f"{path}.owner", {"apiVersion", "kind", "plural"})
    group, _, version = _text(owner, "apiVersion", f"{path}.owner").rpartition("/")
    kind, plural = _text(owner, "kind", f"{path}.owner"), _text(owner, "plural", f"{path}.owner")
    pods = _object(entry.get("pods"), f"{path}.pods", {"label", "split", "where", "owned"})
    if bool(pods.get("label")) == bool(pods.get("owned")):
        raise GroupingError(f"{path}.pods: must have either label (with the owner's name) or owned: true")
    where = _object(pods.get("where") or {}, f"{path}.pods.where", None)
    terms = entry.get("minCount")
    if not isinstance(terms, list) or not terms:
        raise GroupingError(f"{path}.minCount: must be a list of parts of a sum")
    return GroupingRule(
        _text(entry, "name", path),
        Resource(group, version, plural, kind),
        tuple(_term(term, f"{path}.minCount[{index}]") for index, term in enumerate(terms)),
        _text(entry, "minCountAt", path, ""),
        _text(pods, "label", f"{path}.pods", ""),
        _text(pods, "split", f"{path}.pods", ""),
        tuple(sorted((str(key), str(each)) for key, each in where.items())),
        tuple(_condition(each, f"{path}.when[{index}]") for index, each in enumerate(entry.get("when") or ())),
    )


def _term(value: JSON, path: str) -> Term:
    entry = _object(value, path, {"product", "each", "number"})
    product = entry.get("product") or []
    if not isinstance(product, list) or not all(isinstance(each, str) and each for each in product):
        raise GroupingError(f"{path}.product: must be a list of paths, such as spec.parallelism")
    number = entry.get("number", 0)
    if not isinstance(number, int) or bool(product) == ("number" in entry):
        raise GroupingError(f"{path}: must have either product, or number with a whole number")
    return Term(tuple(product), _text(entry, "each", path, ""), number)


def _condition(value: JSON, path: str) -> Condition:
    entry = _object(value, path, {"path", "equals", "same"})
    if ("equals" in entry) == ("same" in entry):
        raise GroupingError(f"{path}: must have either equals (a value) or same (a path)")
    return Condition(_text(entry, "path", path), entry.get("equals"), _text(entry, "same", path, ""))


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
