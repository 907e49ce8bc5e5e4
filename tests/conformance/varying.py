"""Rename the objects of a scenario, consistently in steps and states, so that nothing can hang on a name."""

from __future__ import annotations

import random
import re

from muster.api.codec import JSON, Object

NODES = ("n1", "n2", "n3", "n4", "n5", "n6")
WORDS = {"a", "ratio"}
"""Names that are also words of messages are left alone."""

KINDS = (
    "Job",
    "Pod",
    "ConfigMap",
    "Node",
    "CronJob",
    "DaemonSet",
    "Deployment",
    "LimitRange",
    "PodDisruptionBudget",
    "ReplicaSet",
    "ResourceQuota",
    "StatefulSet",
)
"""The kinds of which objects get other names."""

_REFERRED = (*KINDS, "Workload", "PodGroup", "Service")
BEFORE = "|".join([r"(?<![\w./<-])", r"(?<=>[/-])", *(f"(?<={kind}/)" for kind in _REFERRED)])
"""What may stand before a name: nothing that it could be a part of, a mark such as `<ns>/`, or its kind."""


def vary(scenario: Object, seed: int) -> Object:
    """The scenario with other names of Jobs, Pods, containers and nodes. `nodes` maps recorded to new node names."""
    rng = random.Random(f"{seed} {scenario['id']}")
    names = sorted(_names(scenario))
    renamed = {name: _other(rng, name) for name in (*names, *NODES)}
    renamed |= {f"{claim}-{name}": f"{claim}-{renamed[name]}" for claim, name in _claims(scenario)}
    pattern = re.compile(
        f"(?:{BEFORE})(" + "|".join(re.escape(name) for name in sorted(renamed, key=len, reverse=True)) + r")(?![\w./])"
    )
    whole: Object = _rename(scenario, renamed, pattern)
    whole["id"], whole["family"], whole["cluster"] = scenario["id"], scenario["family"], scenario["cluster"]
    whole["nodes"] = {name: renamed[name] for name in NODES}
    return whole


def _names(scenario: Object) -> set[str]:
    """Names of objects and containers that steps create."""
    found: set[str] = set()
    for step in scenario["steps"]:
        for action in step["do"]:
            obj = action.get("create") if isinstance(action, dict) else None
            if not isinstance(obj, dict) or obj.get("kind") not in KINDS:
                continue
            found.add(obj["metadata"]["name"])
            spec = _pod_spec(obj)
            if spec is None:
                continue
            found |= {container["name"] for container in (spec["containers"] + spec.get("initContainers", []))}
    return found - WORDS


def _claims(scenario: Object) -> set[tuple[str, str]]:
    """The names of claim templates, each with that of its StatefulSet."""
    made = [action["create"] for step in scenario["steps"] for action in step["do"] if "create" in action]
    return {
        (template["metadata"]["name"], obj["metadata"]["name"])
        for obj in made
        if isinstance(obj, dict)
        for template in (obj.get("spec") or {}).get("volumeClaimTemplates") or ()
    }


def _pod_spec(obj: Object) -> Object | None:
    """The spec of a pod, or of the pods that an object makes."""
    spec: Object = obj.get("spec") or {}
    if obj["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    spec = (spec.get("template") or {}).get("spec") or spec
    return spec if "containers" in spec else None


def _other(rng: random.Random, name: str) -> str:
    """Another name of the same length class: long names stay as long, since their length matters."""
    letters = "bcdfghklmnpqrstvwxz"
    length = len(name) if len(name) > 20 else rng.randint(5, 9)
    return "".join(rng.choice(letters) for _ in range(length))


def _rename(value: JSON, renamed: dict[str, str], pattern: re.Pattern[str]) -> JSON:
    if isinstance(value, str):
        return pattern.sub(lambda match: renamed[match.group(1)], value)
    if isinstance(value, list):
        return [_rename(item, renamed, pattern) for item in value]
    if isinstance(value, dict):
        return {
            _rename(key, renamed, pattern) if "#" in key else key: _rename(item, renamed, pattern)
            for key, item in value.items()
        }
    return value
