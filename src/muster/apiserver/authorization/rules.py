"""RBAC: which rules a user has, and what they allow. Pure functions of a store's roles and bindings.

Rules only allow; nothing denies. Sources: kube-apiserver `plugin/pkg/auth/authorizer/rbac`,
`pkg/registry/rbac/validation/rule.go`.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from muster.api.codec import Object, Objects
from muster.apiserver.authentication.users import ACCOUNT_PREFIX
from muster.apiserver.authorization.attributes import Attributes
from muster.apiserver.request import User
from muster.apiserver.store.protocol import Store

GROUP = "rbac.authorization.k8s.io"
SUPERUSERS = "system:masters"


class Grant(Struct, frozen=True):
    """The rules that one binding gives a user; `error` instead where its role does not exist."""

    rules: Objects
    reason: str
    error: str = ""


class Decision(Struct, frozen=True):
    """Whether a request is allowed, and why as reviews tell it."""

    is_allowed: bool
    reason: str = ""


def decide(store: Store, user: User, attributes: Attributes) -> Decision:
    """Whether roles allow a user what is asked for."""
    if SUPERUSERS in user.groups:
        return Decision(True)
    errors: list[str] = []
    for grant in grants(store, user, attributes.namespace):
        if grant.error:
            errors.append(grant.error)
        elif any(allows(rule, attributes) for rule in grant.rules):
            return Decision(True, f"RBAC: allowed by {grant.reason}")
    return Decision(False, f"RBAC: {aggregate(errors)}" if errors else "")


def aggregate(errors: list[str]) -> str:
    """Errors as one text, each once. Source: apimachinery `Aggregate.Error`."""
    texts = list(dict.fromkeys(errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def grants(store: Store, user: User, namespace: str) -> Iterator[Grant]:
    """What bindings give a user, those of the whole cluster first, then those of the namespace ("": none)."""
    for binding in store.list("/clusterrolebindings/").items:
        yield from _grant(store, user, binding, "")
    if namespace:
        for binding in store.list(f"/rolebindings/{namespace}/").items:
            yield from _grant(store, user, binding, namespace)


def _grant(store: Store, user: User, binding: Object, namespace: str) -> Iterator[Grant]:
    subject = next((one for one in binding.get("subjects") or () if _is_subject(one, user, namespace)), None)
    if subject is None:
        return
    reference, name = binding["roleRef"], binding["metadata"]["name"]
    rules = rules_of(store, reference, namespace)
    if rules is None:
        yield Grant([], "", not_found_text(reference))
        return
    kind, shown = ("RoleBinding", f"{name}/{namespace}") if namespace else ("ClusterRoleBinding", name)
    role = f'{reference["kind"]} "{reference["name"]}"'
    yield Grant(rules, f'{kind} "{shown}" of {role} to {_subject_text(subject, namespace)}')


def not_found_text(reference: Object) -> str:
    """That the role of a binding does not exist."""
    return f'{reference["kind"].lower()}.{GROUP} "{reference["name"]}" not found'


def rules_of(store: Store, reference: Object, namespace: str) -> Objects | None:
    """The rules of a binding's role; None if it does not exist."""
    path = f"/roles/{namespace}/" if reference["kind"] == "Role" else "/clusterroles/"
    role = store.get(f"{path}{reference['name']}")
    return None if role is None else role.get("rules") or []


def _is_subject(subject: Object, user: User, namespace: str) -> bool:
    match subject.get("kind"):
        case "User":
            return bool(subject["name"] == user.name)
        case "Group":
            return subject["name"] in user.groups
        case "ServiceAccount":
            where = subject.get("namespace") or namespace
            return bool(where) and user.name == f"{ACCOUNT_PREFIX}{where}:{subject['name']}"
    return False


def _subject_text(subject: Object, namespace: str) -> str:
    name = subject["name"]
    if subject["kind"] == "ServiceAccount":
        name = f"{name}/{subject.get('namespace') or namespace}"
    return f'{subject["kind"]} "{name}"'


def allows(rule: Object, attributes: Attributes) -> bool:
    """Whether one rule allows what is asked for."""
    verbs = rule.get("verbs") or ()
    if "*" not in verbs and attributes.verb not in verbs:
        return False
    if not attributes.is_resource:
        return any(covers_path(path, attributes.path) for path in rule.get("nonResourceURLs") or ())
    groups = rule.get("apiGroups") or ()
    if "*" not in groups and attributes.group not in groups:
        return False
    resources = rule.get("resources") or ()
    wanted = {"*", attributes.full_resource}
    if attributes.subresource:
        wanted.add(f"*/{attributes.subresource}")
    if not wanted.intersection(resources):
        return False
    names = rule.get("resourceNames") or ()
    return not names or attributes.name in names


def covers_path(pattern: str, path: str) -> bool:
    """Whether a path of a rule, which may end in `*`, stands for a path."""
    if pattern in ("*", path):
        return True
    return pattern.endswith("*") and path.startswith(pattern.rstrip("*"))
