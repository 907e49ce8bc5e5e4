"""Tables: what `kubectl get` shows of each kind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api.codec import Object
from muster.apiserver.columns import human_duration, selector_text, since
from muster.apiserver.tables import columns_of, table
from muster.clock import SIMULATION_EPOCH_S, rfc3339
from muster.testing.builders import make_group, make_job, make_node, make_pod

NOW = SIMULATION_EPOCH_S


def cells(group: str, kind: str, obj: Object) -> Object:
    """The cells of one object by column name."""
    columns = columns_of(group, kind)
    row = table(obj, columns, now=NOW)["rows"][0]
    return dict(zip((column.name for column in columns), row["cells"], strict=True))


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (-5, "<invalid>"),
        (-0.5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (185, "3m5s"),
        (600, "10m"),
        (3600 * 2 + 60, "121m"),
        (3600 * 3 + 60, "3h1m"),
        (3600 * 9, "9h"),
        (3600 * 50, "2d2h"),
        (86400 * 10, "10d"),
        (86400 * 800, "2y70d"),
        (86400 * 3650, "10y"),
    ],
)
def test_durations_read_as_people_write_them(seconds: float, want: str) -> None:
    assert human_duration(seconds) == want


@given(st.integers(0, 10**9))
def test_durations_are_short(seconds: int) -> None:
    assert 2 <= len(human_duration(seconds)) <= 7


def test_age_is_the_time_since_creation() -> None:
    pod = make_pod()
    pod["metadata"]["creationTimestamp"] = rfc3339(NOW - 90)
    assert cells("", "Pod", pod)["Age"] == "90s"
    assert since(None, NOW) == "<unknown>"


def container(state: Object, *, ready: bool = False, restarts: int = 0, ended: str = "") -> Object:
    last = {"terminated": {"finishedAt": ended}} if ended else {}
    return {"name": "main", "ready": ready, "restartCount": restarts, "state": state, "lastState": last}


RUNNING = container({"running": {}}, ready=True)


@pytest.mark.parametrize(
    ("status", "want_status", "want_ready", "want_restarts"),
    [
        ({"phase": "Pending"}, "Pending", "0/1", "0"),
        ({"phase": "Running", "containerStatuses": [RUNNING]}, "Running", "1/1", "0"),
        (
            {
                "phase": "Running",
                "containerStatuses": [
                    container({"waiting": {"reason": "CrashLoopBackOff"}}, restarts=3, ended=rfc3339(NOW - 30))
                ],
            },
            "CrashLoopBackOff",
            "0/1",
            "3 (30s ago)",
        ),
        (
            {"phase": "Failed", "containerStatuses": [container({"terminated": {"exitCode": 3}})]},
            "ExitCode:3",
            "0/1",
            "0",
        ),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted", "0/1", "0"),
        (
            {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
            },
            "SchedulingGated",
            "0/1",
            "0",
        ),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [{"name": "init", "restartCount": 0, "state": {"waiting": {}}}],
            },
            "Init:0/0",
            "0/1",
            "0",
        ),
    ],
)
def test_status_of_pods(status: Object, want_status: str, want_ready: str, want_restarts: str) -> None:
    pod = {**make_pod(), "status": status}
    shown = cells("", "Pod", pod)
    assert (shown["Status"], shown["Ready"], shown["Restarts"]) == (want_status, want_ready, want_restarts)


def test_deleted_pod_is_terminating() -> None:
    pod = make_pod(node="n1")
    pod["metadata"]["deletionTimestamp"] = rfc3339(NOW)
    assert cells("", "Pod", pod)["Status"] == "Terminating"
    assert cells("", "Pod", pod)["Node"] == "n1"


def test_sidecars_count_as_containers() -> None:
    pod = make_pod(spec={"initContainers": [{"name": "side", "restartPolicy": "Always"}]})
    side = {"name": "side", "started": True, "ready": True, "restartCount": 0, "state": {"running": {}}}
    pod["status"] = {"phase": "Running", "initContainerStatuses": [side], "containerStatuses": [RUNNING]}
    assert (cells("", "Pod", pod)["Ready"], cells("", "Pod", pod)["Status"]) == ("2/2", "Running")


def test_nodes_show_status_and_roles() -> None:
    node = make_node(labels={"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "gpu"}, unschedulable=True)
    shown = cells("", "Node", node)
    assert (shown["Status"], shown["Roles"]) == ("Ready,SchedulingDisabled", "gpu,worker")


def test_groups_show_policy_and_status() -> None:
    group = make_group(min_count=3)
    assert cells("scheduling.k8s.io", "PodGroup", group)["Policy"] == "Gang"
    for status, want in (("True", "Scheduled"), ("False", "Unschedulable")):
        group["status"] = {"conditions": [{"type": "PodGroupInitiallyScheduled", "status": status}]}
        assert cells("scheduling.k8s.io", "PodGroup", group)["Status"] == want


def test_jobs_show_completions_and_duration() -> None:
    job = make_job()
    job["status"] = {"succeeded": 1, "startTime": rfc3339(NOW - 45)}
    shown = cells("batch", "Job", job)
    assert shown["Completions"] == f"1/{job['spec']['completions']}"
    assert (shown["Status"], shown["Duration"]) == ("Running", "45s")


@pytest.mark.parametrize(
    ("include", "want"), [("None", None), ("Metadata", "PartialObjectMetadata"), ("Object", "Widget")]
)
def test_rows_carry_what_was_asked_for(include: str, want: str | None) -> None:
    body = {"kind": "WidgetList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}, "items": [{"metadata": {}}]}
    found = table(body, columns_of("x", "Widget"), now=NOW, include=include)  # type: ignore[arg-type]  # a literal above
    shown = found["rows"][0]["object"]
    assert found["metadata"] == {"resourceVersion": "5"}
    assert (shown["kind"] if shown else None) == want


def test_selectors_are_shown_as_people_write_them() -> None:
    expressions = [{"key": "b", "operator": "In", "values": ["2", "1"]}, {"key": "c", "operator": "DoesNotExist"}]
    assert selector_text({"matchLabels": {"a": "x"}, "matchExpressions": expressions}) == "a=x,b in (1,2),!c"
    assert selector_text({}) == "<none>"
