"""`muster install` on the embedded server, and the manifests that it applies."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections.abc import Awaitable, Callable
from importlib import resources
from pathlib import Path

import pytest
import yaml

import muster
from muster.api.codec import JSON, Object
from muster.api.groups import POD_GROUP_KEY
from muster.api.meta import has_condition
from muster.api.resource import NODES, PODS, Resource
from muster.apiserver.inprocess import InProcessTransport
from muster.apiserver.options import ServerOptions
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.cli.install import KINDS, InstallPlan, Part, apply_plan, definitions, deployment
from muster.cli.main import application, main
from muster.client.client import Client
from muster.client.transport import ApiError
from muster.clock import VirtualClock, run_virtual
from muster.scheduler.service import Scheduler
from muster.testing import make_node, make_pod

TOP = Path(__file__).parents[2]
GROUPS = Resource("scheduling.muster-k8s.dev", "v1beta1", "podgroups", "PodGroup")
COMPOSITES = Resource("scheduling.muster-k8s.dev", "v1beta1", "compositepodgroups", "CompositePodGroup")
WORKLOADS = Resource("scheduling.muster-k8s.dev", "v1beta1", "workloads", "Workload")
WITHOUT_GROUPS = ServerOptions(emulate="1.35")
GANG: Object = {"gang": {"minCount": 2}}
Story = Callable[[Client, VirtualClock], Awaitable[None]]


def run(story: Story, options: ServerOptions = WITHOUT_GROUPS) -> None:
    async def play(clock: VirtualClock) -> None:
        server = ApiServer(MemoryStore(), clock, random.Random(1), options)
        await story(Client(InProcessTransport(server)), clock)

    run_virtual(play)


def custom(kind: str, name: str, spec: Object) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": GROUPS.api_version, "kind": kind, "metadata": metadata, "spec": spec}


# -- groups on a server that has none --------------------------------------------------------------------------------


def test_labelled_pods_are_a_gang_on_a_server_without_groups() -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        done = await apply_plan(client, clock, InstallPlan(crds_only=True))
        assert (done.native, done.outcomes) == ("", ("created",) * 3)
        node = make_node("n", cpu="4")
        await client.create(NODES, None, node)
        await client.patch(NODES, None, "n", {"spec": {"taints": None}})
        for name, count, cpu in (("small", 2, "1"), ("large", 3, "3")):
            await client.create(
                GROUPS, "default", custom("PodGroup", name, {"schedulingPolicy": {"gang": {"minCount": count}}})
            )
            for number in range(count):
                pod = make_pod(f"{name}-{number}", cpu=cpu)
                pod["metadata"]["labels"] = {POD_GROUP_KEY: name}
                await client.create(PODS, "default", pod)
        scheduler = Scheduler(client, clock, random.Random(2))
        task = asyncio.get_running_loop().create_task(scheduler.run())
        await clock.sleep(5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        pods = (await client.list(PODS, "default")).items
        assert sorted(pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")) == ["small-0", "small-1"]
        small, large = [await client.get(GROUPS, "default", name) for name in ("small", "large")]
        assert has_condition(small, "PodGroupInitiallyScheduled")
        assert not has_condition(large, "PodGroupInitiallyScheduled")

    run(story)


def test_a_server_with_groups_gets_no_custom_resources() -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        done = await apply_plan(client, clock, InstallPlan())
        assert done.native == "scheduling.k8s.io/v1alpha2"
        assert all(obj["kind"] != "CustomResourceDefinition" for obj in done.objects)

    run(story, ServerOptions(emulate="1.36"))


def test_applying_again_changes_nothing_and_another_image_only_the_deployment() -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        first = await apply_plan(client, clock, InstallPlan())
        assert set(first.outcomes) == {"created"}
        assert set((await apply_plan(client, clock, InstallPlan())).outcomes) == {"unchanged"}
        third = await apply_plan(client, clock, InstallPlan(image="registry.example/muster:2"))
        changed = [obj["kind"] for obj, said in zip(third.objects, third.outcomes, strict=True) if said != "unchanged"]
        assert changed == ["Deployment"]

    run(story)


def test_dry_run_writes_nothing() -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        done = await apply_plan(client, clock, InstallPlan(dry_run=True))
        assert len(done.objects) == len(definitions()) + len(deployment())
        assert (await client.transport.request("GET", GROUPS.path())).status == 404

    run(story)


@pytest.mark.parametrize(
    ("resource", "spec", "want"),
    [
        (GROUPS, {}, "spec.schedulingPolicy: Required"),
        (GROUPS, {"schedulingPolicy": {}}, "must specify exactly one of: `basic`, `gang`"),
        (GROUPS, {"schedulingPolicy": {"basic": {}, **GANG}}, "must specify exactly one of: `basic`, `gang`"),
        (GROUPS, {"schedulingPolicy": {"gang": {"minCount": 0}}}, "greater than or equal to 1"),
        (GROUPS, {"schedulingPolicy": GANG, "parentCompositePodGroupName": "p"}, "workloadRef: must be set"),
        (GROUPS, {"schedulingPolicy": GANG, "disruptionMode": {"single": {}, "all": {}}}, "`single`, `all`"),
        (COMPOSITES, {"schedulingPolicy": {"basic": {}}}, "spec.workloadRef: Required"),
        (WORKLOADS, {}, "`podGroupTemplates`, `compositePodGroupTemplates`"),
        (WORKLOADS, {"podGroupTemplates": [{"name": "a"}]}, "schedulingPolicy: Required"),
        (
            WORKLOADS,
            {"compositePodGroupTemplates": [{"name": "a", "schedulingPolicy": {"basic": {}}}]},
            "must have at least one of",
        ),
    ],
)
def test_groups_that_kubernetes_refuses_are_refused(resource: Resource, spec: Object, want: str) -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        await apply_plan(client, clock, InstallPlan(crds_only=True))
        with pytest.raises(ApiError, match=r"Required|exactly|greater|must") as refused:
            await client.create(resource, "default", custom(resource.kind, "x", spec))
        assert refused.value.code == 422
        assert want in str(refused.value)

    run(story)


def test_the_least_count_may_change_and_the_rest_may_not() -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        await apply_plan(client, clock, InstallPlan(crds_only=True))
        made = await client.create(GROUPS, "default", custom("PodGroup", "g", {"schedulingPolicy": GANG}))
        assert made["spec"]["disruptionMode"] == {"single": {}}
        await client.patch(GROUPS, "default", "g", {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}})
        patches: list[Object] = [
            {"schedulingPolicy": {"gang": None, "basic": {}}},
            {"disruptionMode": {"single": None, "all": {}}},
            {"priorityClassName": "high"},
        ]
        for patch in patches:
            with pytest.raises(ApiError, match=r"immutable|cannot be exchanged"):
                await client.patch(GROUPS, "default", "g", {"spec": patch})

    run(story)


# -- the manifests ---------------------------------------------------------------------------------------------------


def fields(schema: JSON, known: Object | None = None) -> JSON:
    """The names of a schema's fields, nested; `known`: definitions that it refers to."""
    if known is not None and "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return fields(known[name], known)
    if schema.get("type") == "array":
        return fields(schema["items"], known)
    return {name: fields(value, known) for name, value in (schema.get("properties") or {}).items()}


