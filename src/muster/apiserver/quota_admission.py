"""ResourceQuota at admission: a new object must fit into all quotas of its namespace that count it.

What it takes is charged in the same step, so that many creations at once cannot overrun a quota; the quota controller
later finds what was given back. Source: apiserver `pkg/admission/plugin/resourcequota/controller.go` (checkRequest).
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.api.codec import Object, Objects
from muster.api.quantity import Quantity, parse_quantity
from muster.api.quotas import Amounts, add, counts, covers, usage_of
from muster.apiserver.context import Context
from muster.apiserver.errors import Qualified, StatusError, forbidden
from muster.apiserver.resources import Served

_NAMED = frozenset(
    {
        "cpu",
        "memory",
        *(f"{kind}.{name}" for kind in ("requests", "limits") for name in ("cpu", "memory", "ephemeral-storage")),
    }
)
"""What every container must state where a quota limits it."""


def charges(ctx: Context, served: Served, namespace: str, obj: Object) -> list[tuple[str, Object]]:
    """Keys and next states of the quotas that a new object uses up. Raises StatusError (403) if it does not fit."""
    group, plural = served.resource.group, served.resource.plural
    if (group, plural) in (("", "events"), ("", "resourcequotas")):
        return []
    quotas = ctx.store.list(f"/resourcequotas/{namespace}/").items if namespace else []
    found: list[tuple[str, Object]] = []
    taken: dict[str, Quantity] | None = None
    for quota in quotas:
        names = [name for name in _hard(quota) if counts(quota, name, group, plural)]
        if not names or not covers(quota, plural, obj):
            continue
        if taken is None:
            taken = {name: amount for name, amount in usage_of(group, plural, obj).items() if amount.nano}
        charged = _charged(quota, names, taken, served, obj)
        if charged is not None:
            found.append((f"/resourcequotas/{namespace}/{quota['metadata']['name']}", charged))
    return found


def _hard(quota: Object) -> Mapping[str, str]:
    """The limits in force: those that the controller has seen."""
    hard: Mapping[str, str] = (quota.get("status") or {}).get("hard") or {}
    return hard


def _charged(quota: Object, names: list[str], taken: Amounts, served: Served, obj: Object) -> Object | None:
    name = quota["metadata"]["name"]
    requested = {entry: taken[entry] for entry in names if entry in taken}
    status: Object = quota.get("status") or {}
    used = {entry: parse_quantity(value) for entry, value in (status.get("used") or {}).items()}
    if unnamed := _unnamed(names, served, obj):
        raise _refused(served, obj, f"failed quota: {name}: must specify {unnamed}")
    unknown = sorted(entry for entry in requested if entry not in used)
    if unknown:
        raise _refused(served, obj, f"status unknown for quota: {name}, resources: {','.join(unknown)}")
    if not requested:
        return None
    hard = {entry: parse_quantity(value) for entry, value in _hard(quota).items()}
    after = add(used, requested)
    over = [entry for entry in requested if after[entry].nano > hard[entry].nano]
    if over:
        parts = (("requested", requested), ("used", used), ("limited", hard))
        texts = [f"{word}: {_listed({entry: amounts[entry] for entry in over})}" for word, amounts in parts]
        raise _refused(served, obj, f"exceeded quota: {name}, {', '.join(texts)}")
    new_used = {entry: str(amount) for entry, amount in after.items()}
    return {**quota, "metadata": dict(quota["metadata"]), "status": {**status, "used": new_used}}


def _listed(amounts: Amounts) -> str:
    return ",".join(f"{entry}={amounts[entry]}" for entry in sorted(amounts))


def _refused(served: Served, obj: Object, why: str) -> StatusError:
    return forbidden(Qualified(served.resource.group, served.resource.plural), obj["metadata"].get("name", ""), why)


def _unnamed(names: list[str], served: Served, obj: Object) -> str:
    """The limited resources that containers of a pod do not state, and which containers; "" if all do."""
    if (served.resource.group, served.resource.plural) != ("", "pods") or obj["spec"].get("resources"):
        return ""
    containers: Objects = [*(obj["spec"].get("containers") or ()), *(obj["spec"].get("initContainers") or ())]
    parts = []
    for name in sorted(entry for entry in names if entry in _NAMED):
        missing = sorted(container["name"] for container in containers if not _states(container, name))
        if missing:
            parts.append(f"{name} for: {','.join(missing)}")
    return "; ".join(parts)


def _states(container: Object, name: str) -> bool:
    kind, _, resource = name.rpartition(".")
    return resource in ((container.get("resources") or {}).get(kind or "requests") or {})
