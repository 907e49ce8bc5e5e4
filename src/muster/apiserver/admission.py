"""What is decided about a write before anything of its kind is looked at.

Source: upstream's admission plugin NamespaceLifecycle. Rules of single kinds are in their strategies (`admit_…`).
"""

from __future__ import annotations

from muster.apiserver.context import Context
from muster.apiserver.errors import Qualified, forbidden, not_found
from muster.apiserver.resources import Served


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
