"""What is typed in wrongly: nothing is dropped without a word, and whatever is refused is refused in one line."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from muster import Cluster
from muster.api.codec import JSON, Object, copy_object
from muster.api.manifests import ManifestError, load, parse
from muster.cli.check import checked
from muster.cli.main import main
from muster.cluster import ManifestWarning
from muster.simulator.field_hints import with_hint
from muster.simulator.run import simulate
from muster.testing import make_group, make_job, make_node, make_pod


def write(path: Path, *objects: Object) -> str:
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def of_version(version: str, kind: str, **spec: JSON) -> Object:
    return {"apiVersion": f"scheduling.k8s.io/{version}", "kind": kind, "metadata": {"name": "g"}, "spec": spec}


EXAMPLES = Path(__file__).parents[2] / "examples"
GANG = {"schedulingPolicy": {"gang": {"minCount": 2}}}
TEMPLATE_REF = {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}
WORKLOAD_REF = {"workloadName": "w", "templateName": "t"}

# -- fields that a kind does not have ----------------------------------------------------------------------------------

UNKNOWN = [
    pytest.param(
        of_version("v1beta1", "PodGroup", **GANG, schedulingConstraint={}),
        'unknown field "spec.schedulingConstraint": did you mean spec.schedulingConstraints?',
        id="a mistyped field",
    ),
    pytest.param(
        of_version("v1beta1", "PodGroup", **GANG, podGroupTemplateRef=TEMPLATE_REF),
        'unknown field "spec.podGroupTemplateRef": in v1beta1 it is spec.workloadRef {workloadName, templateName}',
        id="v1alpha2's reference in v1beta1",
    ),
    pytest.param(
        of_version("v1alpha3", "PodGroup", **GANG, podGroupTemplateRef=TEMPLATE_REF),
        'unknown field "spec.podGroupTemplateRef": in v1alpha3 it is spec.workloadRef {workloadName, templateName}',
        id="v1alpha2's reference in v1alpha3",
    ),
    pytest.param(
        of_version("v1alpha2", "PodGroup", **GANG, workloadRef=WORKLOAD_REF),
        'unknown field "spec.workloadRef": in v1alpha2 it is spec.podGroupTemplateRef.workload '
        "{workloadName, podGroupTemplateName}",
        id="the reference of later versions in v1alpha2",
    ),
    pytest.param(
        of_version("v1beta1", "PodGroup", **GANG, minMember=2),
        'unknown field "spec.minMember": did you mean spec.schedulingPolicy.gang.minCount?',
        id="another scheduler's word",
    ),
    pytest.param(
        of_version("v1alpha2", "PodGroup", **GANG, preemptionPolicy="Never"),
        'unknown field "spec.preemptionPolicy": v1alpha3 and v1beta1 have it',
        id="a field of later versions",
    ),
    pytest.param(
        {**make_pod("p"), "nodeSelector": {"a": "b"}},
        'unknown field "nodeSelector": it belongs at spec.nodeSelector',
        id="a field at the wrong place",
    ),
    pytest.param(
        make_job("j", backoffLimits=3),
        'unknown field "spec.backoffLimits": did you mean spec.backoffLimit?',
        id="of a Job",
    ),
    pytest.param({**make_node("n"), "specs": {}}, 'unknown field "specs": did you mean spec?', id="of a Node"),
    pytest.param(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "x"}, "values": 3},
        'unknown field "values": did you mean value?',
        id="of a class",
    ),
]


@pytest.mark.parametrize("command", ["simulate", "explain", "check"])
@pytest.mark.parametrize(("obj", "want"), UNKNOWN)
def test_commands_say_which_fields_are_dropped(
    command: str, obj: Object, want: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "x.yaml", obj)
    main([command, "-f", file])
    captured = capsys.readouterr()
    if command == "check":
        assert want in captured.out
    else:
        assert f"Warning: {file}:1: {obj['kind']} {obj['metadata']['name']}: {want}\n" in captured.err


@pytest.mark.parametrize(("obj", "want"), UNKNOWN)
def test_a_cluster_in_python_warns_of_dropped_fields(obj: Object, want: str) -> None:
    with pytest.warns(ManifestWarning, match="unknown field") as loaded:
        Cluster.load([obj])
    assert want in str(loaded[0].message)
    if obj["kind"] in ("Pod", "Job"):
        with pytest.warns(ManifestWarning) as asked:
            Cluster.load([make_node("other")]).schedule([obj])
        assert want in str(asked[0].message)


def test_warnings_point_to_who_called(tmp_path: Path) -> None:
    file = write(tmp_path / "x.yaml", {**make_node("n"), "specs": {}})
    with pytest.warns(ManifestWarning) as found:
        Cluster.load(file)
    assert [each.filename for each in found] == [__file__]


def test_what_is_applied_later_is_read_as_closely(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write(tmp_path / "a.yaml", make_node("n"), make_pod("p"))
    later = write(tmp_path / "b.yaml", {**make_pod("p"), "specs": {}}, {**make_pod("q"), "specs": {}})
    assert main(["simulate", "-f", first, "--at", f"5s={later}"]) == 0
    assert f'Warning: {later}:1: Pod p, q: unknown field "specs": did you mean spec?\n' in capsys.readouterr().err


def test_many_objects_that_say_the_same_share_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "x.yaml", *({**make_pod(f"p{at}"), "specs": {}} for at in range(50)))
    assert main(["simulate", "-f", file, "--nodes", "1"]) == 0
    assert capsys.readouterr().err == (
        f'Warning: {file}:1: Pod p0, p1, p2 and 47 more: unknown field "specs": did you mean spec?\n'
    )


def test_warnings_are_said_before_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node: Object = {**make_node("n"), "specs": {}}
    file = write(tmp_path / "x.yaml", node, make_pod("p", spec={"priorityClassName": "none"}))
    assert main(["simulate", "-f", file]) == 2
    assert [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()] == ["Warning", "muster"]


def test_fields_of_another_release_are_unknown_where_one_is_emulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = make_pod("p", spec={"schedulingGroup": {"podGroupName": "g"}})
    assert main(["simulate", "-f", write(tmp_path / "x.yaml", pod), "--emulate", "1.35"]) == 0
    assert 'unknown field "spec.schedulingGroup": in 1.35 it is spec.workloadRef' in capsys.readouterr().err


def test_what_a_server_warns_of_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "x.yaml", of_version("v1beta1", "PodGroup"))
    assert main(["simulate", "-f", file]) == 0
    assert "`basic` is assumed" in capsys.readouterr().err


def test_check_says_what_a_server_warns_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-f", write(tmp_path / "x.yaml", make_pod("a.b"))]) == 0
    assert "metadata.name: this is used in the Pod's hostname" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("spec.containers", "it belongs at spec.template.spec.containers"),
        ("spec.template.containers", "it belongs at spec.template.spec.containers"),
        ("spec.completionmode", "did you mean spec.completionMode?"),
        ("spec.replicas", "in v1 it is spec.parallelism"),
        ("spec.template.spec.containers[0].limits", "it belongs at spec.template.spec.containers[0].resources.limits"),
        ("spec.template.spec.containers[0].nodeSelector", "it belongs at spec.template.spec.nodeSelector"),
        ("spec.somethingElse", ""),
    ],
)
def test_hints_name_the_nearest_place(path: str, want: str) -> None:
    from muster.api.resource import JOBS

    text = f'unknown field "{path}"'
    assert with_hint(text, JOBS) == (f"{text}: {want}" if want else text)


def test_hints_come_only_where_there_is_something_to_say() -> None:
    from muster.api.resource import JOBS

    assert with_hint("deprecated since v1", JOBS) == "deprecated since v1"


# -- fields that are given twice ---------------------------------------------------------------------------------------

TWICE_YAML = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - name: a
    image: a
    resources:
      requests: {cpu: 1}
    resources:
      requests: {cpu: 2}
"""
TWICE_JSON = """{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [
{"name": "a", "image": "a", "resources": {}, "resources": {"requests": {"cpu": "2"}}}]}}"""
TWICE_IN_A_LIST = "kind: List\nitems:\n- " + TWICE_YAML.replace("\n", "\n  ").rstrip() + "\n"


