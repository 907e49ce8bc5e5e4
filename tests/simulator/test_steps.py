"""What is done to a cluster as time goes on: manifests applied again, deletions, nodes that come and go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api.codec import JSON, Object
from muster.api.manifests import Manifest, ManifestError
from muster.nodes.spec import parse_node_spec
from muster.simulator.report import report
from muster.simulator.run import Timed, simulate
from muster.simulator.steps import Deletion, NodeStep, Restart, StepError, is_step, merge_patch, read_step
from muster.simulator.world import manifests_of
from muster.testing.builders import make_group, make_job, make_node, make_pod


def _run(
    objects: list[Object], *timed: Timed, nodes: str = "count=2,nvidia.com/gpu=2", until_s: float = 3600
) -> Object:
    specs = [parse_node_spec(nodes)] if nodes else []
    return report(simulate(manifests_of(objects), timed=timed, nodes=specs, until_s=until_s))


def _apply(at_s: float, *objects: Object) -> tuple[float, list[Manifest]]:
    return at_s, manifests_of(objects)


def _pods(result: Object) -> dict[str, str | None]:
    return {pod["name"]: pod["node"] for pod in result["pods"]}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("delete pod/a", Deletion("pod", "default", "a")),
        ("delete podgroups.scheduling.k8s.io/a -n team", Deletion("podgroups.scheduling.k8s.io", "team", "a")),
        ("cordon node-1", NodeStep("cordon", "node-1")),
        ("uncordon node/node-1", NodeStep("uncordon", "node-1")),
        ("fail node-1", NodeStep("fail", "node-1")),
        ("recover node-1", NodeStep("recover", "node-1")),
        ("restart scheduler", Restart("scheduler")),
    ],
)
def test_step_is_read(text: str, want: object) -> None:
    assert is_step(text)
    assert read_step(text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("delete pod", "KIND/NAME"),
        ("delete pod/a b c d", "KIND/NAME"),
        ("delete spaceship/a", "there is no kind 'spaceship'"),
        ("cordon", "the name of a node"),
        ("restart printer", "controllers, nodes, scheduler"),
        ("fail 'node", "quotation"),
    ],
)
def test_step_that_means_nothing_is_answered_with_what_would(text: str, want: str) -> None:
    with pytest.raises(StepError, match=want):
        read_step(text)


@pytest.mark.parametrize("text", ["more.yaml", "deleted.yaml", "./cordon", "restart/a.yaml"])
def test_name_of_a_file_is_no_step(text: str) -> None:
    assert not is_step(text)


def test_object_that_is_there_is_changed() -> None:
    job = make_job(
        "j", parallelism=1, completions=3, pod=make_pod(gpu=1, annotations={"sim.muster-k8s.dev/run-seconds": "99"})
    )
    more = {**job, "spec": {**job["spec"], "parallelism": 3}}

    result = _run([job], _apply(10, more), until_s=50)

    assert sum(node is not None for node in _pods(result).values()) == 3


def test_field_that_is_no_longer_in_the_manifest_is_removed() -> None:
    taints: list[Object] = [{"key": "a", "value": "b", "effect": "NoSchedule"}]

    result = _run([make_node("n", taints=taints), make_pod("p")], _apply(10, make_node("n")), nodes="")

    assert _pods(result) == {"p": "n"}
    assert 10 < result["pods"][0]["scheduled_s"] < 12


def test_status_of_a_node_is_applied_too() -> None:
    result = _run([make_node("n"), make_pod("p", gpu=1)], _apply(10, make_node("n", gpu=1)), nodes="")

    assert _pods(result) == {"p": "n"}
    assert result["pods"][0]["scheduled_s"] > 10


def test_what_others_have_written_stays() -> None:
    pod = make_pod("p", gpu=1, labels={"a": "1"})
    again = make_pod("p", gpu=1, labels={"a": "2"})

    (found,) = _run([pod], _apply(10, again))["pods"]

    assert found["node"] is not None
    assert found["phase"] == "Running"


def test_change_that_the_server_refuses_is_named_with_its_place() -> None:
    with pytest.raises(ManifestError, match="pod updates may not change"):
        _run([make_pod("p", gpu=1)], _apply(10, make_pod("p", gpu=2)))


def test_object_given_twice_at_the_start_is_refused() -> None:
    with pytest.raises(ManifestError, match="already exists"):
        _run([make_pod("p"), make_pod("p")])


def test_deleted_object_is_gone() -> None:
    assert _run([make_pod("p")], (10, read_step("delete pod/p")))["pods"] == []


def test_pods_of_a_deleted_job_go_with_it() -> None:
    assert _run([make_job("j", pod=make_pod(gpu=1))], (5, read_step("delete job/j")))["pods"] == []


def test_deleting_what_is_not_there_says_so() -> None:
    with pytest.raises(StepError, match='pods "p" not found'):
        _run([], (10, read_step("delete pod/p")))


def test_cordoned_node_takes_nothing_until_it_is_uncordoned() -> None:
    cordon, uncordon = (read_step(f"{verb} node-0") for verb in ("cordon", "uncordon"))

    result = _run([], (1, cordon), _apply(10, make_pod("p")), (20, uncordon), nodes="1")

    assert _pods(result) == {"p": "node-0"}
    assert 20 < result["pods"][0]["scheduled_s"] < 22


def test_failed_node_loses_its_pods_and_comes_back() -> None:
    group = make_group("g", min_count=1)
    steps: list[Timed] = [(10, read_step("fail node-0")), (600, read_step("recover node-0"))]

    result = _run([group, make_pod("p", group="g")], *steps, _apply(1000, make_pod("q")), nodes="2")

    assert [eviction["pod"] for eviction in result["evictions"]] == ["default/p"]
    assert _pods(result) == {"q": "node-0"}


def test_unknown_node_cannot_fail() -> None:
    with pytest.raises(StepError, match='nodes "nowhere" not found'):
        _run([], (10, read_step("fail nowhere")))


def test_restarted_scheduler_goes_on() -> None:
    result = _run([make_pod("p")], (5, read_step("restart scheduler")), _apply(6, make_pod("q")))

    assert all(_pods(result).values())


_VALUES = st.recursive(st.integers(0, 3), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3))
_OBJECTS = st.dictionaries(st.sampled_from("abc"), _VALUES, max_size=3)


@given(_OBJECTS, _OBJECTS)
def test_patch_turns_what_was_applied_into_what_is_applied(before: Object, after: Object) -> None:
    assert _patched(before, merge_patch(before, after)) == after


def _patched(value: JSON, patch: JSON) -> JSON:
    """RFC 7386, section 2."""
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for key, item in patch.items():
        if item is None:
            result.pop(key, None)
        else:
            result[key] = _patched(result.get(key), item)
    return result
