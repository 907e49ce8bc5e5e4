"""Pods of one owner as a gang, by rules."""

from __future__ import annotations

import pytest

from muster.api.codec import JSON, Object
from muster.api.grouping import Grouping, GroupingError, at, default_grouping, parse_rules, with_rules
from muster.api.groups import GroupTerms, Stages, find_terms
from muster.api.resource import Resource

KINDS = {rule.resource.kind: rule.resource for rule in reversed(default_grouping().rules)}


def pod(labels: Object | None = None, owner: Object | None = None, **spec: object) -> Object:
    metadata: Object = {"name": "p", "namespace": "team", "labels": labels or {}}
    if owner is not None:
        metadata["ownerReferences"] = [{"uid": "u", "controller": True, **owner}]
    return {"metadata": metadata, "spec": spec}


def owner(spec: Object, **metadata: object) -> Object:
    return {"metadata": {"name": "train", "namespace": "team", **metadata}, "spec": spec}


def terms_of(pod: Object, resource: Resource, obj: Object, grouping: Grouping | None = None) -> GroupTerms | None:
    grouping = grouping or default_grouping()
    ref = grouping.group_of(pod)
    if ref is None:
        return None
    workload = grouping.workload(resource, obj)
    return find_terms(ref, {}, {f"{workload['metadata']['namespace']}/{workload['metadata']['name']}": workload})


JOB_OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "train"}
INDEXED = {"parallelism": 4, "completions": 4, "completionMode": "Indexed"}


@pytest.mark.parametrize(
    ("kind", "labels", "spec", "count"),
    [
        (
            "JobSet",
            {"jobset.sigs.k8s.io/jobset-name": "train"},
            {
                "replicatedJobs": [
                    {"name": "driver", "template": {"spec": {"parallelism": 1}}},
                    {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 4}}},
                ]
            },
            9,
        ),
        (
            "LeaderWorkerSet",
            {"leaderworkerset.sigs.k8s.io/name": "train", "leaderworkerset.sigs.k8s.io/group-index": "1"},
            {"replicas": 3, "leaderWorkerTemplate": {"size": 5}},
            5,
        ),
        (
            "PyTorchJob",
            {
                "training.kubeflow.org/job-name": "train",
                "training.kubeflow.org/operator-name": "pytorchjob-controller",
            },
            {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 7}}},
            8,
        ),
        (
            "PyTorchJob",
            {
                "training.kubeflow.org/job-name": "train",
                "training.kubeflow.org/operator-name": "pytorchjob-controller",
            },
            {
                "pytorchReplicaSpecs": {"Worker": {"replicas": 7}},
                "runPolicy": {"schedulingPolicy": {"minAvailable": 3}},
            },
            3,
        ),
        (
            "MPIJob",
            {"training.kubeflow.org/job-name": "train", "training.kubeflow.org/operator-name": "mpi-operator"},
            {"mpiReplicaSpecs": {"Launcher": {}, "Worker": {"replicas": 2}}},
            3,
        ),
        (
            "RayCluster",
            {"ray.io/cluster": "train"},
            {"workerGroupSpecs": [{"replicas": 2, "numOfHosts": 2}, {"replicas": 3}]},
            8,
        ),
    ],
)
def test_pods_of_a_known_owner_start_together(kind: str, labels: Object, spec: Object, count: int) -> None:
    terms = terms_of(pod(labels), KINDS[kind], owner(spec))

    assert terms is not None
    assert (terms.is_gang, terms.min_count) == (True, count)


TRAINING = {"training.kubeflow.org/job-name": "train"}
PYTORCH = {**TRAINING, "training.kubeflow.org/operator-name": "pytorchjob-controller"}
MPI = {**TRAINING, "training.kubeflow.org/operator-name": "mpi-operator"}
OLD_MPI = {**TRAINING, "training.kubeflow.org/operator-name": "mpijob-controller"}
RAY = {"ray.io/cluster": "train", "ray.io/node-type": "worker"}
SET = {"jobset.sigs.k8s.io/jobset-name": "train"}


