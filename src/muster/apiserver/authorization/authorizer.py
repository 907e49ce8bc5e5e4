"""The authorizers that a server was started with, asked one after the other.

Source: kube-apiserver `--authorization-mode`.
"""

from __future__ import annotations

from collections.abc import Callable

from muster.api.codec import Object, Objects
from muster.apiserver.authorization import nodes, rules
from muster.apiserver.authorization.attributes import Attributes
from muster.apiserver.authorization.rules import Decision
from muster.apiserver.options import Mode
from muster.apiserver.request import User
from muster.apiserver.store.protocol import Store

Decide = Callable[[User, Attributes], Decision]

DENY_REASON = "Everything is forbidden."


def authorizer(modes: tuple[Mode, ...], store: Store) -> Decide:
    """The function that decides by these modes; the first that allows wins, and nobody but the store is asked."""

    def decide(user: User, attributes: Attributes) -> Decision:
        reasons: list[str] = []
        for mode in modes:
            decision = _decided(mode, store, user, attributes)
            if decision.is_allowed:
                return decision
            if decision.reason:
                reasons.append(decision.reason)
        return Decision(False, "\n".join(reasons))

    return decide


def _decided(mode: Mode, store: Store, user: User, attributes: Attributes) -> Decision:
    if mode == "RBAC":
        return rules.decide(store, user, attributes)
    if mode == "Node":
        return nodes.decide(store, user, attributes)
    return Decision(True) if mode == "AlwaysAllow" else Decision(False, DENY_REASON)


def rules_for(modes: tuple[Mode, ...], store: Store, user: User, namespace: str) -> Object:
    """What a user may do in a namespace, as the status of a SelfSubjectRulesReview."""
    resource_rules: Objects = []
    other_rules: Objects = []
    errors: list[str] = []
    if "AlwaysAllow" in modes:
        resource_rules.append({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})
        other_rules.append({"verbs": ["*"], "nonResourceURLs": ["*"]})
    for grant in rules.grants(store, user, namespace) if "RBAC" in modes else ():
        if grant.error:
            errors.append(grant.error)
        for rule in grant.rules:
            (other_rules if rule.get("nonResourceURLs") else resource_rules).append(rule)
    status: Object = {"resourceRules": resource_rules, "nonResourceRules": other_rules, "incomplete": False}
    if errors:
        status["evaluationError"] = rules.aggregate(errors)
    return status