@pytest.mark.parametrize(
    "text", [TWICE_YAML, TWICE_JSON, TWICE_IN_A_LIST, TWICE_JSON + TWICE_JSON], ids=["yaml", "json", "list", "stream"]
)
def test_fields_that_are_given_twice_are_named(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_text(text)
    assert all(each.repeated == ("spec.containers[0].resources",) for each in load(tmp_path / "x"))
    if text != TWICE_JSON + TWICE_JSON:
        assert main(["simulate", "-f", str(tmp_path / "x"), "--nodes", "1"]) == 0
        assert 'duplicate field "spec.containers[0].resources": the last one counts' in capsys.readouterr().err


def test_a_merge_key_repeats_nothing() -> None:
    text = "kind: ConfigMap\napiVersion: v1\nmetadata: &m {name: a}\ndata: {<<: {x: '1', y: '2'}, x: '3'}\n"
    assert parse(text)[0].repeated == ()


def test_an_alias_that_repeats_is_named_once() -> None:
    text = "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a, labels: &l {x: '1', x: '2'}, annotations: *l}\n"
    assert parse(text)[0].repeated == ("metadata.labels.x",)


def test_a_configuration_gives_no_field_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: []\nprofiles: []\n"
    (tmp_path / "c.yaml").write_text(text)
    pod = write(tmp_path / "p.yaml", make_pod("p"))
    assert main(["simulate", "-f", pod, "--config", str(tmp_path / "c.yaml")]) == 2
    assert 'duplicate field "profiles"' in capsys.readouterr().err


# -- annotations and labels --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        (
            make_pod("p", annotations={"sim.muster-k8s.dev/run-second": "3"}),
            "unknown annotation sim.muster-k8s.dev/run-second: did you mean sim.muster-k8s.dev/run-seconds?",
        ),
        (
            make_pod("p", annotations={"sim.muster-k8s.dev/run-seconds": "long"}),
            "metadata.annotations[sim.muster-k8s.dev/run-seconds]: 'long' is no value for it, and is ignored",
        ),
        (
            {**make_job("j"), "metadata": {"name": "j", "annotations": {"sim.muster-k8s.dev/run-seconds": "3"}}},
            "sim.muster-k8s.dev/run-seconds is read on pods and pod templates only",
        ),
        (
            make_job("j", pod=make_pod(annotations={"scheduling.muster-k8s.dev/podgroup": "g"})),
            "spec.template.metadata.annotations: unknown annotation scheduling.muster-k8s.dev/podgroup: "
            "did you mean scheduling.muster-k8s.dev/pod-group?",
        ),
        (
            make_pod("p", labels={"scheduling.x-k8s.io/pod-group": "g"}),
            "metadata.labels: scheduling.x-k8s.io/pod-group is read by coscheduling, not here: see muster convert",
        ),
        (
            make_pod("p", annotations={"scheduling.k8s.io/group-name": "g"}),
            "scheduling.k8s.io/group-name is read by Volcano, not here: see muster convert",
        ),
        (
            make_pod("p", annotations={"yunikorn.apache.org/task-group-name": "g"}),
            "yunikorn.apache.org/task-group-name is read by YuniKorn, not here: see muster convert",
        ),
    ],
    ids=["mistyped", "value", "wrong object", "template", "coscheduling", "Volcano", "YuniKorn"],
)
def test_marks_that_nobody_reads_are_named(
    obj: Object, want: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "-f", write(tmp_path / "x.yaml", obj), "--nodes", "1"]) == 0
    assert want in capsys.readouterr().err


