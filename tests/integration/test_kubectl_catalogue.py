"""kubectl's commands one by one, on a cluster with scheduler, controllers and simulated nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cluster_process import muster_up

from muster.api.codec import Object
from muster.testing.definitions import cluster_queue, job_set, leader_worker_set

if TYPE_CHECKING:
    from real_clients import Kubectl

pytestmark = pytest.mark.integration

POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "one", "labels": {"app": "one"}},
    "spec": {"containers": [{"name": "main", "image": "busybox"}]},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a running cluster of three nodes."""
    config = tmp_path_factory.mktemp("cluster") / "config"
    with muster_up("--nodes", "3", "--write-kubeconfig", str(config)) as (_, path):
        yield path


@pytest.fixture
def here(kubectl: Kubectl, cluster: Path, request: pytest.FixtureRequest) -> Kubectl:
    """kubectl in a namespace of the test's own."""
    there = replace(kubectl, environment={**kubectl.environment, "KUBECONFIG": str(cluster)})
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:50].strip("-")
    there("create", "namespace", name)
    there("config", "set-context", "--current", f"--namespace={name}")
    return there


def apply(here: Kubectl, obj: Object, *arguments: str) -> str:
    return here("apply", *arguments, "-f", "-", stdin=json.dumps(obj))


def web(here: Kubectl, replicas: int = 2) -> None:
    here("create", "deployment", "web", "--image=nginx:1", f"--replicas={replicas}")
    here("rollout", "status", "deployment/web", "--timeout=30s")


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        ("configmap settings --from-literal=a=b", "configmap/settings created"),
        ("secret generic hidden --from-literal=a=b", "secret/hidden created"),
        ("serviceaccount robot", "serviceaccount/robot created"),
        ("job hello --image=busybox -- echo hi", "job.batch/hello created"),
        ("cronjob tick --image=busybox --schedule=@daily", "cronjob.batch/tick created"),
        ("quota few --hard=pods=10", "resourcequota/few created"),
        ("service clusterip front --tcp=80:8080", "service/front created"),
        ("service nodeport gate --tcp=80:8080", "service/gate created"),
        ("service externalname away --external-name=example.com", "service/away created"),
        ("poddisruptionbudget calm --selector=app=a --min-available=1", "poddisruptionbudget.policy/calm created"),
        ("role reader --verb=get --resource=pods", "role.rbac.authorization.k8s.io/reader created"),
        (
            "rolebinding readers --role=reader --user=me",
            "rolebinding.rbac.authorization.k8s.io/readers created",
        ),
        ("ingress door --rule=a.example/*=front:80", "ingress.networking.k8s.io/door created"),
    ],
    ids=lambda value: value.split()[0],
)
def test_create(here: Kubectl, arguments: str, want: str) -> None:
    assert here("create", *arguments.split()).strip() == want


def test_create_token_and_job_from_cronjob(here: Kubectl) -> None:
    here("create", "serviceaccount", "robot")
    assert here("create", "token", "robot").strip()
    here("create", "cronjob", "tick", "--image=busybox", "--schedule=@yearly")
    assert here("create", "job", "now", "--from=cronjob/tick") == "job.batch/now created\n"


@pytest.mark.parametrize(
    ("form", "want"),
    [
        ("name", "pod/one\n"),
        ("jsonpath={.spec.containers[0].image}", "busybox"),
        ("custom-columns=N:.metadata.name,I:.spec.containers[0].image", "N     I\none   busybox\n"),
        ("go-template={{.metadata.name}}", "one"),
    ],
)
def test_get_in_every_form(here: Kubectl, form: str, want: str) -> None:
    apply(here, POD)
    assert here("get", "pod", "one", "-o", form) == want


