"""Which ProvisioningRequests are made and removed, and what is in them."""

from __future__ import annotations

import pytest

from muster.api.codec import Object
from muster.clock import rfc3339
from muster.scheduler.provisioning.objects import (
    CLASS_KEY,
    CONSUMES_KEY,
    PodSet,
    ProvisioningTerms,
    State,
    consumes_another,
    parse_class,
    pod_marks,
    pod_sets,
    request_name,
    request_objects,
    state_of,
)
from muster.scheduler.provisioning.planning import (
    FIRST_PAUSE_S,
    LET_GO_S,
    MAX_PAUSE_S,
    SETTLE_S,
    Make,
    Remove,
    Want,
    next_steps,
    pause_s,
)
from muster.testing import make_pod

TERMS = ProvisioningTerms("check-capacity.autoscaling.x-k8s.io")
OWNER: Object = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": "train", "uid": "u1"}
ENTITY = "group:default/train"


def sets(count: int = 4, cpu: str = "1") -> tuple[PodSet, ...]:
    return pod_sets(("same", make_pod(f"p-{index}", cpu=cpu)) for index in range(count))


def want(*, count: int = 4, since_s: float = 0.0, owner: Object = OWNER) -> Want:
    return Want(ENTITY, "default", owner, sets(count), since_s)


def request(of: Want, *said: str, at_s: float = 0.0, attempt: int = 1) -> Object:
    _, made = request_objects(of.entity, of.namespace, of.owner, of.sets, TERMS, attempt=attempt)
    conditions = [{"type": each, "status": "True", "lastTransitionTime": rfc3339(at_s)} for each in said]
    return {**made, "status": {"conditions": conditions}}


def steps(*wants: Want, idle: float | None = None, requests: tuple[Object, ...] = (), now: float) -> list[str]:
    found = next_steps(
        {each.entity: each for each in wants}, {} if idle is None else {ENTITY: idle}, requests, {ENTITY: 1}, now
    )
    return ["make" if isinstance(each, Make) else "remove" for each in found.now]


def test_a_request_is_made_once_room_was_lacking_for_a_moment() -> None:
    found = next_steps({ENTITY: want(since_s=10)}, {}, (), {}, 10.0)
    assert (found.now, found.again_s) == ((), 10 + SETTLE_S)
    found = next_steps({ENTITY: want(since_s=10)}, {}, (), {}, 10 + SETTLE_S)
    assert found.now == (Make(want(since_s=10), 1),)


def test_a_request_that_stands_is_left_alone() -> None:
    for said in ((), ("Accepted",), ("Accepted", "Provisioned")):
        assert steps(want(), requests=(request(want(), *said),), now=1e6) == []


def test_when_more_pods_are_wanted_another_request_takes_its_place() -> None:
    more = want(count=6, since_s=100)
    assert steps(more, requests=(request(want()),), now=100) == []
    assert steps(more, requests=(request(want()),), now=100 + SETTLE_S) == ["remove"]
    assert steps(more, now=100 + SETTLE_S) == ["make"]


def test_what_was_provisioned_is_given_time_to_be_used() -> None:
    rest, provided = want(count=2, since_s=105), request(want(), "Provisioned", at_s=100)
    assert steps(rest, requests=(provided,), now=100 + FIRST_PAUSE_S - 1) == []
    assert steps(rest, requests=(provided,), now=100 + FIRST_PAUSE_S) == ["remove"]


@pytest.mark.parametrize("said", ["Failed", "BookingExpired", "CapacityRevoked"])
def test_one_that_was_given_up_is_made_anew_after_a_pause_that_doubles(said: str) -> None:
    for attempt, pause in ((1, 60.0), (2, 120.0), (10, MAX_PAUSE_S)):
        assert pause_s(attempt) == pause
        over = request(want(), "Accepted", said, at_s=1000, attempt=attempt)
        assert steps(want(), requests=(over,), now=1000 + pause - 1) == []
        assert steps(want(), requests=(over,), now=1000 + pause) == ["remove"]
    found = next_steps({ENTITY: want()}, {}, (), {ENTITY: 3}, 5000.0)
    assert found.now == (Make(want(), 4),)


def test_a_request_goes_a_moment_after_it_is_not_needed_any_more() -> None:
    assert steps(idle=50.0, requests=(request(want()),), now=50 + LET_GO_S - 1) == []
    assert steps(idle=50.0, requests=(request(want()),), now=50 + LET_GO_S) == ["remove"]
    # Of an entity about which nothing is known yet, after a restart, it stays.
    assert steps(requests=(request(want()),), now=1e6) == []


