"""Pods of one owner as a gang, by rules."""

from __future__ import annotations

import pytest

from muster.api.codec import JSON, Object
from muster.api.grouping import Grouping, GroupingError, default_grouping, parse_rules, with_rules
from muster.api.groups import GroupTerms, find_terms
from muster.api.resource import Resource

KINDS = {rule.resource.kind: rule.resource for rule in default_grouping().rules}


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
        ({"rules": [{**RULE, "when": [{"path": "a"}]}]}, "rules[0].when[0]: must have either equals"),
    ],
)
def test_a_wrong_rule_is_named_by_its_field(value: JSON, message: str) -> None:
    with pytest.raises(GroupingError) as error:
        parse_rules(value)

    assert str(error.value).startswith(message)
