"""Priority classes, and the priorities of pods and groups that they give.

Source: upstream's admission plugin Priority and `pkg/apis/scheduling/validation`.
"""

from __future__ import annotations

from muster.api.codec import Object
from muster.apiserver.context import Context
from muster.apiserver.errors import Qualified, forbidden
from muster.apiserver.fields import FieldError, forbidden_field, invalid_value, not_supported, required
from muster.apiserver.registry.strategy import Strategy

PODS = Qualified("", "pods")


HIGHEST_USER_PRIORITY = 1_000_000_000
POLICIES = ("PreemptLowerPriority", "Never")
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class PriorityClassStrategy(Strategy):
    """PriorityClass: the value and the preemption policy never change."""

    starts_generation = True

    def default(self, obj: Object, ctx: Context) -> None:
        if obj.get("preemptionPolicy") is None:
            obj["preemptionPolicy"] = "PreemptLowerPriority"
        obj.setdefault("value", 0)

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        errors: list[FieldError] = []
        name, value = obj["metadata"].get("name") or "", obj["value"]
        if name.startswith("system-"):
            if SYSTEM_CLASSES.get(name) != value:
                problem = (
                    f"{name} is not a known system priority class"
                    if name not in SYSTEM_CLASSES
                    else f"value of {name} PriorityClass must be {SYSTEM_CLASSES[name]}"
                )
                why = f"priority class names with 'system-' prefix are reserved for system use only. error: {problem}"
                errors.append(forbidden_field("metadata.name", why))
        elif value > HIGHEST_USER_PRIORITY:
            why = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
            errors.append(forbidden_field("value", why))
        if not obj["preemptionPolicy"]:
            errors.append(required("preemptionPolicy"))
        elif obj["preemptionPolicy"] not in POLICIES:
            errors.append(not_supported("preemptionPolicy", obj["preemptionPolicy"], POLICIES))
        return errors

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        errors: list[FieldError] = []
        if new["value"] != old["value"]:
            errors.append(forbidden_field("value", "may not be changed in an update."))
        if new["preemptionPolicy"] != old["preemptionPolicy"]:
            errors.append(invalid_value("preemptionPolicy", new["preemptionPolicy"], "field is immutable"))
        return errors


def global_default(ctx: Context) -> Object | None:
    """The class with globalDefault; of several the one with the lowest value."""

    def find() -> Object | None:
        found = [entry for entry in ctx.store.list("/priorityclasses/").items if entry.get("globalDefault")]
        return min(found, key=lambda entry: (entry["value"], entry["metadata"]["name"]), default=None)

    return ctx.notes.remember("global default", "priorityclasses", find)


def resolve(class_name: str, ctx: Context, of: Qualified, name: str) -> Object | None:
    """The class of that name, or the global default for "". Raises StatusError (403) for an unknown one."""
    if not class_name:
        return global_default(ctx)
    found = ctx.read("priorityclasses", "", class_name)
    if found is None:
        raise forbidden(of, name, f"no PriorityClass with name {class_name} was found")
    return found


def resolve_pod_priority(pod: Object, ctx: Context) -> None:
    """Set priority and preemptionPolicy of a new pod from its class."""
    spec = pod["spec"]
    name = pod["metadata"].get("name", "")
    found = resolve(spec.get("priorityClassName", ""), ctx, PODS, name)
    value, policy = 0, "PreemptLowerPriority"
    if found is not None:
        spec["priorityClassName"] = found["metadata"]["name"]
        value, policy = found["value"], found.get("preemptionPolicy", policy)
    given = spec.get("priority")
    if given is not None and given != value:
        why = (
            f"the integer value of priority ({given}) must not be provided in pod spec; priority admission controller "
            f"computed {value} from the given PriorityClass name"
        )
        raise forbidden(PODS, name, why)
    spec["priority"] = value
    given_policy = spec.get("preemptionPolicy")
    if given_policy is not None and given_policy != policy:
        why = (
            f"the string value of PreemptionPolicy ({given_policy}) must not be provided in pod spec; priority "
            f"admission controller computed {policy} from the given PriorityClass name"
        )
        raise forbidden(PODS, name, why)
    spec["preemptionPolicy"] = policy