def test_marks_that_are_read_are_not_mentioned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    annotations = {
        "sim.muster-k8s.dev/run-seconds": "5",
        "sim.muster-k8s.dev/barrier": "b/1",
        "scheduling.muster-k8s.dev/pod-group": "g",
        "kueue.x-k8s.io/podset-required-topology": "rack",
        "example.com/mine": "x",
    }
    pod = make_pod("p", annotations=annotations, labels={"scheduling.x-k8s.io/pod-group": "g"})
    assert main(["simulate", "-f", write(tmp_path / "x.yaml", make_group("g"), pod), "--nodes", "1"]) == 0
    assert capsys.readouterr().err == ""


def test_a_pod_of_another_scheduler_says_who_would_have_to_place_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = [make_pod("p", spec={"schedulerName": "volcano"}), make_pod("q", group="g", spec={"schedulerName": "x"})]
    assert main(["simulate", "-f", write(tmp_path / "x.yaml", make_group("g"), *pods), "--nodes", "1"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "waits for the scheduler volcano, which does not run here (here: default-scheduler, muster)" in out
    assert "waits for the scheduler x, which does not run here" in out


# -- wrong types, wrong versions ---------------------------------------------------------------------------------------

WRONG: tuple[JSON, ...] = ("text", 7, -1, True, [], {}, ["a"], {"a": "b"}, None, [None], 1.5, 10**30)


def wrong_ones(obj: Object) -> Iterator[Object]:
    """The object with each of its values replaced by each of the wrong ones."""
    for path in paths(obj, ()):
        for value in WRONG:
            changed = copy_object(obj)
            at: JSON = changed
            for step in path[:-1]:
                at = at[step]
            at[path[-1]] = value
            yield changed


def paths(value: JSON, at: tuple[JSON, ...]) -> Iterator[tuple[JSON, ...]]:
    if at:
        yield at
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from paths(item, (*at, key))


OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
FULL = {
    "Pod": {
        **make_pod("p", labels={"a": "b"}, annotations={"sim.muster-k8s.dev/run-seconds": "1"}, cpu="1"),
        "status": {"phase": "Pending"},
    },
    "Node": make_node("n", labels={"a": "b"}),
    "Job": make_job("j", parallelism=2, indexed=True, backoffLimit=1),
    "PodGroup": make_group("g", min_count=2),
    "Deployment": {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": make_pod("x")["spec"]},
        },
    },
    "CronJob": {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "c"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": make_job("j")["spec"]}},
    },
    "PersistentVolumeClaim": {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "v"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    },
    "ResourceQuota": {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "r"},
        "spec": {"hard": {"pods": "1"}},
    },
    "Workload": of_version("v1beta1", "Workload", podGroupTemplates=[{"name": "a", **GANG}]),
    "ResourceSlice": {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d.example.com",
            "nodeName": "n",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "g", "attributes": {"a": {"string": "b"}}, "capacity": {"m": {"value": "1"}}}],
        },
    },
}
for _kind in ("Pod", "Job"):
    FULL[_kind]["metadata"] = {**FULL[_kind]["metadata"], "ownerReferences": [OWNER]}


