"""Rename the objects of a recorded run of groups, consistently everywhere, so that nothing can hang on a name.

Which of equal nodes and pods is taken is chance, so nodes and running pods are created in any order. New names sort as
the old ones do: members that are created at once are tried in the order of their names.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from muster.api.codec import JSON, Object
from muster.api.meta import name_of

LETTERS = "bcdfghklmnpqrstvwxz"


def vary(scenario: Object, seed: int) -> Object:
    """The scenario with other names of nodes, pods, groups and budgets, and of the values of nodes' labels; nodes and
    running pods are created in another order."""
    rng = random.Random(f"{seed} {scenario['id']}")
    renamed = dict(_others(rng, _domains(scenario))) | dict(_others(rng, _names(scenario)))
    renamed |= _of_claims(scenario, renamed)
    pattern = re.compile(
        r"(?<![\w.-])(" + "|".join(re.escape(name) for name in sorted(renamed, key=len, reverse=True)) + r")(?![\w-])"
    )
    whole: Object = _rename(scenario, renamed, pattern)
    whole["id"], whole["family"] = scenario["id"], scenario["family"]
    for step in whole["steps"]:
        _shuffle(rng, step)
    return whole


def _names(scenario: Object) -> list[str]:
    """The names of objects."""
    return sorted({name_of(obj) for step in scenario["steps"] for obj in step if "metadata" in obj})


def _of_claims(scenario: Object, renamed: dict[str, str]) -> dict[str, str]:
    """New names of claims that are made for objects, which begin with theirs, and of what these names begin with."""
    found: dict[str, str] = {}
    for result in scenario["results"]:
        for name, claim in (result.get("resourceClaims") or {}).items():
            for text in (name, claim.get("generateName") or ""):
                owner = max((each for each in renamed if text.startswith(f"{each}-")), key=len, default="")
                if owner:
                    found[text] = renamed[owner] + text[len(owner) :]
    for step in scenario["steps"]:
        for action in step:
            if action.get("do") == "deleteGenerated":
                owner = max((each for each in renamed if action["name"].startswith(f"{each}-")), key=len)
                found[action["name"]] = renamed[owner] + action["name"][len(owner) :]
    return found


def _domains(scenario: Object) -> list[str]:
    """The values of labels that make topology domains, in their order, which messages keep."""
    nodes = [obj for step in scenario["steps"] for obj in step if obj.get("kind") == "Node"]
    return sorted({value for node in nodes for value in (node["metadata"].get("labels") or {}).values() if value})


def _others(rng: random.Random, names: list[str]) -> Iterator[tuple[str, str]]:
    """New names that sort as the old ones do."""
    chosen = sorted("".join(rng.choices(LETTERS, k=9)) for _ in names)
    yield from zip(names, chosen, strict=True)


def _shuffle(rng: random.Random, step: list[Object]) -> None:
    """Put the nodes, and the running pods, into another order, at the places where such objects stand."""
    for belongs in (_is_node, _is_running):
        places = [at for at, obj in enumerate(step) if belongs(obj)]
        taken = [step[at] for at in places]
        rng.shuffle(taken)
        for at, obj in zip(places, taken, strict=True):
            step[at] = obj


def _is_node(obj: Object) -> bool:
    return bool(obj.get("kind") == "Node")


def _is_running(obj: Object) -> bool:
    return bool(obj.get("kind") == "Pod" and "spec" in obj and obj["spec"].get("nodeName"))


def _rename(value: JSON, renamed: dict[str, str], pattern: re.Pattern[str]) -> JSON:
    if isinstance(value, str):
        return pattern.sub(lambda match: renamed[match.group(1)], value)
    if isinstance(value, list):
        return [_rename(item, renamed, pattern) for item in value]
    if isinstance(value, dict):
        return {
            pattern.sub(lambda match: renamed[match.group(1)], key): _rename(item, renamed, pattern)
            for key, item in value.items()
        }
    return value
