"""A PodGroup in use is kept while it is being deleted."""

from __future__ import annotations

import pytest

from muster.api.codec import Object
from muster.api.resource import POD_GROUPS, PODS
from muster.controllers.action import Patch
from muster.controllers.podgroup_protection import FINALIZER, PodGroupProtection
from muster.testing.builders import make_group, make_pod
from muster.testing.controller_state import ControllerState


def dying_group() -> Object:
    group = make_group("g", min_count=2)
    group["metadata"].update(finalizers=[FINALIZER, "other"], deletionTimestamp="2026-01-01T00:00:00Z")
    return group


@pytest.mark.parametrize(
    ("phase", "group", "want_kept"),
    [("Running", "g", True), ("Pending", "g", True), ("Succeeded", "g", False), ("Running", "h", False)],
)
def test_finalizer_goes_when_no_active_pod_belongs_to_the_group(phase: str, group: str, want_kept: bool) -> None:
    state = ControllerState(PODS, POD_GROUPS)
    state.put(POD_GROUPS, dying_group())
    pod = make_pod(group=group)
    pod["status"]["phase"] = phase
    state.put(PODS, pod)
    actions = PodGroupProtection().reconcile("default/g", state, 0.0).actions
    if want_kept:
        assert actions == ()
    else:
        assert isinstance(actions[0], Patch) and isinstance(actions[0].patch, dict)
        assert actions[0].patch["metadata"]["finalizers"] == ["other"]


def test_pods_of_groups_that_stay_ask_for_nothing() -> None:
    state = ControllerState(PODS, POD_GROUPS)
    state.put(POD_GROUPS, make_group("g"))
    assert list(PodGroupProtection().requests(PODS, state.put(PODS, make_pod(group="g"))[0], state)) == []


def test_end_of_a_member_asks_for_its_dying_group() -> None:
    state = ControllerState(PODS, POD_GROUPS)
    state.put(POD_GROUPS, dying_group())
    pod = make_pod(group="g")
    state.put(PODS, pod)
    requests = PodGroupProtection().requests(PODS, state.remove(PODS, pod)[0], state)
    assert [request.key for request in requests] == ["default/g"]