@pytest.mark.parametrize("kind", FULL)
def test_values_of_a_wrong_type_are_refused_or_taken_but_never_crash_a_cluster(kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ManifestWarning)
        for obj in wrong_ones(FULL[kind]):
            try:
                (manifest,) = parse(yaml.safe_dump(obj))
                cluster = Cluster.load([manifest, *parse(yaml.safe_dump(make_node("other")))])
                cluster.explain()
            except ManifestError as error:
                assert "\n" not in error.message


@pytest.mark.parametrize("kind", FULL)
def test_values_of_a_wrong_type_are_refused_or_taken_but_never_crash_a_simulation(kind: str) -> None:
    for number, obj in enumerate(wrong_ones(FULL[kind])):
        if number % 4 == 0:
            try:
                simulate([*parse(yaml.safe_dump(obj)), *parse(yaml.safe_dump(make_node("other")))], until_s=90)
            except ManifestError as error:
                assert "\n" not in error.message


@pytest.mark.parametrize("kind", ["Pod", "Job", "Node", "PodGroup"])
def test_values_of_a_wrong_type_do_not_crash_what_is_applied_later(kind: str) -> None:
    first = parse(yaml.safe_dump_all([FULL[kind], make_node("other")]))
    for number, obj in enumerate(wrong_ones(FULL[kind])):
        if number % 4 == 1:
            try:
                simulate(first, timed=[(5, parse(yaml.safe_dump(obj)))], until_s=30)
            except ManifestError as error:
                assert "\n" not in error.message


@pytest.mark.parametrize("kind", ["Pod", "Job", "Node", "PodGroup", "Workload"])
def test_check_says_what_is_wrong_with_values_of_a_wrong_type(kind: str) -> None:
    for number, obj in enumerate(wrong_ones(FULL[kind])):
        if number % 4 == 2:
            try:
                manifests = parse(yaml.safe_dump_all([obj, make_node("other"), make_pod("q", group="g")]))
            except ManifestError:
                continue
            checked(manifests, ("1.36",), ("1",))


