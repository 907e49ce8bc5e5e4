"""A CustomResourceDefinition as a value: its versions, names and conditions, and what becomes of them.

Source: apiextensions-apiserver `pkg/controller/{status,establish,finalizer}`.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.api.codec import JSON, Object, Objects
from muster.api.meta import condition, name_of
from muster.clock import rfc3339

GROUP = "apiextensions.k8s.io"
PLURAL = "customresourcedefinitions"
STORAGE = PLURAL
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
APPROVAL = "api-approved.kubernetes.io"


def storage_version(crd: Object) -> str:
    """The version that objects are stored in, "" if none is marked."""
    return next((str(version.get("name") or "") for version in versions(crd) if version.get("storage")), "")


def versions(crd: Object) -> Objects:
    found: Objects = (crd.get("spec") or {}).get("versions") or []
    return found


def is_true(crd: Object, type_: str) -> bool:
    """Whether the definition has that condition."""
    entry = condition(crd, type_)
    return entry is not None and entry.get("status") == "True"


def is_established(crd: Object) -> bool:
    return is_true(crd, "Established")


def is_terminating(crd: Object) -> bool:
    return bool(crd["metadata"].get("deletionTimestamp"))


def needs_approval(group: str) -> bool:
    """Whether a group belongs to the Kubernetes project, so that its definitions need an approval."""
    return any(group == owner or group.endswith(f".{owner}") for owner in ("k8s.io", "kubernetes.io"))


def settled(crd: Object, others: Iterable[Object], now: float) -> Object:
    """The status that a definition gets beside the others: accepted names, NamesAccepted, Established."""
    spec, status = crd["spec"], crd.get("status") or {}
    wanted, accepted = spec["names"], status.get("acceptedNames") or {}
    resources, kinds = _taken(crd, others)
    names, problem = _accept(wanted, accepted, resources, kinds)
    result: Object = {**status, "acceptedNames": names}
    if problem:
        result = _with(result, "NamesAccepted", "False", *problem, now)
        if not is_established(crd):
            result = _with(result, "Established", "False", "NotAccepted", "not all names are accepted", now)
        return result
    result = _with(result, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now)
    if not is_established(crd):
        message = "the initial names have been accepted"
        result = _with(result, "Established", "True", "InitialNamesAccepted", message, now)
    return _with_approval(crd, result, now)


def _with_approval(crd: Object, status: Object, now: float) -> Object:
    if not needs_approval(crd["spec"]["group"]):
        return status
    text = (crd["metadata"].get("annotations") or {}).get(APPROVAL, "")
    if text.startswith("unapproved"):
        reason, message, value = "UnapprovedAnnotation", f'not approved: "{text}"', "False"
    else:
        reason, message, value = "ApprovedAnnotation", f'approved in "{text}"', "True"
    return _with(status, "KubernetesAPIApprovalPolicyConformant", value, reason, message, now)


def _taken(crd: Object, others: Iterable[Object]) -> tuple[set[str], set[str]]:
    """The names of resources and of kinds that the group's other definitions hold."""
    resources: set[str] = set()
    kinds: set[str] = set()
    for other in others:
        if other["spec"]["group"] != crd["spec"]["group"] or name_of(other) == name_of(crd):
            continue
        names = (other.get("status") or {}).get("acceptedNames") or {}
        resources.update((names.get("plural", ""), names.get("singular", ""), *(names.get("shortNames") or ())))
        kinds.update((names.get("kind", ""), names.get("listKind", "")))
    return resources - {""}, kinds - {""}


def _accept(
    wanted: Object, accepted: Object, resources: set[str], kinds: set[str]
) -> tuple[Object, tuple[str, str] | None]:
    """The names that are granted, and reason and message of the last conflict."""
    names: Object = {"plural": "", "kind": "", **accepted}
    problem: tuple[str, str] | None = None

    def conflicts(name: str, taken: set[str], held: JSON) -> bool:
        return name != held and name in taken

    for field, taken, reason in (
        ("plural", resources, "PluralConflict"),
        ("singular", resources, "SingularConflict"),
        ("shortNames", resources, "ShortNamesConflict"),
        ("kind", kinds, "KindConflict"),
        ("listKind", kinds, "ListKindConflict"),
    ):
        value = wanted.get(field)
        if field == "shortNames":
            held = accepted.get("shortNames") or ()
            bad = [name for name in value or () if name not in held and name in taken]
            texts = [f'"{name}" is already in use' for name in bad]
            if bad:
                problem = (reason, texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
                continue
        elif conflicts(value or "", taken, accepted.get(field)):
            problem = (reason, f'"{value}" is already in use')
            continue
        _put(names, field, value)
    _put(names, "categories", wanted.get("categories"))
    return names, problem


def _put(names: Object, field: str, value: JSON) -> None:
    if value:
        names[field] = value
    elif field in names and field not in ("plural", "kind"):
        del names[field]


def terminating(crd: Object, reason: str, message: str, now: float, *, value: str = "True") -> Object:
    """The status of a definition that is being deleted."""
    return _with(crd.get("status") or {}, "Terminating", value, reason, message, now)


def _with(status: Object, type_: str, value: str, reason: str, message: str, now: float) -> Object:
    """The status with a condition set; its time moves only with its value."""
    conditions = list(status.get("conditions") or ())
    entry: Object = {"type": type_, "status": value, "lastTransitionTime": rfc3339(now)}
    entry |= {"reason": reason, "message": message}
    for index, old in enumerate(conditions):
        if old.get("type") == type_:
            if old.get("status") == value:
                entry["lastTransitionTime"] = old.get("lastTransitionTime")
            conditions[index] = {**old, **entry}
            break
    else:
        conditions.append(entry)
    return {**status, "conditions": conditions}
