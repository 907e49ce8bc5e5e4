"""Nobody grants more than they have: checks of writes of roles and bindings.

Source: kube-apiserver `pkg/registry/rbac/escalation_check.go`, component-helpers `auth/rbac/validation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from muster.api.codec import Object, Objects
from muster.apiserver.authorization.attributes import Attributes
from muster.apiserver.authorization.rules import GROUP, SUPERUSERS, covers_path, grants, rules_of
from muster.apiserver.errors import Qualified, forbidden, not_found
from muster.apiserver.request import User
from muster.apiserver.store.protocol import Store

Allowed = Callable[[Attributes], bool]
"""Whether the user may do something."""

EVERYTHING: Objects = [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
]


def check_role(store: Store, user: User, allowed: Allowed, role: Object, old: Object | None) -> None:
    """A role may hold only what its writer has, or may escalate to. Raises StatusError (403)."""
    kind, meta = role["kind"], role["metadata"]
    resource = f"{kind.lower()}s"
    namespace = meta.get("namespace", "") if kind == "Role" else ""
    name = meta.get("name", "")
    if SUPERUSERS in user.groups or allowed(Attributes("escalate", True, GROUP, resource, "", namespace, name)):
        return
    fields = ("rules", "aggregationRule")
    if old is not None and all((role.get(field) or None) == (old.get(field) or None) for field in fields):
        return
    of = Qualified(GROUP, resource)
    problem = problem_with(store, user, namespace, role.get("rules") or [])
    if problem:
        raise forbidden(of, name, problem)
    if role.get("aggregationRule") and problem_with(store, user, namespace, EVERYTHING):
        raise forbidden(of, name, "must have cluster-admin privileges to use the aggregationRule")


def check_binding(store: Store, user: User, allowed: Allowed, binding: Object) -> None:
    """A role may be bound by who has all it gives, or may bind it. Raises StatusError (403, 404)."""
    kind, meta, reference = binding["kind"], binding["metadata"], binding["roleRef"]
    namespace = meta.get("namespace", "") if kind == "RoleBinding" else ""
    role_resource = f"{str(reference.get('kind', '')).lower()}s"
    bind = Attributes("bind", True, GROUP, role_resource, "", namespace, reference.get("name", ""))
    if SUPERUSERS in user.groups or allowed(bind):
        return
    of = Qualified(GROUP, f"{kind.lower()}s")
    rules = rules_of(store, reference, namespace)
    if rules is None:
        raise not_found(of, reference.get("name", ""))
    problem = problem_with(store, user, namespace, rules)
    if problem:
        raise forbidden(of, meta.get("name", ""), problem)


def problem_with(store: Store, user: User, namespace: str, rules: Objects) -> str:
    """Which of the rules a user does not hold, in upstream's words; "" if all are held."""
    held: Objects = []
    errors: list[str] = []
    for grant in grants(store, user, namespace):
        held += grant.rules
        if grant.error:
            errors.append(grant.error)
    missing = [single for rule in rules for single in _singles(rule) if not _is_covered(single, held)]
    if not missing:
        return ""
    groups = " ".join(f'"{group}"' for group in user.groups)
    listed = "\n".join(sorted({_described(rule) for rule in _compacted(missing)}))
    text = (
        f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n{listed}'
    )
    return f"{text}; resolution errors: [{', '.join(errors)}]" if errors else text


def _singles(rule: Object) -> Iterator[Object]:
    """A rule as rules of one verb on one thing each."""
    verbs = rule.get("verbs") or ()
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in verbs:
                single = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
                names = rule.get("resourceNames") or ()
                yield from [{**single, "resourceNames": [name]} for name in names] if names else [single]
    for path in rule.get("nonResourceURLs") or ():
        for verb in verbs:
            yield {"nonResourceURLs": [path], "verbs": [verb]}


def _is_covered(single: Object, held: Objects) -> bool:
    return any(_covers(rule, single) for rule in held)


def _covers(rule: Object, single: Object) -> bool:
    verbs = rule.get("verbs") or ()
    if "*" not in verbs and single["verbs"][0] not in verbs:
        return False
    if "nonResourceURLs" in single:
        path = single["nonResourceURLs"][0]
        return any(covers_path(pattern, path) for pattern in rule.get("nonResourceURLs") or ())
    groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
    resource = single["resources"][0]
    wanted = {"*", resource}
    if "/" in resource:
        wanted.add(f"*/{resource.partition('/')[2]}")
    if ("*" not in groups and single["apiGroups"][0] not in groups) or not wanted.intersection(resources):
        return False
    names = rule.get("resourceNames") or ()
    return not names or single.get("resourceNames", [""])[0] in names


def _compacted(rules: Objects) -> Objects:
    """Rules of one verb each, joined where they are about the same resource."""
    joined: dict[str, Object] = {}
    for rule in rules:
        about = _described({**rule, "verbs": []}) if "resources" in rule else _described(rule)
        known = joined.setdefault(about, {**rule, "verbs": []})
        if rule["verbs"][0] not in known["verbs"]:
            known["verbs"].append(rule["verbs"][0])
    return list(joined.values())


def _described(rule: Object) -> str:
    names = {
        "apiGroups": "APIGroups",
        "resources": "Resources",
        "nonResourceURLs": "NonResourceURLs",
        "resourceNames": "ResourceNames",
        "verbs": "Verbs",
    }
    parts: list[str] = []
    for key, shown in names.items():
        if rule.get(key):
            quoted = " ".join(f'"{value}"' for value in rule[key])
            parts.append(f"{shown}:[{quoted}]")
    return "{" + ", ".join(parts) + "}"