def test_the_request_of_an_owner_of_the_same_name_that_is_gone_gives_way() -> None:
    again = want(owner={**OWNER, "uid": "u2"})
    assert steps(again, requests=(request(want()),), now=10) == ["remove"]


def test_nothing_is_made_while_the_last_one_is_being_deleted() -> None:
    leaving = request(want(count=3))
    leaving["metadata"]["deletionTimestamp"] = rfc3339(1)
    assert steps(want(), requests=(leaving,), now=1e6) == []


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ((), State.ASKED),
        (("Accepted",), State.ACCEPTED),
        (("Accepted", "Provisioned"), State.PROVISIONED),
        (("Accepted", "Provisioned", "BookingExpired"), State.EXPIRED),
        (("Accepted", "Provisioned", "CapacityRevoked"), State.REVOKED),
        (("Accepted", "Failed"), State.FAILED),
    ],
)
def test_what_ends_a_request_counts_before_what_it_promised(said: tuple[str, ...], state: State) -> None:
    assert state_of(request(want(), *said)) == state


def test_pods_of_a_gang_are_counted_by_what_scheduling_sees() -> None:
    workers = [make_pod(f"w-{at}", gpu=1, labels={"app": "train", "index": str(at)}) for at in range(3)]
    for at, pod in enumerate(workers):
        pod["spec"]["nodeSelector"] = {"pool": "gpu"}
        pod["spec"]["containers"][0]["env"] = [{"name": "RANK", "value": str(at)}]
        pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "token", "mountPath": "/t"}]
        token, data = {"name": "token", "projected": {}}, {"name": "data", "persistentVolumeClaim": {"claimName": "d"}}
        pod["spec"]["volumes"] = [token, data]
    found = pod_sets([("w", pod) for pod in workers] + [("l", make_pod("l-0", cpu="1"))])
    assert sorted(each.count for each in found) == [1, 3]
    (worker,) = (each.template for each in found if each.count == 3)
    assert worker["metadata"] == {"labels": {"app": "train"}}
    assert worker["spec"]["nodeSelector"] == {"pool": "gpu"}
    assert worker["spec"]["volumes"] == [data]
    assert set(worker["spec"]["containers"][0]) == {"image", "name", "resources"}


def test_objects_name_each_other_and_go_with_their_owner() -> None:
    terms = ProvisioningTerms("best-effort-atomic-scale-up.autoscaling.x-k8s.io", (("ValidUntilSeconds", "600"),))
    found = pod_sets([("a", make_pod("a", cpu="1")), ("b", make_pod("b", cpu="2"))])
    templates, made = request_objects(ENTITY, "default", OWNER, found, terms)
    named = [each["podTemplateRef"]["name"] for each in made["spec"]["podSets"]]
    assert named == [each["metadata"]["name"] for each in templates]
    assert {each["kind"] for each in templates} == {"PodTemplate"}
    for obj in (made, *templates):
        assert obj["metadata"]["ownerReferences"] == [OWNER]
        assert obj["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "muster"}
    assert made["spec"]["parameters"] == {"ValidUntilSeconds": "600"}
    assert pod_marks(made["metadata"]["name"], terms) == {
        CONSUMES_KEY: made["metadata"]["name"],
        CLASS_KEY: terms.class_name,
    }


def test_names_fit_however_long_those_of_owners_are() -> None:
    owner = {**OWNER, "name": "a" * 190 + "." * 10 + "b" * 50}
    templates, made = request_objects(ENTITY, "default", owner, sets(), TERMS)
    assert len(templates[0]["metadata"]["name"]) <= 253
    assert ".-" not in made["metadata"]["name"]
    assert request_name(ENTITY, OWNER) != request_name(ENTITY, {**OWNER, "uid": "u2"})


def test_pods_that_somebody_else_has_asked_for_are_left_to_them() -> None:
    name = request_name(ENTITY, OWNER)
    assert not consumes_another([make_pod(), make_pod(annotations={CONSUMES_KEY: name})], name)
    assert consumes_another([make_pod(), make_pod(annotations={CONSUMES_KEY: "of-kueue"})], name)


def test_classes_of_cluster_autoscaler_need_no_suffix() -> None:
    assert parse_class("check-capacity") == "check-capacity.autoscaling.x-k8s.io"
    assert parse_class("queued-provisioning.example.io") == "queued-provisioning.example.io"
    for text in ("", "Check", "a..b", "x" * 254):
        with pytest.raises(ValueError, match="is not the name of a class"):
            parse_class(text)


def test_removals_name_what_they_remove() -> None:
    old = request(want())
    found = next_steps({}, {ENTITY: 0.0}, (old,), {}, 100.0)
    assert found.now == (Remove(old),)
