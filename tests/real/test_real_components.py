"""The real kube-scheduler and kube-controller-manager do their work on our server, and say nothing that they would not
say on a real one: the same story runs on both, and the error lines of their logs are compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from control_planes import (
    Plane,
    controllers_command,
    error_lines,
    muster,
    process,
    real,
    scheduler_command,
    wait_until,
)
from real_servers import find_assets
from releases import GROUP, KubernetesRelease

from muster.api.codec import Object, Objects
from muster.api.meta import has_condition

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
"""What `KUBEBUILDER_ASSETS` must hold; `make test-real` sets it."""

pytestmark = pytest.mark.real

EXAMPLES = Path(__file__).parents[2] / "examples"

RUN_ONCE: Object = {
    "restartPolicy": "Never",
    "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}],
}


def job(name: str, size: int, **spec: object) -> Object:
    body = {"parallelism": size, "completions": size, "template": {"spec": RUN_ONCE}, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": body}


def member(release: KubernetesRelease, of: str, number: int, cpu: str = "1") -> Object:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    spec = {**release.link(of), "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{of}-{number}"}, "spec": spec}


def pods(plane: Plane, prefix: str) -> Objects:
    return [pod for pod in plane.json("get", "pods")["items"] if pod["metadata"]["name"].startswith(prefix)]


def are_bound(plane: Plane, prefix: str, count: int) -> bool:
    return sum(bool(pod["spec"].get("nodeName")) for pod in pods(plane, prefix)) == count


def is_held(plane: Plane, name: str) -> bool:
    lease = plane.json("get", "lease", name, "-n", "kube-system")
    return bool(lease["spec"].get("holderIdentity"))


def schedule(plane: Plane) -> None:
    """Jobs run to their end, a group is placed as a whole, one that cannot be is not placed at all."""
    plane.create(job("plain", 3))
    plane.create(job("indexed", 4, completionMode="Indexed"))
    release = plane.release
    plane.create(release.group("gang", "default", 2))
    plane.create(release.group("large", "default", 3))
    for number in range(3):
        plane.create(member(release, "large", number, cpu="30"))
    for number in range(2):
        plane.create(member(release, "gang", number))
    plane.kubectl("wait", "--for=condition=Complete", "job/plain", "job/indexed", "--timeout=90s")
    wait_until(lambda: are_bound(plane, "gang-", 2), "the gang is placed")
    wait_until(lambda: are_bound(plane, "large-", 3), "three large pods find three of four nodes")
    plane.create(release.group("huge", "default", 5))
    for number in range(5):
        plane.create(member(release, "huge", number, cpu="20"))
    wait_until(lambda: _refused(plane, "huge"), "the group without room is told so")
    assert are_bound(plane, "huge-", 0)


def _refused(plane: Plane, name: str) -> bool:
    """By the condition of the group, or, where groups have none, of a member."""
    if word := plane.release.condition:
        return has_condition(plane.json("get", "podgroup", name), word, "False")
    return any(has_condition(pod, "PodScheduled", "False") for pod in pods(plane, f"{name}-"))


def control(plane: Plane) -> None:
    """Deployments scale, namespaces are emptied, what is owned goes with its owner."""
    plane.kubectl("create", "deployment", "web", "--image=nginx", "--replicas=3")
    plane.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
    plane.kubectl("scale", "deployment/web", "--replicas=1")
    plane.kubectl("wait", "deployment/web", "--for=jsonpath={.status.replicas}=1", "--timeout=60s")
    plane.kubectl("delete", "deployment", "web")
    wait_until(lambda: not pods(plane, "web-"), "the pods of the deployment go with it")
    plane.kubectl("create", "namespace", "team")
    plane.kubectl("create", "configmap", "settings", "-n", "team", "--from-literal=a=b")
    plane.kubectl("delete", "namespace", "team", "--timeout=60s")


def apply_examples(plane: Plane) -> dict[str, str]:
    """What `kubectl apply` prints for each example of the group API that the release has, twice in a row; nothing is
    left of them."""
    plane.kubectl("create", "namespace", "some-ns")
    printed: dict[str, str] = {}
    served = re.compile(rf"{GROUP}/({'|'.join(plane.release.versions)})$", re.M)
    paths = [path for path in sorted(EXAMPLES.rglob("*.yaml")) if served.search(path.read_text())]
    assert paths
    for path in paths:
        name = str(path.relative_to(EXAMPLES))
        printed[name] = plane.say("apply", "-f", str(path)) + plane.say("apply", "-f", str(path))
        plane.say("delete", "-f", str(path), "--wait=false")
    plane.kubectl("delete", "namespace", "some-ns", "--wait=false")
    return printed


@pytest.fixture(scope="session")
def assets() -> Path:
    """The folder of the binaries; skips where there is none, unless MUSTER_REAL is set."""
    return find_assets(PROGRAMS)


@pytest.fixture(scope="module")
def real_examples(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a real server lets kubectl print."""
    with real(tmp_path_factory.mktemp("examples"), assets) as plane:
        return apply_examples(plane)


def test_the_examples_are_answered_as_by_a_real_server(
    assets: Path, tmp_path: Path, real_examples: dict[str, str]
) -> None:
    with muster(tmp_path, assets, "--without", "scheduler,controllers,nodes") as plane:
        ours = apply_examples(plane)
    # A real server shows a null in the templates of Workloads, which kubectl then wants to patch away: see
    # docs/reference/api.md.
    wanted = {
        name: re.sub(r"^(workload\S+) configured$", r"\1 unchanged", text, flags=re.M)
        for name, text in real_examples.items()
    }
    assert ours == wanted


@pytest.fixture(scope="module")
def real_errors(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, set[str]]]:
    """What the components say at level error on a real server, by component."""
    directory = tmp_path_factory.mktemp("real")
    logs = {name: directory / f"{name}.log" for name in ("scheduler", "controllers")}
    with (
        real(directory, assets) as plane,
        process(scheduler_command(plane, assets), logs["scheduler"], directory),
        process(controllers_command(plane, assets, directory), logs["controllers"], directory),
    ):
        schedule(plane)
        control(plane)
        found = {name: error_lines(log) for name, log in logs.items()}
    yield found


def test_kube_scheduler_schedules_on_our_server(assets: Path, tmp_path: Path, real_errors: dict[str, set[str]]) -> None:
    log = tmp_path / "scheduler.log"
    with (
        muster(tmp_path, assets, "--without", "scheduler") as plane,
        process(scheduler_command(plane, assets), log, tmp_path),
    ):
        schedule(plane)
        assert is_held(plane, "kube-scheduler")
        found = error_lines(log)
    assert found - real_errors["scheduler"] == set()


def test_kube_controller_manager_controls_on_our_server(
    assets: Path, tmp_path: Path, real_errors: dict[str, set[str]]
) -> None:
    log = tmp_path / "controllers.log"
    with (
        muster(tmp_path, assets, "--without", "controllers") as plane,
        process(controllers_command(plane, assets, tmp_path), log, tmp_path),
    ):
        schedule(plane)
        control(plane)
        assert is_held(plane, "kube-controller-manager")
        found = error_lines(log)
    assert found - real_errors["controllers"] == set()


def test_both_work_together_on_our_server(assets: Path, tmp_path: Path) -> None:
    with (
        muster(tmp_path, assets, "--without", "scheduler,controllers") as plane,
        process(scheduler_command(plane, assets), tmp_path / "scheduler.log", tmp_path),
        process(controllers_command(plane, assets, tmp_path), tmp_path / "controllers.log", tmp_path),
    ):
        schedule(plane)
