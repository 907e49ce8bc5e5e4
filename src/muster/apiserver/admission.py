"""What is decided about a write beyond its own object: namespaces, priorities, finalizers of groups.

Source: upstream's admission plugins of the same names.
"""

from __future__ import annotations

from muster.api.codec import Object
from muster.apiserver.context import Context
from muster.apiserver.errors import Qualified, forbidden, not_found
from muster.apiserver.resources import Served

PROTECTED_NAMESPACES = ("default", "kube-system", "kube-public")


def namespace_lifecycle(ctx: Context, served: Served, namespace: str, name: str) -> None:
    """A namespace must exist and not be terminating for anything to be created in it (NamespaceLifecycle)."""
    found = ctx.read("namespaces", "", namespace)
    if found is None:
        raise not_found(Qualified("", "namespaces"), namespace)
    if found["metadata"].get("deletionTimestamp"):
        of = Qualified(served.resource.group, served.resource.plural)
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        causes = [
            {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
        ]
        raise forbidden(of, name, why, causes)


def admit_create(ctx: Context, served: Served, obj: Object) -> None:
    """Complete or refuse a new object."""
    served.strategy.admit_create(obj, ctx)