@pytest.mark.parametrize(
    ("rule", "labels", "spec", "count"),
    [
        pytest.param(
            "jobset",
            SET,
            {"replicatedJobs": [{"replicas": 2, "template": {"spec": {"parallelism": 8, "completions": 3}}}]},
            6,
            id="a job with fewer completions than its parallelism has so many pods",
        ),
        pytest.param(
            "jobset",
            SET,
            {"replicatedJobs": [{"replicas": 0, "template": {"spec": {}}}, {"template": {"spec": {"completions": 5}}}]},
            1,
            id="completions alone mean one pod at a time",
        ),
        pytest.param(
            "pytorchjob",
            PYTORCH,
            {"elasticPolicy": {"minReplicas": 2}, "pytorchReplicaSpecs": {"Worker": {"replicas": 6}}},
            2,
            id="an elastic job starts with the fewest workers",
        ),
        pytest.param(
            "pytorchjob",
            PYTORCH,
            {
                "elasticPolicy": {"minReplicas": 5, "maxReplicas": 9},
                "pytorchReplicaSpecs": {"Master": {}, "Worker": {"replicas": 3}},
            },
            4,
            id="an elastic job with a master and fewer workers than wanted",
        ),
        pytest.param("mpijob", MPI, {"mpiReplicaSpecs": {"Launcher": {}, "Worker": {"replicas": 4}}}, 5, id="mpi"),
        pytest.param("mpijob-v1", OLD_MPI, {"mpiReplicaSpecs": {"Worker": {"replicas": 4}}}, 4, id="mpi of before"),
        pytest.param(
            "raycluster",
            RAY,
            {
                "workerGroupSpecs": [
                    {"replicas": 9, "maxReplicas": 3},
                    {"minReplicas": 2},
                    {"replicas": 4, "suspend": True},
                ]
            },
            6,
            id="ray keeps to the bounds of its groups",
        ),
        pytest.param(
            "raycluster",
            RAY,
            {
                "enableInTreeAutoscaling": True,
                "workerGroupSpecs": [{"replicas": 7, "minReplicas": 1, "numOfHosts": 4}, {}],
            },
            5,
            id="ray with its autoscaler needs the fewest",
        ),
    ],
)
def test_the_count_is_that_of_the_pods_which_the_controller_makes(
    rule: str, labels: Object, spec: Object, count: int
) -> None:
    (resource,) = (each.resource for each in default_grouping().rules if each.name == rule)
    terms = terms_of(pod(labels), resource, owner(spec))

    assert terms is not None
    assert (terms.is_gang, terms.min_count, terms.stages) == (True, count, None)


def test_pods_that_clean_up_after_a_ray_cluster_are_no_part_of_it() -> None:
    assert default_grouping().group_of(pod({**RAY, "ray.io/node-type": "redis-cleanup"})) is None


EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
JOBS_OF_SET = [
    {"name": "driver", "replicas": 1, "template": {"spec": {}}},
    {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 3, "completions": 3}}},
]
NAME, INDEX = "jobset.sigs.k8s.io/replicatedjob-name", "batch.kubernetes.io/job-completion-index"
BY_NAME = Stages(NAME, (("driver", 1), ("workers", 6)), 1)
ONE_BY_ONE = Stages("jobset.sigs.k8s.io/job-key", (), 1)


