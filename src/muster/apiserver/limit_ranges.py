"""LimitRange at admission: defaults for the containers of a new pod, and limits on pods and claims.

Source: kubernetes `plugin/pkg/admission/limitranger/admission.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from muster.api.codec import Object, Objects
from muster.api.quantity import Quantity, parse_quantity
from muster.api.quotas import Amounts, add
from muster.apiserver.context import Context
from muster.apiserver.errors import Qualified, forbidden
from muster.apiserver.resources import Served

ANNOTATION = "kubernetes.io/limit-ranger"

_Check: TypeAlias = Callable[[str, str, Quantity, Amounts, Amounts], str]


def _limits(ctx: Context, namespace: str) -> list[Object]:
    """The entries of all LimitRanges of a namespace."""
    ranges = ctx.store.list(f"/limitranges/{namespace}/").items if namespace else ()
    return [limit for entry in ranges for limit in (entry.get("spec") or {}).get("limits") or ()]


def default_from_ranges(ctx: Context, served: Served, namespace: str, obj: Object) -> None:
    """Fill in requests and limits of a new pod's containers, and note in an annotation which."""
    if (served.resource.group, served.resource.plural) != ("", "pods"):
        return
    limits = [limit for limit in _limits(ctx, namespace) if limit.get("type") == "Container"]
    requests = _merged(limits, "defaultRequest")
    maxima = _merged(limits, "default")
    if not requests and not maxima:
        return
    notes: list[str] = []
    for group, words in (("containers", "container"), ("initContainers", "init container")):
        for container in obj["spec"].get(group) or ():
            notes += _fill(container, "requests", requests, f"request for {words}")
            notes += _fill(container, "limits", maxima, f"limit for {words}")
    if notes:
        annotations = obj["metadata"].get("annotations") or {}
        obj["metadata"]["annotations"] = {**annotations, ANNOTATION: "LimitRanger plugin set: " + "; ".join(notes)}


def _merged(limits: list[Object], field: str) -> Mapping[str, str]:
    merged: dict[str, str] = {}
    for limit in limits:
        for name, value in (limit.get(field) or {}).items():
            merged.setdefault(name, value)
    return merged


def _fill(container: Object, field: str, defaults: Mapping[str, str], words: str) -> Iterator[str]:
    resources = container.get("resources") or {}
    stated = resources.get(field) or {}
    missing = {name: value for name, value in defaults.items() if name not in stated}
    if missing:
        container["resources"] = {**resources, field: {**stated, **missing}}
        yield f"{', '.join(sorted(missing))} {words} {container['name']}"


def check_ranges(ctx: Context, served: Served, namespace: str, obj: Object) -> None:
    """Refuse a new pod or claim outside of the limits. Raises StatusError (403)."""
    if served.resource.group or served.resource.plural not in ("pods", "persistentvolumeclaims"):
        return
    limits = _limits(ctx, namespace)
    if not limits:
        return
    check = _pod_problems if served.resource.plural == "pods" else _claim_problems
    problems = list(dict.fromkeys(problem for limit in limits for problem in check(limit, obj)))
    if problems:
        why = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise forbidden(Qualified("", served.resource.plural), obj["metadata"].get("name", ""), why)


def _pod_problems(limit: Object, pod: Object) -> Iterator[str]:
    containers: Objects = [*(pod["spec"].get("containers") or ()), *(pod["spec"].get("initContainers") or ())]
    if limit.get("type") == "Container":
        for container in containers:
            resources = container.get("resources") or {}
            yield from _problems(limit, _parsed(resources.get("requests")), _parsed(resources.get("limits")))
    elif limit.get("type") == "Pod":
        yield from _problems(limit, _total(pod["spec"], "requests"), _total(pod["spec"], "limits"))


def _claim_problems(limit: Object, claim: Object) -> Iterator[str]:
    if limit.get("type") != "PersistentVolumeClaim":
        return
    requests = _parsed(((claim.get("spec") or {}).get("resources") or {}).get("requests"))
    for name, least in _parsed(limit.get("min")).items():
        asked = requests.get(name)
        if asked is None or asked.nano < least.nano:
            rest = ".  No request is specified" if asked is None else f", but request is {asked}"
            yield f"minimum {name} usage per PersistentVolumeClaim is {least}{rest}"
    for name, most in _parsed(limit.get("max")).items():
        asked = requests.get(name)
        if asked is None or asked.nano > most.nano:
            rest = ".  No request is specified" if asked is None else f", but request is {asked}"
            yield f"maximum {name} usage per PersistentVolumeClaim is {most}{rest}"


def _problems(limit: Object, requests: Amounts, limits: Amounts) -> Iterator[str]:
    checks: tuple[tuple[str, _Check], ...] = (("min", _minimum), ("max", _maximum), ("maxLimitRequestRatio", _ratio))
    for field, check in checks:
        for name, enforced in sorted(_parsed(limit.get(field)).items()):
            problem = check(name, limit["type"], enforced, requests, limits)
            if problem:
                yield problem


def _minimum(name: str, kind: str, least: Quantity, requests: Amounts, limits: Amounts) -> str:
    request, limit = requests.get(name), limits.get(name)
    head = f"minimum {name} usage per {kind} is {least}"
    if request is None:
        return f"{head}.  No request is specified"
    if request.nano < least.nano:
        return f"{head}, but request is {request}"
    return f"{head}, but limit is {limit}" if limit is not None and limit.nano < least.nano else ""


def _maximum(name: str, kind: str, most: Quantity, requests: Amounts, limits: Amounts) -> str:
    request, limit = requests.get(name), limits.get(name)
    head = f"maximum {name} usage per {kind} is {most}"
    if limit is None:
        return f"{head}.  No limit is specified"
    if limit.nano > most.nano:
        return f"{head}, but limit is {limit}"
    return f"{head}, but request is {request}" if request is not None and request.nano > most.nano else ""


def _ratio(name: str, kind: str, most: Quantity, requests: Amounts, limits: Amounts) -> str:
    request, limit = requests.get(name), limits.get(name)
    head = f"{name} max limit to request ratio per {kind} is {most}"
    if request is None or request.nano == 0:
        return f"{head}, but no request is specified or request is 0"
    if limit is None or limit.nano == 0:
        return f"{head}, but no limit is specified or limit is 0"
    ratio = limit.nano / request.nano
    return f"{head}, but provided ratio is {ratio:.6f}" if limit.nano * 10**9 > most.nano * request.nano else ""


def _parsed(values: Mapping[str, str] | None) -> dict[str, Quantity]:
    return {name: parse_quantity(value) for name, value in (values or {}).items()}


def _total(spec: Object, field: str) -> dict[str, Quantity]:
    """Requests or limits of a whole pod; a resource that no container states is missing."""
    total: dict[str, Quantity] = {}
    for container in spec.get("containers") or ():
        total = add(total, _parsed((container.get("resources") or {}).get(field)))
    for container in spec.get("initContainers") or ():
        own = _parsed((container.get("resources") or {}).get(field))
        if container.get("restartPolicy") == "Always":
            total = add(total, own)
            continue
        for name, amount in own.items():
            if name not in total or amount.nano > total[name].nano:
                total[name] = amount
    return total
