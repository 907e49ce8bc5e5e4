"""ClusterRoles that take their rules from others."""

from __future__ import annotations

from muster.api.codec import Object
from muster.controllers.clusterrole_aggregation import aggregated_rules


def role(name: str, verb: str = "", labels: dict[str, str] | None = None) -> Object:
    rules = [{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}] if verb else []
    return {"metadata": {"name": name, "labels": labels or {}}, "rules": rules}


def aggregate(*selectors: Object) -> Object:
    return {
        "metadata": {"name": "all", "labels": {"a": "1"}},
        "aggregationRule": {"clusterRoleSelectors": list(selectors)},
    }


def verbs_of(whole: Object, *parts: Object) -> list[str]:
    roles = {part["metadata"]["name"]: part for part in (*parts, whole)}
    return [rule["verbs"][0] for rule in aggregated_rules(whole, roles)]


def test_rules_come_selector_by_selector_and_by_name() -> None:
    whole = aggregate({"matchLabels": {"b": "1"}}, {"matchLabels": {"a": "1"}})
    parts = [role("z", "get", {"a": "1"}), role("c", "list", {"a": "1"}), role("d", "watch", {"b": "1"})]
    assert verbs_of(whole, *parts) == ["watch", "list", "get"]


def test_a_rule_of_several_roles_is_there_once() -> None:
    whole = aggregate({"matchLabels": {"a": "1"}})
    assert verbs_of(whole, role("c", "get", {"a": "1"}), role("d", "get", {"a": "1"})) == ["get"]


def test_a_role_does_not_take_its_own_rules() -> None:
    whole = {**aggregate({"matchLabels": {"a": "1"}}), "rules": role("x", "delete")["rules"]}
    assert verbs_of(whole, role("c", "get", {"a": "1"})) == ["get"]
