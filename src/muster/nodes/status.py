"""The status that a simulated kubelet writes for a pod, as a strategic merge patch. Pure.

Source of conditions, reasons and container states: kubelet (`pkg/kubelet/status/generate.go`, `kubelet_pods.go`).
"""

from __future__ import annotations

from muster.api.codec import Object, Objects
from muster.api.meta import condition, uid_of
from muster.clock import rfc3339
from muster.nodes.stages import Kind, Life, Stages


def status_of(pod: Object, life: Life, data: Stages, *, pod_ip: str, host_ip: str, now: float) -> Object:
    """`status` of the pod at this point of its life; conditions are to be merged by type."""
    phase = _phase(life, data)
    status: Object = {
        "phase": phase,
        "startTime": (pod.get("status") or {}).get("startTime") or rfc3339(life.began),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "conditions": _conditions(pod, life, data, phase, now),
        "containerStatuses": [_container(pod, entry, life, data) for entry in pod["spec"]["containers"]],
    }
    generation = pod["metadata"].get("generation")
    if generation:
        status["observedGeneration"] = generation
    if life.started is not None:
        status["podIP"] = pod_ip
        status["podIPs"] = [{"ip": pod_ip}]
    init = pod["spec"].get("initContainers")
    if init:
        status["initContainerStatuses"] = [_init_container(pod, entry, life, data) for entry in init]
    return status


def _phase(life: Life, data: Stages) -> str:
    if life.kind is Kind.ENDED:
        return "Failed" if life.exit_code else "Succeeded"
    if life.kind is Kind.STAGE:
        return data.stages[life.index].phase
    return "Running" if life.started is not None else "Pending"


def _is_ready(life: Life, data: Stages) -> bool:
    return life.kind is Kind.STAGE and data.stages[life.index].ready


def _conditions(pod: Object, life: Life, data: Stages, phase: str, now: float) -> Objects:
    ended = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "")
    ready = _is_ready(life, data)
    reason = ended or ("" if ready else "ContainersNotReady")
    message = ""
    if reason == "ContainersNotReady":
        message = f"containers with unready status: [{' '.join(entry['name'] for entry in pod['spec']['containers'])}]"
    has_sandbox = life.started is not None and not ended
    return [
        _condition(pod, "PodReadyToStartContainers", has_sandbox, "", "", now),
        _condition(pod, "Initialized", True, "PodCompleted" if ended == "PodCompleted" else "", "", now),
        _condition(pod, "Ready", ready, reason, message, now),
        _condition(pod, "ContainersReady", ready, reason, message, now),
        _condition(pod, "PodScheduled", True, "", "", now),
    ]


def _condition(pod: Object, type_: str, value: bool, reason: str, message: str, now: float) -> Object:
    before = condition(pod, type_) or {}
    status = "True" if value else "False"
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    found: Object = {"type": type_, "status": status, "lastTransitionTime": since or rfc3339(now)}
    for name, text in (("reason", reason), ("message", message)):
        if text or name in before:
            found[name] = text or None  # null removes what an earlier state left there
    return found


def _container(pod: Object, container: Object, life: Life, data: Stages) -> Object:
    ready = _is_ready(life, data)
    status: Object = {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "lastState": {},
        "ready": ready,
        "restartCount": life.restarts + (1 if life.kind is Kind.BACKOFF else 0),
        "started": life.started is not None and life.kind in (Kind.STAGE, Kind.TERMINATING),
        "state": _state(life, data),
    }
    if life.started is not None:
        status["containerID"] = f"sim://{uid_of(pod)}/{container['name']}/{life.restarts}"
    resources = container.get("resources")
    if resources and _may_be_resized(pod):
        status["resources"] = resources
        if resources.get("requests"):
            status["allocatedResources"] = resources["requests"]
    if life.kind is Kind.BACKOFF:
        status["lastState"] = {"terminated": _terminated(life, life.exit_code, life.since)}
    return status


def resources_of(pod: Object) -> list[Object | None]:
    """What the containers of a pod ask for."""
    return [container.get("resources") for container in pod["spec"]["containers"]]


def _may_be_resized(pod: Object) -> bool:
    """Whether the spec changed since the pod was made. (Others' resources are in the spec, and not said again.)"""
    return (pod["metadata"].get("generation") or 1) > 1


def _init_container(pod: Object, container: Object, life: Life, data: Stages) -> Object:
    if container.get("restartPolicy") == "Always":
        return _container(pod, container, life, data)
    done = life.started is not None
    at = rfc3339(life.began)
    terminated = {"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at}
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "lastState": {},
        "ready": done,
        "restartCount": 0,
        "started": False,
        "state": {"terminated": terminated} if done else {"waiting": {"reason": "PodInitializing"}},
    }


def _state(life: Life, data: Stages) -> Object:
    if life.kind is Kind.ENDED:
        return {"terminated": _terminated(life, life.exit_code, life.ended)}
    if life.kind is Kind.BACKOFF:
        return {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off restarting failed container"}}
    if life.started is None:
        return {"waiting": {"reason": "ContainerCreating"}}
    return {"running": {"startedAt": rfc3339(life.started)}}


def _terminated(life: Life, exit_code: int, at: float | None) -> Object:
    finished = at if at is not None else life.began
    started = life.started if life.started is not None else finished
    return {
        "exitCode": exit_code,
        "reason": "Error" if exit_code else "Completed",
        "startedAt": rfc3339(started),
        "finishedAt": rfc3339(finished),
    }
