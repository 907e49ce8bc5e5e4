"""Builders of CustomResourceDefinitions, among them small ones of the shape that well-known projects have."""

from __future__ import annotations

from muster.api.codec import JSON, Object

ANY: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CONDITIONS: Object = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": {
        "type": "object",
        "required": ["type", "status"],
        "properties": {
            name: {"type": "string"} for name in ("type", "status", "reason", "message", "lastTransitionTime")
        },
    },
}


def make_definition(
    kind: str,
    spec: Object | None = None,
    *,
    group: str = "example.com",
    version: str = "v1",
    scope: str = "Namespaced",
    plural: str = "",
    short: str = "",
    status: Object | None = None,
    **more: JSON,
) -> Object:
    """A definition with one version. `spec`, `status`: the schemas of these fields; `more` goes into the version."""
    plural = plural or f"{kind.lower()}s"
    properties: Object = {"spec": spec if spec is not None else ANY}
    if status is not None:
        properties["status"] = status
        more = {"subresources": {"status": {}}, **more}
    entry: Object = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        **more,
    }
    names: Object = {"plural": plural, "kind": kind}
    if short:
        names["shortNames"] = short.split()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": [entry]},
    }


def job_set() -> Object:
    """Like a JobSet: a keyed list of replicated jobs, frozen by a transition rule; status with columns."""
    job = {
        "type": "object",
        "required": ["name", "template"],
        "properties": {
            "name": {"type": "string", "maxLength": 63},
            "replicas": {"type": "integer", "format": "int32", "default": 1, "minimum": 0},
            "template": ANY,
        },
    }
    jobs = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": job,
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "jobs cannot be changed"}],
    }
    spec: Object = {
        "type": "object",
        "properties": {
            "suspend": {"type": "boolean"},
            "replicatedJobs": jobs,
            "successPolicy": {
                "type": "object",
                "properties": {"operator": {"type": "string", "enum": ["All", "Any"], "default": "All"}},
            },
        },
    }
    status = {
        "type": "object",
        "properties": {"conditions": CONDITIONS, "restarts": {"type": "integer"}, "terminalState": {"type": "string"}},
    }
    columns = [
        {"name": "TerminalState", "type": "string", "jsonPath": ".status.terminalState"},
        {"name": "Completed", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Completed")].status'},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    return make_definition(
        "JobSet", spec, group="jobset.x-k8s.io", version="v1alpha2", status=status, additionalPrinterColumns=columns
    )


def leader_worker_set() -> Object:
    """Like a LeaderWorkerSet: the scale sub-resource with a selector, an int-or-string, nested defaults."""
    rollout = {
        "type": "object",
        "default": {"type": "RollingUpdate"},
        "properties": {
            "type": {"type": "string", "default": "RollingUpdate"},
            "maxUnavailable": {
                "x-kubernetes-int-or-string": True,
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "default": 1,
            },
        },
    }
    workers = {
        "type": "object",
        "required": ["workerTemplate"],
        "properties": {"size": {"type": "integer", "minimum": 1, "default": 1}, "workerTemplate": ANY},
        "x-kubernetes-validations": [
            {"rule": "has(oldSelf.size) && self.size == oldSelf.size", "message": "size cannot be changed"}
        ],
    }
    spec: Object = {
        "type": "object",
        "required": ["leaderWorkerTemplate"],
        "properties": {
            "replicas": {"type": "integer", "default": 1},
            "rolloutStrategy": rollout,
            "leaderWorkerTemplate": workers,
        },
    }
    status = {
        "type": "object",
        "properties": {
            "replicas": {"type": "integer"},
            "hpaPodSelector": {"type": "string"},
            "conditions": CONDITIONS,
        },
    }
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.hpaPodSelector",
    }
    return make_definition(
        "LeaderWorkerSet",
        spec,
        group="leaderworkerset.x-k8s.io",
        short="lws",
        status=status,
        subresources={"status": {}, "scale": scale},
    )


def cluster_queue() -> Object:
    """Like a ClusterQueue: cluster scope, two versions, quantities, rules over lists."""
    flavor = {
        "type": "object",
        "required": ["name", "resources"],
        "properties": {
            "name": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
            "resources": {
                "type": "array",
                "maxItems": 16,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name", "nominalQuota"],
                    "properties": {
                        "name": {"type": "string"},
                        "nominalQuota": {
                            "anyOf": [{"type": "integer"}, {"type": "string"}],
                            "x-kubernetes-int-or-string": True,
                        },
                    },
                },
            },
        },
    }
    spec: Object = {
        "type": "object",
        "properties": {
            "cohort": {"type": "string"},
            "queueingStrategy": {
                "type": "string",
                "enum": ["StrictFIFO", "BestEffortFIFO"],
                "default": "BestEffortFIFO",
            },
            "flavors": {"type": "array", "maxItems": 16, "items": flavor},
        },
        "x-kubernetes-validations": [
            {
                "rule": "!has(self.flavors) || self.flavors.all(f, f.resources.exists(r, r.name == 'cpu'))",
                "messageExpression": "'queue with ' + string(self.flavors.size()) + ' flavors: each needs cpu'",
                "reason": "FieldValueForbidden",
            }
        ],
    }
    definition = make_definition(
        "ClusterQueue",
        spec,
        group="kueue.x-k8s.io",
        version="v1beta1",
        scope="Cluster",
        short="cq",
        status={"type": "object", "properties": {"pendingWorkloads": {"type": "integer"}, "conditions": CONDITIONS}},
    )
    definition["spec"]["names"]["categories"] = ["batch"]
    (older,) = definition["spec"]["versions"]
    added = {**spec["properties"], "stopPolicy": {"type": "string", "default": "None"}}
    schema = {"type": "object", "properties": {"spec": {**spec, "properties": added}, "status": ANY}}
    newer = {
        **older,
        "name": "v1beta2",
        "storage": False,
        "schema": {"openAPIV3Schema": schema},
    }
    definition["spec"]["versions"].append(newer)
    return definition


def training_job() -> Object:
    """Like a Kubeflow training job: a map of replica specs with whole pod templates in it."""
    replicas = {
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer", "format": "int32"},
                "restartPolicy": {"type": "string"},
                "template": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                    "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                },
            },
        },
    }
    spec: Object = {
        "type": "object",
        "required": ["replicaSpecs"],
        "properties": {"replicaSpecs": replicas, "runPolicy": {"type": "object", "properties": {}}},
    }
    columns = [
        {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"},
        {"name": "Workers", "type": "integer", "jsonPath": ".spec.replicaSpecs.Worker.replicas", "priority": 1},
    ]
    return make_definition(
        "TrainJob",
        spec,
        group="trainer.kubeflow.org",
        status={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        additionalPrinterColumns=columns,
    )