@pytest.mark.parametrize(
    ("rule", "labels", "annotations", "spec", "stages"),
    [
        ("jobset", SET, {}, {"replicatedJobs": JOBS_OF_SET}, None),
        ("jobset", SET, {}, {"startupPolicy": {"startupPolicyOrder": "AnyOrder"}, "replicatedJobs": JOBS_OF_SET}, None),
        (
            "jobset",
            SET,
            {},
            {"startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": JOBS_OF_SET},
            BY_NAME,
        ),
        (
            "jobset",
            SET,
            {},
            {
                "replicatedJobs": [
                    JOBS_OF_SET[0],
                    {**JOBS_OF_SET[1], "dependsOn": [{"name": "driver", "status": "Complete"}]},
                ]
            },
            BY_NAME,
        ),
        ("jobset", SET, EXCLUSIVE, {"replicatedJobs": JOBS_OF_SET}, Stages(INDEX, (("0", 3),), 4)),
        (
            "jobset",
            SET,
            {**EXCLUSIVE, "alpha.jobset.sigs.k8s.io/node-selector": "true"},
            {"replicatedJobs": JOBS_OF_SET},
            None,
        ),
        (
            "jobset",
            SET,
            EXCLUSIVE,
            {"startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": JOBS_OF_SET},
            ONE_BY_ONE,
        ),
        (
            "jobset",
            SET,
            {},
            {"replicatedJobs": [{**JOBS_OF_SET[0], "template": {"metadata": {"annotations": EXCLUSIVE}, "spec": {}}}]},
            ONE_BY_ONE,
        ),
        (
            "leaderworkerset",
            {"leaderworkerset.sigs.k8s.io/name": "train"},
            {},
            {"startupPolicy": "LeaderReady", "leaderWorkerTemplate": {"size": 4}},
            Stages("leaderworkerset.sigs.k8s.io/worker-index", (("0", 1),), 3),
        ),
        (
            "leaderworkerset",
            {"leaderworkerset.sigs.k8s.io/name": "train"},
            {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"},
            {"startupPolicy": "LeaderCreated", "leaderWorkerTemplate": {"size": 4}},
            Stages("leaderworkerset.sigs.k8s.io/worker-index", (("0", 1),), 3),
        ),
        (
            "leaderworkerset",
            {"leaderworkerset.sigs.k8s.io/name": "train"},
            {},
            {"startupPolicy": "LeaderCreated", "leaderWorkerTemplate": {"size": 4}},
            None,
        ),
        (
            "mpijob",
            MPI,
            {},
            {
                "launcherCreationPolicy": "WaitForWorkersReady",
                "mpiReplicaSpecs": {"Launcher": {}, "Worker": {"replicas": 4}},
            },
            Stages("training.kubeflow.org/job-role", (("launcher", 1),), 4),
        ),
    ],
)
def test_controllers_that_make_some_pods_only_when_others_run_get_no_gang_of_all(
    rule: str, labels: Object, annotations: Object, spec: Object, stages: Stages | None
) -> None:
    (resource,) = (each.resource for each in default_grouping().rules if each.name == rule)
    terms = terms_of(pod(labels), resource, owner(spec, annotations=annotations))

    assert terms is not None
    assert (terms.is_gang, terms.stages) == (True, stages)


def test_keys_with_dots_stand_in_brackets() -> None:
    obj = {"metadata": {"annotations": {"example.com/a.b": "x"}}, "a": {"b": 1}}

    assert [at(obj, path) for path in ("metadata.annotations[example.com/a.b]", "a.b", "a[b]", "a.c.d")] == [
        "x",
        1,
        1,
        None,
    ]


@pytest.mark.parametrize(
    ("spec", "gang"),
    [
        (INDEXED, True),
        ({**INDEXED, "completions": 5}, False),
        ({**INDEXED, "completionMode": "NonIndexed"}, False),
        ({"parallelism": 4}, False),
    ],
)
def test_a_job_is_a_gang_only_if_all_its_pods_run_at_once(spec: Object, gang: bool) -> None:
    terms = terms_of(pod(owner=JOB_OWNER), KINDS["Job"], owner(spec))

    assert terms is not None
    assert (terms.is_gang, terms.min_count) == ((True, 4) if gang else (False, 1))


def test_an_owner_can_say_that_its_pods_are_no_gang() -> None:
    plain = owner(INDEXED, annotations={"scheduling.muster-k8s.dev/gang": "false"})

    terms = terms_of(pod(owner=JOB_OWNER), KINDS["Job"], plain)

    assert terms is not None
    assert not terms.is_gang


def test_pods_of_the_job_of_a_job_set_belong_to_the_set() -> None:
    found = default_grouping().group_of(pod({"jobset.sigs.k8s.io/jobset-name": "set"}, JOB_OWNER))

    assert found is not None
    assert found.object_key == "team/JobSet:set"


def test_each_part_of_a_split_owner_is_a_group_of_its_own() -> None:
    name, index = "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"
    refs = [default_grouping().group_of(pod({name: "train", index: each})) for each in "01"]

    assert None not in refs
    assert refs[0] != refs[1]
    assert len({ref.object_key for ref in refs if ref}) == 1


@pytest.mark.parametrize(
    ("owner_kind", "labels"),
    [
        ({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x"}, {}),
        (None, {"app": "x"}),
        ({"apiVersion": "other/v1", "kind": "Job", "name": "x"}, {}),
        (None, {"training.kubeflow.org/job-name": "x", "training.kubeflow.org/operator-name": "tfjob-controller"}),
    ],
)
def test_other_pods_are_plain(owner_kind: Object | None, labels: Object) -> None:
    assert default_grouping().group_of(pod(labels, owner_kind)) is None


def test_what_a_pod_names_itself_comes_first() -> None:
    named = pod(owner=JOB_OWNER, schedulingGroup={"podGroupName": "own"})

    ref = default_grouping().group_of(named)

    assert ref is not None
    assert ref.key == "team/own"


def test_groups_of_other_schedulers_count_by_their_marks() -> None:
    grouping = default_grouping()
    volcano = next(each for each in grouping.resources if each.group == "scheduling.volcano.sh")
    member = pod()
    member["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "train"}

    terms = terms_of(member, volcano, owner({"minMember": 6, "priorityClassName": "high"}))

    assert terms is not None
    assert (terms.is_gang, terms.min_count) == (True, 6)


RULE: Object = {
    "name": "own",
    "owner": {"apiVersion": "example.com/v1", "kind": "Train", "plural": "trains"},
    "pods": {"label": "example.com/train"},
    "minCount": [{"number": 2}],
}


def test_own_rules_come_first_and_replace_those_of_their_name() -> None:
    more = parse_rules({"rules": [RULE, {**RULE, "name": "job"}]})

    rules = with_rules(default_grouping(), more).rules

    assert [rule.name for rule in rules[:2]] == ["own", "job"]
    assert [rule.name for rule in rules].count("job") == 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "the file: must be an object"),
        ({"rules": []}, "rules: must be a list with at least one rule"),
        ({"rules": [RULE, RULE]}, "rules: the name 'own' is there twice"),
        ({"rules": [{**RULE, "minMember": 2}]}, "rules[0]: unknown field 'minMember'"),
        ({"rules": [{**RULE, "pods": {}}]}, "rules[0].pods: must have either label"),
        ({"rules": [{**RULE, "owner": {"kind": "A"}}]}, "rules[0].owner.apiVersion: must be text"),
        ({"rules": [{**RULE, "minCount": [{"product": "spec.size"}]}]}, "rules[0].minCount[0].product: must be a list"),
        ({"rules": [{**RULE, "minCount": [{}]}]}, "rules[0].minCount[0]: must have either product, or number"),
        (
            {"rules": [{**RULE, "minCount": [{"product": [{"path": "a", "missing": -1}]}]}]},
            "rules[0].minCount[0].product[0].missing: must be a whole number",
        ),
        ({"rules": [{**RULE, "minCount": [{"product": [5]}]}]}, "rules[0].minCount[0].product[0]: must be a path"),
        ({"rules": [{**RULE, "minCountWhen": [{"when": []}]}]}, "rules[0].minCountWhen[0].minCount: must be a list"),
        (
            {"rules": [{**RULE, "stages": [{"label": "a", "first": "b"}]}]},
            "rules[0].stages[0]: each goes with name, and",
        ),
        ({"rules": [{**RULE, "stages": {}}]}, "rules[0].stages: must be a list"),
        ({"rules": [{**RULE, "when": [{"path": "a"}]}]}, "rules[0].when[0]: must have one of equals"),
    ],
)
def test_a_wrong_rule_is_named_by_its_field(value: JSON, message: str) -> None:
    with pytest.raises(GroupingError) as error:
        parse_rules(value)

    assert str(error.value).startswith(message)
