"""Laws of roles: what rules allow, what covers what."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muster.api.codec import Object
from muster.apiserver.authorization.attributes import Attributes, attributes_of
from muster.apiserver.authorization.escalation import problem_with
from muster.apiserver.authorization.rules import allows, decide
from muster.apiserver.request import ApiRequest, User
from muster.apiserver.store.memory import MemoryStore

VERBS, GROUPS = st.sampled_from(["get", "list", "create", "*"]), st.sampled_from(["", "apps", "*"])
RESOURCES = st.sampled_from(["pods", "pods/log", "*/log", "services", "*"])
NAMES = st.sampled_from(["a", "b"])
RULES = st.fixed_dictionaries(
    {
        "verbs": st.lists(VERBS, min_size=1, max_size=3),
        "apiGroups": st.lists(GROUPS, min_size=1, max_size=2),
        "resources": st.lists(RESOURCES, min_size=1, max_size=3),
        "resourceNames": st.lists(NAMES, max_size=2),
    }
)
ASKED = st.builds(
    Attributes,
    st.sampled_from(["get", "list", "create", "delete"]),
    st.just(True),
    st.sampled_from(["", "apps", "batch"]),
    st.sampled_from(["pods", "services"]),
    st.sampled_from(["", "log", "status"]),
    st.just("team"),
    st.sampled_from(["", "a", "b", "c"]),
)
USER = User("jane", ("devs",))


def store_with(rules: list[Object]) -> MemoryStore:
    store = MemoryStore()
    store.put("/clusterroles/r", {"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": rules})
    reference = {"kind": "ClusterRole", "name": "r"}
    subjects = [{"kind": "Group", "name": "devs"}]
    binding: Object = {"kind": "ClusterRoleBinding", "metadata": {"name": "b"}, "roleRef": reference}
    store.put("/clusterrolebindings/b", {**binding, "subjects": subjects})
    return store


@given(st.lists(RULES, max_size=3), ASKED)
def test_a_user_may_do_what_one_of_the_rules_allows(rules: list[Object], asked: Attributes) -> None:
    assert decide(store_with(rules), USER, asked).is_allowed == any(allows(rule, asked) for rule in rules)


@given(st.lists(RULES, max_size=3), ASKED)
def test_nobody_else_may(rules: list[Object], asked: Attributes) -> None:
    assert not decide(store_with(rules), User("joe", ("others",)), asked).is_allowed


@given(st.lists(RULES, max_size=3), RULES, ASKED)
def test_who_may_grant_a_rule_may_do_all_that_it_allows(held: list[Object], rule: Object, asked: Attributes) -> None:
    if not problem_with(store_with(held), USER, "", [rule]) and allows(rule, asked):
        assert any(allows(each, asked) for each in held)


@given(st.lists(RULES, min_size=1, max_size=3))
def test_all_that_is_held_can_be_granted(held: list[Object]) -> None:
    assert problem_with(store_with(held), USER, "", held) == ""


@given(
    st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "FOO"]),
    st.text("/apisv1namespaces.*%watch ", max_size=40),
)
def test_every_path_asks_for_something(method: str, path: str) -> None:
    attributes = attributes_of(ApiRequest(method, "/" + path))
    assert attributes.is_resource == bool(attributes.resource)
