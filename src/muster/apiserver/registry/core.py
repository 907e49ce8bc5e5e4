"""Namespaces, nodes, events and other kinds of the core group with few rules of their own."""

from __future__ import annotations

from collections.abc import Mapping

from muster.api.codec import Object
from muster.apiserver.context import Context
from muster.apiserver.errors import Qualified, forbidden
from muster.apiserver.fields import FieldError, label_problems
from muster.apiserver.registry.strategy import Strategy

IMMORTAL_NAMESPACES = ("default", "kube-system", "kube-public")
NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
NOT_READY_TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class NamespaceStrategy(Strategy):
    """Deletion waits until `spec.finalizers` is empty (the namespace controller's part)."""

    has_status = True
    returns_deleted = True
    selectable_names = frozenset(("status.phase", "name"))

    def name_problems(self, name: str) -> list[str]:
        if "." in name:
            return ["must not contain dots"]
        return label_problems(name)

    def default(self, obj: Object, ctx: Context) -> None:
        name = obj["metadata"].get("name")
        if name:
            obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), NAMESPACE_NAME_LABEL: name}

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        spec = dict(obj.get("spec") or {})
        finalizers = spec.get("finalizers") or []
        spec["finalizers"] = finalizers if "kubernetes" in finalizers else [*finalizers, "kubernetes"]
        obj["spec"] = spec
        obj["status"] = {"phase": "Active"}
        name = obj["metadata"].get("name")
        if name:
            obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), NAMESPACE_NAME_LABEL: name}

    def prepare_update(self, new: Object, old: Object, ctx: Context) -> None:
        spec = dict(new.get("spec") or {})
        spec["finalizers"] = (old.get("spec") or {}).get("finalizers") or []
        if not spec["finalizers"]:
            del spec["finalizers"]
        new["spec"] = spec

    def selectable(self, obj: Object) -> Mapping[str, str]:
        return {"status.phase": (obj.get("status") or {}).get("phase", ""), "name": obj["metadata"]["name"]}

    def admit_delete(self, obj: Object, ctx: Context) -> None:
        name = obj["metadata"]["name"]
        if name in IMMORTAL_NAMESPACES:
            raise forbidden(Qualified("", "namespaces"), name, "this namespace may not be deleted")

    def mark_deleted(self, obj: Object, ctx: Context) -> None:
        obj["metadata"].pop("deletionGracePeriodSeconds", None)
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}

    def holds_deletion(self, obj: Object) -> bool:
        return bool((obj.get("spec") or {}).get("finalizers"))


class NodeStrategy(Strategy):
    """A node keeps the status that it is created with."""

    has_status = False
    selectable_names = frozenset(("spec.unschedulable",))

    def default(self, obj: Object, ctx: Context) -> None:
        status = obj.get("status")
        if status and status.get("capacity") and not status.get("allocatable"):
            status["allocatable"] = dict(status["capacity"])

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        wanted = ctx.options.taint_new_nodes
        if wanted if wanted is not None else not ctx.options.is_lenient:
            spec = obj.setdefault("spec", {})
            taints = spec.get("taints") or []
            if not any(taint.get("key") == NOT_READY_TAINT["key"] for taint in taints):
                spec["taints"] = [*taints, dict(NOT_READY_TAINT)]

    def prepare_update(self, new: Object, old: Object, ctx: Context) -> None:
        if "status" in old:
            new["status"] = old["status"]
        else:
            new.pop("status", None)

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        return []

    def selectable(self, obj: Object) -> Mapping[str, str]:
        return {"spec.unschedulable": "true" if (obj.get("spec") or {}).get("unschedulable") else "false"}


_EVENT_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


class EventStrategy(Strategy):
    """Events of the core group."""

    creates_on_update = True
    selectable_names = frozenset(
        (*(f"involvedObject.{field}" for field in _EVENT_FIELDS), "reason", "reportingComponent", "source", "type")
    )

    def selectable(self, obj: Object) -> Mapping[str, str]:
        about, source = obj.get("involvedObject") or {}, obj.get("source") or {}
        component = obj.get("reportingComponent") or source.get("component") or ""
        return {
            **{f"involvedObject.{field}": about.get(field) or "" for field in _EVENT_FIELDS},
            "reason": obj.get("reason") or "",
            "reportingComponent": obj.get("reportingComponent") or "",
            "source": source.get("component") or component,
            "type": obj.get("type") or "",
        }


class LeaseStrategy(Strategy):
    """Leases may be created by an update."""

    creates_on_update = True


class ServiceStrategy(Strategy):
    """Services are only stored."""

    has_status = True
    returns_deleted = True


class ReturnsDeletedStrategy(Strategy):
    """A stored kind whose DELETE answers with the object."""

    returns_deleted = True


class StatusStrategy(Strategy):
    """A stored kind with a status sub-resource."""

    has_status = True


class ScalableStrategy(Strategy):
    """A stored kind with a status sub-resource and a generation."""

    has_status = True
    counts_generation = True