def test_get_as_yaml_json_wide_and_all(here: Kubectl) -> None:
    web(here)
    assert "kind: Deployment" in here("get", "deployment", "web", "-o", "yaml")
    assert here.json("get", "deployment", "web")["spec"]["replicas"] == 2
    assert "node-" in here("get", "pods", "-o", "wide")
    everything = here("get", "all")
    assert all(f"{kind}/web" in everything for kind in ("pod", "deployment.apps", "replicaset.apps"))
    assert here("get", "pods", "--sort-by=.metadata.name", "-l", "app=web", "--no-headers").count("Running") == 2
    assert "app=web" in here("get", "pods", "--show-labels")


def test_describe_tells_of_each_kind(here: Kubectl) -> None:
    web(here)
    here("expose", "deployment", "web", "--port=80")
    here("autoscale", "deployment", "web", "--max=5", "--cpu-percent=70")
    here("create", "job", "hello", "--image=busybox")
    pod = here("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.name}")
    wanted = {
        ("pod", pod): "Scheduled",
        ("node", "node-0"): "Allocated resources",
        ("deployment", "web"): "Scaled up replica set",
        ("service", "web"): "Selector:",
        ("job", "hello"): "Parallelism:",
        ("hpa", "web"): "70%",
        ("replicasets", ""): "Controlled By",
        ("namespace", "default"): "Active",
    }
    for (kind, name), text in wanted.items():
        assert text in here("describe", kind, *([name] if name else []))


def test_apply_diff_edit_patch_and_replace(here: Kubectl, tmp_path: Path) -> None:
    assert apply(here, POD) == "pod/one created\n"
    assert apply(here, POD) == "pod/one unchanged\n"
    changed = {**POD, "metadata": {"name": "one", "labels": {"app": "two"}}}
    assert "+    app: two" in here("diff", "-f", "-", stdin=json.dumps(changed), want=1)
    assert apply(here, changed, "--dry-run=server") == "pod/one configured (server dry run)\n"
    assert apply(here, changed) == "pod/one configured\n"
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/app: two/app: three/' \"$1\"\n")
    editor.chmod(0o755)
    edited = replace(here, environment={**here.environment, "EDITOR": str(editor)})
    assert edited("edit", "pod", "one") == "pod/one edited\n"
    for type_, patch in (
        ("strategic", '{"metadata":{"labels":{"a":"1"}}}'),
        ("merge", '{"metadata":{"labels":{"b":"2"}}}'),
        ("json", '[{"op":"add","path":"/metadata/labels/c","value":"3"}]'),
    ):
        assert here("patch", "pod", "one", "--type", type_, "-p", patch) == "pod/one patched\n"
    found = here.json("get", "pod", "one")
    assert found["metadata"]["labels"] == {"app": "three", "a": "1", "b": "2", "c": "3"}
    found["metadata"]["labels"] = {"app": "four"}
    assert here("replace", "-f", "-", stdin=json.dumps(found)) == "pod/one replaced\n"
    assert here("replace", "--force", "-f", "-", stdin=json.dumps(POD)).endswith("pod/one replaced\n")


def test_server_side_apply_meets_other_owners(here: Kubectl) -> None:
    cm: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
    assert apply(here, cm, "--server-side", "--field-manager=one") == "configmap/c serverside-applied\n"
    other = json.dumps({**cm, "data": {"a": "2"}})
    refused = here("apply", "--server-side", "--field-manager=two", "-f", "-", stdin=other, want=1)
    assert 'conflict with "one"' in refused
    here("apply", "--server-side", "--field-manager=two", "--force-conflicts", "-f", "-", stdin=other)
    assert here("get", "configmap", "c", "-o", "jsonpath={.data.a}") == "2"


def test_label_annotate_and_set(here: Kubectl) -> None:
    web(here)
    assert here("label", "deployment", "web", "tier=front") == "deployment.apps/web labeled\n"
    assert here("label", "deployment", "web", "tier-") == "deployment.apps/web unlabeled\n"
    assert here("annotate", "deployment", "web", "note=x") == "deployment.apps/web annotated\n"
    assert here("set", "image", "deployment/web", "nginx=nginx:2") == "deployment.apps/web image updated\n"
    assert here("set", "env", "deployment/web", "A=b") == "deployment.apps/web env updated\n"
    resources = here("set", "resources", "deployment/web", "--requests=cpu=1")
    assert resources == "deployment.apps/web resource requirements updated\n"


