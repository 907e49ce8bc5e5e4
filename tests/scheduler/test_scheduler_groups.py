from __future__ import annotations

import pytest

from muster.api.codec import Object
from muster.api.groups import POD_GROUP_KEY, GroupRef, GroupTerms, find_terms, group_of, terms_of
from muster.testing import make_group, make_pod

WORKLOAD: Object = {
    "metadata": {"name": "w", "namespace": "default"},
    "spec": {"podGroupTemplates": [{"name": "t", "schedulingPolicy": {"gang": {"minCount": 3}}}]},
}


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(make_pod(), None, id="plain"),
        pytest.param(make_pod(group="g"), GroupRef("default", "g"), id="field"),
        pytest.param(
            make_pod(spec={"workloadRef": {"name": "w", "podGroup": "t"}}),
            GroupRef("default", "w/t", "w", "t"),
            id="workload",
        ),
        pytest.param(
            make_pod(spec={"workloadRef": {"name": "w", "podGroup": "t", "podGroupReplicaKey": "r"}}),
            GroupRef("default", "w/t/r", "w", "t"),
            id="replica",
        ),
        pytest.param(
            make_pod(annotations={POD_GROUP_KEY: "a"}, labels={POD_GROUP_KEY: "b"}),
            GroupRef("default", "a"),
            id="annotation before label",
        ),
        pytest.param(make_pod(labels={POD_GROUP_KEY: "b"}), GroupRef("default", "b"), id="label"),
        pytest.param(make_pod(group="g", labels={POD_GROUP_KEY: "b"}), GroupRef("default", "g"), id="field first"),
    ],
)
def test_group_of_a_pod(pod: Object, want: GroupRef | None) -> None:
    assert group_of(pod) == want


def test_terms_of_gang_and_basic_groups() -> None:
    gang = make_group(min_count=4, priority=7, schedulingConstraints={"topology": [{"key": "rack"}]})
    assert terms_of(gang["spec"]) == GroupTerms(4, True, "rack", 7)
    assert terms_of(make_group(min_count=None)["spec"]) == GroupTerms()


def test_terms_are_unknown_while_group_workload_or_template_is_missing() -> None:
    groups, workloads = {"default/g": make_group("g", min_count=2)}, {"default/w": WORKLOAD}
    assert find_terms(GroupRef("default", "g"), groups, workloads) == GroupTerms(2, True)
    assert find_terms(GroupRef("other", "g"), groups, workloads) is None
    assert find_terms(GroupRef("default", "w/t/r", "w", "t"), groups, workloads) == GroupTerms(3, True)
    assert find_terms(GroupRef("default", "w/u", "w", "u"), groups, workloads) is None
    assert find_terms(GroupRef("default", "v/t", "v", "t"), groups, workloads) is None