@pytest.mark.parametrize(
    ("api_version", "kind", "want"),
    [
        ("apps/v1beta1", "Deployment", "apps/v1beta1 has no kind Deployment in this cluster: apps/v1 has it"),
        ("v2", "Pod", "v2 has no kind Pod in this cluster: v1 has it"),
        ("scheduling.k8s.io/v1alpha9", "PodGroup", "scheduling.k8s.io/v1alpha2 or scheduling.k8s.io/v1alpha3"),
        ("v1", "pod", "no kind 'pod' is known in v1 (did you mean Pod?)"),
        ("v1", "PodGroup", "no kind 'PodGroup' is known in v1 (it is a kind of scheduling.k8s.io)"),
        ("batch/v1", "Jobb", "no kind 'Jobb' is known in batch/v1 (did you mean Job?)"),
        ("scheduling.volcano.sh/v1beta1", "PodGroup", "muster convert --to scheduling.k8s.io/v1beta1"),
    ],
)
@pytest.mark.parametrize("command", ["simulate", "explain"])
def test_a_wrong_version_or_kind_is_named_with_the_right_one(
    command: str, api_version: str, kind: str, want: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "x.yaml", {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": {}})
    assert main([command, "-f", file]) == 2
    assert want in capsys.readouterr().err


# -- nodes, steps, nothing to explain ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("cpu=1e999", "cpu is '1e999', but must not be more than 9e12"),
        ("memory=9Ei", "memory is '9Ei', but must not be more than 9e15 (or 7Pi)"),
        ("pods=1e30", "pods is '1e30', but must not be more than"),
        ("nvidia.com/gpu=1e18", "nvidia.com/gpu is '1e18', but must not be more than"),
        ("cpu=-1", "cpu is '-1', but must not be negative"),
        ("memory=-1Gi", "memory is '-1Gi', but must not be negative"),
        ("pods=1.5", "pods is '1.5', but must be a whole number"),
        ("cpu=NaN", "cpu is 'NaN', but must be a quantity such as 32, 500m or 256Gi"),
        ("count=1e3", "count is '1e3', but must be a whole number from 0 to 1000000"),
    ],
)
def test_quantities_that_no_node_has_are_refused(text: str, want: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "-f", str(EXAMPLES / "gang-pods.yaml"), "--nodes", text]) == 2
    assert f"--nodes '{text}': {want}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("at", "want"),
    [
        ("90s=delete pod/none", '--at 90s: delete pod/none: pods "none" not found'),
        ("5m=cordon none", '--at 5m: cordon none: nodes "none" not found'),
        ("1h=fail none", '--at 1h: fail none: nodes "none" not found'),
        ("10s=delete", "--at 10s='delete': must be delete KIND/NAME"),
        ("10s=delete pod/", "--at 10s='delete pod/': must be delete KIND/NAME"),
        ("10s=delete thing/x", "--at 10s='delete thing/x': there is no kind 'thing' that can be deleted"),
        ("10s=restart cluster", "--at 10s='restart cluster': what can be restarted is"),
        ("10s=cordon", "--at 10s='cordon': cordon takes the name of a node"),
        ("10s=none.yaml", "--at 10s=none.yaml: cannot be read: No such file or directory"),
        ("soon=cordon x", "--at: 'soon' is not a duration"),
    ],
)
def test_steps_that_cannot_be_taken_say_when_they_were_to_be(
    at: str, want: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "-f", str(EXAMPLES / "gang-pods.yaml"), "--nodes", "1", "--at", at]) == 2
    assert want in capsys.readouterr().err


def test_manifests_that_cannot_be_applied_later_say_when(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "x.yaml", make_pod("p", spec={"priorityClassName": "none"}))
    assert main(["simulate", "-f", str(EXAMPLES / "gang-pods.yaml"), "--at", f"2m={file}"]) == 2
    assert f'{file}:1: at 2m: pods "p" is forbidden' in capsys.readouterr().err


