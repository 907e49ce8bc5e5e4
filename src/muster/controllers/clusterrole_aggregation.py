"""clusterrole-aggregation-controller: fills the rules of ClusterRoles with an aggregationRule from those they select.

Source of the rules: kube-controller-manager `pkg/controller/clusterroleaggregation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster.api.codec import Object, Objects
from muster.api.meta import name_of
from muster.api.resource import CLUSTER_ROLES, Resource
from muster.api.selectors import SelectorError, label_selector
from muster.client.informer import Change
from muster.controllers.action import Patch, Result
from muster.controllers.runner import Request
from muster.controllers.state import State

WRITTEN = "written"


class ClusterRoleAggregation:
    """Keys are the names of ClusterRoles."""

    name = "clusterrole-aggregation-controller"
    resources: tuple[Resource, ...] = (CLUSTER_ROLES,)

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        # Any role may be a part of any aggregate.
        return [Request(name_of(role)) for role in state[CLUSTER_ROLES].all() if role.get("aggregationRule")]

    def reconcile(self, key: str, state: State, now: float) -> Result:
        role = state[CLUSTER_ROLES].get(key)
        if role is None or not role.get("aggregationRule"):
            return Result()
        rules = aggregated_rules(role, {name_of(one): one for one in state[CLUSTER_ROLES].all()})
        if not rules and state.memory(key) is None:
            return Result()  # what somebody else wrote stays until there is something to put in its place
        if rules == (role.get("rules") or []):
            return Result(memory=WRITTEN)
        return Result((Patch(CLUSTER_ROLES, "", key, {"rules": rules}),), memory=WRITTEN)


def aggregated_rules(role: Object, roles: Mapping[str, Object]) -> Objects:
    """The rules of all roles that the role selects: selector by selector, by name, each rule once."""
    rules: Objects = []
    for selector in role["aggregationRule"].get("clusterRoleSelectors") or ():
        try:
            matches = label_selector(selector).matches
        except SelectorError:
            continue
        for name in sorted(roles):
            if name != name_of(role) and matches(roles[name]["metadata"].get("labels")):
                rules += [rule for rule in roles[name].get("rules") or () if rule not in rules]
    return rules
