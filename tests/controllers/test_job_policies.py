from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_objects import pod_of, stored_job

from muster.api.codec import Object
from muster.controllers.batch.job_policies import judge_failure, matching_success_rule

JOB = stored_job()


def failed_pod(*codes: int, condition: str = "") -> Object:
    containers = [{"name": f"c{n}", "state": {"terminated": {"exitCode": code}}} for n, code in enumerate(codes)]
    conditions = [{"type": condition, "status": "True"}] if condition else []
    return pod_of(JOB, "p", "Failed", containerStatuses=containers, conditions=conditions)


def on_codes(action: str, operator: str, *values: int, container: str | None = None) -> Object:
    requirement: Object = {"operator": operator, "values": list(values)}
    if container is not None:
        requirement["containerName"] = container
    return {"action": action, "onExitCodes": requirement}


def on_condition(action: str, type_: str) -> Object:
    return {"action": action, "onPodConditions": [{"type": type_, "status": "True"}]}


@pytest.mark.parametrize(
    ("rules", "pod", "want"),
    [
        ([], failed_pod(1), "Count"),
        ([on_codes("FailJob", "In", 2)], failed_pod(2), "FailJob"),
        ([on_codes("FailJob", "In", 2)], failed_pod(3), "Count"),
        ([on_codes("Ignore", "NotIn", 2)], failed_pod(3), "Ignore"),
        ([on_codes("Ignore", "NotIn", 2)], failed_pod(0), "Count"),
        ([on_codes("FailJob", "In", 2, container="c1")], failed_pod(2, 0), "Count"),
        ([on_codes("FailJob", "In", 2, container="c1")], failed_pod(0, 2), "FailJob"),
        ([on_condition("Ignore", "DisruptionTarget")], failed_pod(1, condition="DisruptionTarget"), "Ignore"),
        ([on_codes("FailIndex", "In", 1), on_codes("FailJob", "In", 1)], failed_pod(1), "FailIndex"),
    ],
)
def test_first_matching_rule_decides(rules: list[Object], pod: Object, want: str) -> None:
    assert judge_failure(rules, pod).action == want


def test_message_of_a_failed_job_names_container_code_and_rule() -> None:
    rules = [on_codes("Count", "In", 9), on_codes("FailJob", "In", 2)]
    verdict = judge_failure(rules, failed_pod(0, 2))
    assert verdict.message == "Container c1 for pod default/p failed with exit code 2 matching FailJob rule at index 1"


@pytest.mark.parametrize(
    ("rules", "succeeded", "want"),
    [
        ([{"succeededIndexes": "0,2"}], {0}, None),
        ([{"succeededIndexes": "0,2"}], {0, 2}, 0),
        ([{"succeededCount": 2}], {5, 7}, 0),
        ([{"succeededIndexes": "0-3", "succeededCount": 2}], {1, 9}, None),
        ([{"succeededIndexes": "0-3", "succeededCount": 2}], {1, 3}, 0),
        ([{"succeededIndexes": "0,1"}, {"succeededCount": 1}], {4}, 1),
        ([{"succeededIndexes": "0"}], set(), None),
        (None, {0, 1}, None),
    ],
)
def test_success_rule_is_met_by_its_indexes(rules: list[Object] | None, succeeded: set[int], want: int | None) -> None:
    assert matching_success_rule(rules, succeeded, 10) == want


@given(st.frozensets(st.integers(0, 9)), st.frozensets(st.integers(0, 9)), st.integers(1, 10))
def test_more_successes_never_unmeet_a_rule(succeeded: frozenset[int], more: frozenset[int], count: int) -> None:
    rules = [{"succeededIndexes": "2-8", "succeededCount": count}]
    if matching_success_rule(rules, succeeded, 10) is not None:
        assert matching_success_rule(rules, succeeded | more, 10) is not None
