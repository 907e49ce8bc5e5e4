"""What is used of quotas."""

from __future__ import annotations

from muster.api.codec import Object
from muster.api.resource import CONFIG_MAPS, PODS, RESOURCE_QUOTAS, Resource
from muster.client.informer import Change
from muster.controllers.action import Update
from muster.controllers.kinds import Kinds
from muster.controllers.quota import REPLENISH_S, QuotaController
from muster.testing.builders import make_pod
from muster.testing.controller_state import ControllerState

KEY = "default/q"
KINDS = Kinds((CONFIG_MAPS, PODS), {})


def quota(hard: dict[str, str], status: Object | None = None) -> Object:
    return {
        "metadata": {"name": "q", "namespace": "default", "uid": "q"},
        "spec": {"hard": hard},
        "status": status or {},
    }


def state_of(obj: Object, *pods: Object) -> ControllerState:
    state = ControllerState(RESOURCE_QUOTAS, PODS, CONFIG_MAPS)
    state.put(RESOURCE_QUOTAS, obj)
    state.put(PODS, *pods)
    return state


def requests(resource: Resource, change: Change, state: ControllerState) -> list[float]:
    return [request.after_s for request in QuotaController(KINDS).requests(resource, change, state)]


def test_use_is_summed_over_what_the_quota_names() -> None:
    finished = make_pod("done", cpu="1")
    finished["status"]["phase"] = "Failed"
    hard = {"pods": "5", "requests.cpu": "4", "configmaps": "1"}
    state = state_of(quota(hard), make_pod("a", cpu="500m"), make_pod("b", cpu="700m"), finished)
    result = QuotaController(KINDS).reconcile(KEY, state, 0.0)
    (update,) = result.actions
    assert isinstance(update, Update) and result.periodic
    used = {"configmaps": "0", "pods": "2", "requests.cpu": "1200m"}
    assert update.object["status"] == {"hard": hard, "used": used}


def test_right_status_is_not_written_again() -> None:
    obj = quota({"pods": "5"}, {"hard": {"pods": "5"}, "used": {"pods": "0"}})
    assert not QuotaController(KINDS).reconcile(KEY, state_of(obj), 0.0).actions


def test_only_what_gives_back_makes_a_quota_be_counted() -> None:
    state = state_of(quota({"pods": "5"}))
    pod, ended = make_pod(), make_pod()
    ended["status"]["phase"] = "Succeeded"
    assert requests(PODS, Change("ADDED", None, pod), state) == []
    assert requests(PODS, Change("MODIFIED", pod, ended), state) == [REPLENISH_S]
    assert requests(PODS, Change("DELETED", pod, None), state) == [REPLENISH_S]
    assert (
        requests(CONFIG_MAPS, Change("DELETED", {"metadata": {"name": "c", "namespace": "default"}}, None), state) == []
    )