def unrolled(template: JSON, depth: int) -> JSON:
    """A schema's fields where composites are at most three deep."""
    nested = {key: value for key, value in template.items() if key != "compositePodGroupTemplates"}
    return nested if depth == 0 else {**nested, "compositePodGroupTemplates": unrolled(template, depth - 1)}


@pytest.mark.parametrize("definition", definitions(), ids=lambda obj: obj["spec"]["names"]["kind"])
def test_definitions_have_the_fields_of_kubernetes(definition: Object) -> None:
    data = resources.files("muster.apiserver").joinpath("data", "schemas.json.gz").read_bytes()
    known = json.loads(gzip.decompress(data))["definitions"]
    kind = definition["spec"]["names"]["kind"]
    prefix = "io.k8s.api.scheduling." + ("v1alpha3" if kind == "CompositePodGroup" else "v1beta1")
    known[f"{prefix}.CompositePodGroupTemplate"]["properties"].pop("compositePodGroupTemplates")
    (version,) = definition["spec"]["versions"]
    ours = fields(version["schema"]["openAPIV3Schema"])
    want = fields(known[f"{prefix}.{kind}"], known)
    want["metadata"] = {}
    if kind == "Workload":
        want["spec"]["compositePodGroupTemplates"] = unrolled(want["spec"]["compositePodGroupTemplates"], 2)
    assert ours == want
    assert version["name"] == "v1beta1"


