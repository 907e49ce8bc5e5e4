"""podFailurePolicy and successPolicy of Jobs: which rule matches.

Source of the rules: kube-controller-manager `pkg/controller/job/{pod_failure_policy,success_policy}.go`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct

from muster.api.codec import Object
from muster.api.meta import name_of, namespace_of
from muster.controllers.batch.job_indexes import read_indexes


class Verdict(Struct, frozen=True):
    """What the failure policy says about one failed pod. `message` is set if the Job fails."""

    action: str = "Count"
    message: str = ""

    @property
    def counts(self) -> bool:
        """Whether the failure counts towards limits."""
        return self.action != "Ignore"


def judge_failure(rules: Iterable[Object] | None, pod: Object) -> Verdict:
    """The verdict of the first rule that matches; without one the failure counts."""
    for position, rule in enumerate(rules or ()):
        cause = _matching_cause(rule, pod)
        if cause:
            action = rule["action"]
            message = f"{cause} matching {action} rule at index {position}" if action == "FailJob" else ""
            return Verdict(action, message)
    return Verdict()


def _matching_cause(rule: Object, pod: Object) -> str:
    """What of the pod matches the rule, as words; "" if nothing does."""
    who = f"{namespace_of(pod)}/{name_of(pod)}"
    status = pod.get("status") or {}
    if rule.get("onExitCodes"):
        for entry in [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]:
            code = ((entry.get("state") or {}).get("terminated") or {}).get("exitCode")
            if code and _matches_code(rule["onExitCodes"], entry["name"], code):
                return f"Container {entry['name']} for pod {who} failed with exit code {code}"
        return ""
    for entry in status.get("conditions") or ():
        for wanted in rule.get("onPodConditions") or ():
            if (entry["type"], entry["status"]) == (wanted["type"], wanted.get("status", "True")):
                return f"Pod {who} has condition {entry['type']}"
    return ""


def _matches_code(requirement: Object, container: str, code: int) -> bool:
    """Whether an exit code, which is not 0, meets a requirement."""
    if requirement.get("containerName") not in (None, container):
        return False
    listed = code in requirement["values"]
    return bool(listed) if requirement["operator"] == "In" else not listed


def matching_success_rule(rules: Iterable[Object] | None, succeeded: Collection[int], completions: int) -> int | None:
    """The position of the first success rule that the succeeded indexes meet."""
    for position, rule in enumerate(rules or ()):
        named = rule.get("succeededIndexes")
        required = read_indexes(named, completions) if named is not None else None
        counting = len(succeeded if required is None else required & frozenset(succeeded))
        needed = rule.get("succeededCount")
        if needed is None:
            needed = len(required) if required is not None else completions
        if succeeded and counting >= needed:
            return position
    return None