def test_groups_without_pods_are_explained_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "x.yaml", make_group("g", min_count=3), make_group("h"))
    assert main(["explain", "-f", file]) == 0
    assert capsys.readouterr().out == (
        "PodGroup g: waits\n"
        "  Has no pods, and needs 3 pods that name it (spec.schedulingGroup.podGroupName: g).\n"
        "\n"
        "PodGroup h: waits\n"
        "  Has no pods, and needs 1 pod that names it (spec.schedulingGroup.podGroupName: h).\n"
    )


def test_a_group_that_has_run_and_has_no_pods_any_more_is_no_news(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = {"name": "g", "namespace": "default", "uid": "u", "annotations": {"sim.muster-k8s.dev/snapshot": ""}}
    condition = {"type": "PodGroupInitiallyScheduled", "status": "True"}
    group = {**make_group("g"), "metadata": snapshot, "status": {"conditions": [condition]}}
    assert main(["explain", "-f", write(tmp_path / "x.yaml", group)]) == 0
    assert capsys.readouterr().out == "Nothing waits for a node: there are no pods (but 1 PodGroup).\n"


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        ([make_node("a"), make_node("b")], "there are no pods (but 2 Nodes)"),
        ([make_pod("a", node="n"), make_node("n")], "1 pod, all placed or ended"),
        ([make_job("j", suspend=True)], "there are no pods (but 1 Job); suspended: Job j"),
    ],
    ids=["nodes", "placed", "suspended"],
)
def test_where_nothing_waits_it_is_said_what_there_is(
    objects: list[Object], want: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "-f", write(tmp_path / "x.yaml", *objects)]) == 0
    assert capsys.readouterr().out == f"Nothing waits for a node: {want}.\n"


def test_a_name_of_another_namespace_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "x.yaml", make_group("g", namespace="team-a"))
    assert main(["explain", "podgroup/g", "-f", file]) == 2
    want = "muster: there is no PodGroup 'g' in namespace 'default' (there is one in team-a: -n team-a)\n"
    assert capsys.readouterr().err == want


def test_check_says_why_something_cannot_be_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pod = make_pod(spec={"priorityClassName": "none"})
    file = write(tmp_path / "x.yaml", make_job("j", parallelism=2, indexed=True, pod=pod))
    assert main(["check", "-f", file, "--nodes", "1"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "1.36: cannot be tried: " in out
    assert "no PriorityClass with name none was found" in out


def test_objects_that_cannot_be_written_are_refused() -> None:
    with pytest.raises(ManifestError, match="cannot be written as JSON: Type is not JSON serializable: set"):
        Cluster.load([{**make_pod("p"), "spec": {"containers": {"a"}}}])
    with pytest.warns(ManifestWarning, match='unknown field "spec.false"'):
        Cluster.load([make_pod("p", spec=yaml.safe_load("no: 1"))])


def test_objects_that_say_nothing_about_where_pods_run_are_left_out_with_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}}
        for version, kind in (("rbac.authorization.k8s.io/v1", "Role"), ("scheduling.volcano.sh/v1beta1", "Queue"))
    ]
    file = write(tmp_path / "x.yaml", *others, make_pod("p"))
    for command in ("simulate", "explain"):
        assert main([command, "-f", file, "--nodes", "1"]) == 0
        captured = capsys.readouterr()
        assert "Role x: has no bearing on scheduling, and is left out\n" in captured.err
        assert "Queue x: only Volcano reads it, and it is left out\n" in captured.err
        assert "node-0" in captured.out
    assert main(["check", "-f", file]) == 0
    assert "Role x: has no bearing" not in (out := capsys.readouterr().out)
    assert "has no bearing on scheduling, and is left out" in out
    assert main(["convert", "-f", file, "--to", "v1beta1"]) == 0
    assert "kind: Role" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [("jobset.x-k8s.io/v1alpha2", "JobSet"), ("batch.volcano.sh/v1alpha1", "Job"), ("kubeflow.org/v1", "PyTorchJob")],
)
def test_owners_of_pods_whose_controller_is_elsewhere_are_refused(
    api_version: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "x.yaml", {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}})
    assert main(["simulate", "-f", file]) == 2
    assert "its controller does not run here, so give the pods or Jobs that it would make" in capsys.readouterr().err