def test_scale_and_rollout(here: Kubectl) -> None:
    web(here)
    assert here("scale", "deployment/web", "--replicas=3") == "deployment.apps/web scaled\n"
    assert here("scale", "deployment/web", "--current-replicas=3", "--replicas=1") == "deployment.apps/web scaled\n"
    here("set", "image", "deployment/web", "nginx=nginx:2")
    assert "successfully rolled out" in here("rollout", "status", "deployment/web", "--timeout=30s")
    assert re.findall(r"^\d", here("rollout", "history", "deployment/web"), re.M) == ["1", "2"]
    assert here("rollout", "undo", "deployment/web") == "deployment.apps/web rolled back\n"
    here("rollout", "status", "deployment/web", "--timeout=30s")
    image = here("get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
    assert image == "nginx:1"
    for verb, want in (("restart", "restarted"), ("pause", "paused"), ("resume", "resumed")):
        assert here("rollout", verb, "deployment/web") == f"deployment.apps/web {want}\n"


@pytest.mark.parametrize(("cascade", "want_pods"), [("background", 0), ("foreground", 0), ("orphan", 2)])
def test_delete_cascades(here: Kubectl, cascade: str, want_pods: int) -> None:
    web(here)
    here("delete", "deployment", "web", f"--cascade={cascade}", "--timeout=30s")
    if want_pods == 0:
        here("wait", "--for=delete", "pods", "-l", "app=web", "--timeout=30s")
    assert len(here.json("get", "pods", "-l", "app=web")["items"]) == want_pods


def test_delete_forms(here: Kubectl) -> None:
    for flags in (["--now"], ["--force", "--grace-period=0"], ["--wait=false"], ["--grace-period=1"]):
        apply(here, POD)
        here("delete", "pod", "one", *flags)
        here("wait", "--for=delete", "pod/one", "--timeout=35s")
    apply(here, POD)
    assert "server dry run" in here("delete", "pod", "one", "--dry-run=server")
    here("delete", "pods", "--all", "--now")


def test_wait_for_conditions_fields_and_creation(here: Kubectl) -> None:
    apply(here, POD)
    assert here("wait", "--for=condition=Ready", "pod/one", "--timeout=20s") == "pod/one condition met\n"
    here("wait", "--for=jsonpath={.status.phase}=Running", "pod/one", "--timeout=20s")
    here("wait", "--for=create", "pod/one", "--timeout=5s")
    assert "timed out" in here("wait", "--for=condition=Never", "pod/one", "--timeout=1s", want=1)


def test_cordon_taint_and_drain(here: Kubectl) -> None:
    apply(here, POD)
    here("wait", "--for=condition=Ready", "pod/one", "--timeout=20s")
    node = here("get", "pod", "one", "-o", "jsonpath={.spec.nodeName}")
    assert here("cordon", node) == f"node/{node} cordoned\n"
    assert "SchedulingDisabled" in here("get", "nodes")
    drained = here("drain", node, "--force", "--ignore-daemonsets", "--timeout=60s")
    assert "evicting pod" in drained and drained.endswith(f"node/{node} drained\n")
    assert here("uncordon", node) == f"node/{node} uncordoned\n"
    assert here("taint", "node", node, "k=v:NoSchedule") == f"node/{node} tainted\n"
    assert here("taint", "node", node, "k-") == f"node/{node} untainted\n"


def test_events_logs_exec_and_top_of_simulated_pods(here: Kubectl) -> None:
    apply(here, POD)
    here("wait", "--for=condition=Ready", "pod/one", "--timeout=20s")
    assert "Successfully assigned" in here("events", "--for", "pod/one")
    assert "Scheduled" in here("get", "events", "--field-selector", "involvedObject.name=one")
    assert "simulated node" in here("logs", "one")
    assert "simulated node" in here("logs", "-l", "app=one", "--tail=1")
    for command in (["exec", "one", "--", "ls"], ["attach", "one"], ["port-forward", "one", "8123:80"]):
        assert "simulated node" in here(*command, want=1)
    assert "one" in here("top", "pods")
    assert "node-2" in here("top", "nodes")


def test_auth_and_config(here: Kubectl) -> None:
    assert here("auth", "can-i", "create", "pods") == "yes\n"
    assert "*.*" in here("auth", "can-i", "--list")
    assert "system:masters" in here("auth", "whoami")
    assert "muster" in here("config", "view")
    assert "is running at" in here("cluster-info")


def test_explain_resources_versions_and_raw(here: Kubectl) -> None:
    assert "containers" in here("explain", "pod.spec")
    assert "replicas" in here("explain", "deployment.spec", "--recursive")
    names = here("api-resources", "-o", "name").split()
    assert {
        "pods",
        "jobs.batch",
        "podgroups.scheduling.k8s.io",
        "customresourcedefinitions.apiextensions.k8s.io",
    } <= set(names)
    assert "metrics.k8s.io/v1beta1" in here("api-versions").split()
    assert "check passed" in here("get", "--raw", "/livez?verbose")
    assert "apiserver_request_total" in here("get", "--raw", "/metrics")
    assert here("get", "pods", "--subresource=status", "-A", want=1)


def test_run_and_resize(here: Kubectl) -> None:
    overrides = '{"spec":{"containers":[{"name":"p","image":"busybox","resources":{"requests":{"cpu":"1"}}}]}}'
    assert here("run", "p", "--image=busybox", f"--overrides={overrides}") == "pod/p created\n"
    patch = '{"spec":{"containers":[{"name":"p","resources":{"requests":{"cpu":"2"}}}]}}'
    assert here("patch", "pod", "p", "--subresource=resize", "-p", patch) == "pod/p patched\n"
    assert here("get", "pod", "p", "-o", "jsonpath={.spec.containers[0].resources.requests.cpu}") == "2"


@pytest.fixture
def definitions(here: Kubectl) -> Iterator[Kubectl]:
    """kubectl where kinds like those of well-known projects are installed; they are gone afterwards."""
    made = [job_set(), leader_worker_set(), cluster_queue()]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    here("apply", "-f", "-", stdin=text)
    here("wait", "--for=condition=Established", "crd", "--all", "--timeout=10s")
    yield here
    here("delete", "-f", "-", stdin=text)


def test_custom_kinds_are_used_like_built_in_ones(definitions: Kubectl) -> None:
    here = definitions
    lws: Object = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "s"},
        "spec": {"leaderWorkerTemplate": {"workerTemplate": {"spec": {}}}},
    }
    assert apply(here, lws) == "leaderworkerset.leaderworkerset.x-k8s.io/s created\n"
    lws["spec"]["replicas"] = 2
    assert apply(here, lws) == "leaderworkerset.leaderworkerset.x-k8s.io/s configured\n"
    assert here("scale", "lws/s", "--replicas=4") == "leaderworkerset.leaderworkerset.x-k8s.io/s scaled\n"
    assert here("get", "lws", "s", "-o", "jsonpath={.spec.replicas}") == "4"
    assert "maxUnavailable" in here("explain", "lws.spec.rolloutStrategy")
    queue: Object = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "q"}}
    flavors = [{"name": "any", "resources": [{"name": "memory", "nominalQuota": "1Gi"}]}]
    wrong = json.dumps({**queue, "spec": {"flavors": flavors}})
    assert "queue with 1 flavors" in here("apply", "-f", "-", stdin=wrong, want=1)
    apply(here, {**queue, "spec": {"cohort": "c"}})
    assert here("get", "batch").startswith("NAME")
    assert "Cohort" in here("describe", "cq", "q")