def test_deployment_goes_where_it_is_told() -> None:
    objects = deployment("elsewhere", "registry.example/muster:2")
    assert "muster-system" not in json.dumps(objects)
    (container,) = by_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/muster:2"
    assert all((obj["apiVersion"], obj["kind"]) in KINDS for obj in [*objects, *definitions()])
    assert all(KINDS[obj["apiVersion"], obj["kind"]].namespaced == ("namespace" in obj["metadata"]) for obj in objects)


def test_deployment_starts_this_version_with_options_that_exist() -> None:
    (container,) = by_kind(deployment(), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"muster:{muster.__version__}"
    _, bound, _ = application().parse_args(container["args"], exit_on_error=False, print_error=False)
    (port,) = container["ports"]
    assert bound.arguments["port"] == port["containerPort"]


@pytest.mark.parametrize(
    ("folder", "option", "argument"),
    [
        ("provisioning-requests", "--provisioning-requests=check-capacity", "check-capacity"),
        ("create-workloads", "--create-workloads", True),
    ],
)
def test_a_part_brings_its_option_and_its_rights(folder: str, option: str, argument: object) -> None:
    parts = (Part(folder, (option,)),)
    plain, with_part = deployment("elsewhere"), deployment("elsewhere", parts=parts)
    more = [(obj["kind"], obj["metadata"]["name"]) for obj in with_part if obj not in plain]
    name = f"muster-scheduler-{folder}"
    assert more == [("ClusterRole", name), ("ClusterRoleBinding", name), ("Deployment", "muster-scheduler")]
    assert [obj for obj in with_part if obj["metadata"]["name"] == name][1]["subjects"][0]["namespace"] == "elsewhere"
    (container,) = by_kind(with_part, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["args"][-1] == option
    _, bound, _ = application().parse_args(container["args"], exit_on_error=False, print_error=False)
    assert bound.arguments[folder.replace("-", "_")] == argument


@pytest.mark.parametrize("name", ["provisioning-requests", "create-workloads"])
def test_the_overlay_of_a_part_asks_for_an_option_that_exists(name: str) -> None:
    folder = TOP / "deploy" / "overlays" / name
    overlay = yaml.safe_load((folder / "kustomization.yaml").read_text())
    (component,) = ((folder / each).resolve() for each in overlay["components"])
    (patch,) = yaml.safe_load((component / "kustomization.yaml").read_text())["patches"]
    (change,) = yaml.safe_load(patch["patch"])
    arguments = ["scheduler", change["value"]]
    _, bound, _ = application().parse_args(arguments, exit_on_error=False, print_error=False)
    assert bound.arguments[name.replace("-", "_")] in ("best-effort-atomic-scale-up", True)


def by_kind(objects: list[Object], kind: str) -> Object:
    (found,) = [obj for obj in objects if obj["kind"] == kind]
    return found


@pytest.mark.parametrize("name", [".", "crds", "overlays/two-replicas"])
def test_kustomizations_name_the_files_that_are_installed(name: str) -> None:
    folder = TOP / "deploy" / name
    (base,) = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    files = sorted((folder / base).resolve().glob("*.yaml"))
    listed = yaml.safe_load(((folder / base) / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == [file.name for file in files if file.name != "kustomization.yaml"]
    kinds = [obj["kind"] for file in listed for obj in yaml.safe_load_all(((folder / base) / file).read_text())]
    assert sorted(kinds) == sorted(obj["kind"] for obj in (definitions() if name == "crds" else deployment()))


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["--namespace", "Muster"], "--namespace Muster: must be a lowercase RFC 1123 label"),
        (["--image", "a b"], "--image 'a b'"),
        (["--kubeconfig", "nowhere"], "nowhere"),
        (["--output", "yaml"], "--output yaml: only with --dry-run"),
        (["--provisioning-requests", "A"], "--provisioning-requests: 'A' is not the name of a class"),
        (["--crds-only", "--provisioning-requests", "check-capacity"], "--crds-only: not with options"),
    ],
)
def test_wrong_options_are_one_line_and_exit_2(
    arguments: list[str], want: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["install", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert want in captured.err


def test_a_server_that_is_away_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    assert main(["install", "--kubeconfig", str(tmp_path / "config")]) == 1
    assert "http://127.0.0.1:1" in capsys.readouterr().err
