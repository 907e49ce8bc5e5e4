"""What one kind adds to the generic handling of requests.

Source of the split: apiserver `pkg/registry/rest` (create, update and delete strategies).
Methods change the object they are given (a fresh copy) and never the old one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from muster.api.codec import Object, Objects
from muster.apiserver.context import Context
from muster.apiserver.fields import FieldError, subdomain_problems

GarbagePolicy = Literal["background", "orphan"]


class Strategy:
    """The rules of a kind that is only stored; other kinds override what they need."""

    is_stored: ClassVar[bool] = True
    """Otherwise objects of the kind are questions: POST is answered by `answer`, and there are no other verbs."""
    has_status: ClassVar[bool] = False
    """A status sub-resource exists: the main resource ignores the status."""
    status_keeps_metadata: ClassVar[bool] = False
    """An update of the status sub-resource does not change labels, annotations and the like."""
    counts_generation: ClassVar[bool] = False
    """metadata.generation starts at 1 and grows with every change of what is not status or metadata."""
    starts_generation: ClassVar[bool] = False
    """metadata.generation is 1 and stays so."""
    creates_on_update: ClassVar[bool] = False
    """PUT of an unknown name creates the object."""
    needs_version_on_update: ClassVar[bool] = False
    """PUT without a resourceVersion is refused."""
    knows_finalizers: ClassVar[bool] = True
    """Finalizers without a domain must be Kubernetes' own ones."""
    revalidates_metadata: ClassVar[bool] = True
    """An update checks the metadata of the new object as that of one that is created, too."""
    returns_deleted: ClassVar[bool] = False
    """A completed DELETE answers with the object instead of a Status."""
    garbage_policy: ClassVar[GarbagePolicy] = "background"
    """What DELETE without a propagationPolicy means for the dependents."""
    deletion_finalizers: ClassVar[tuple[str, ...]] = ()
    """Finalizers that the server adds when a deletion begins."""
    selectable_names: ClassVar[frozenset[str]] = frozenset()
    """The fields that field selectors may name besides metadata.name and metadata.namespace."""

    def name_problems(self, name: str) -> list[str]:
        """What is wrong with a name of this kind."""
        return subdomain_problems(name)

    def default(self, obj: Object, ctx: Context) -> None:
        """Fill in default values."""

    def answer(self, obj: Object, ctx: Context) -> Object:
        """The answer to a valid question of a kind that is not stored."""
        return obj

    def computed(self, ctx: Context, namespace: str) -> Objects | None:
        """All objects of a kind that nobody stores, of one namespace or ("") of all; None if the kind is stored."""
        return None

    def admit_create(self, obj: Object, ctx: Context) -> None:
        """Complete a new object from others, before `prepare_create`. Raises StatusError to refuse it."""

    def review_create(self, obj: Object, ctx: Context) -> None:
        """Refuse a valid new object with StatusError, for what others say."""

    def review_update(self, new: Object, old: Object, ctx: Context) -> None:
        """Refuse a valid change with StatusError, for what others say."""

    def admit_delete(self, obj: Object, ctx: Context) -> None:
        """Refuse a deletion with StatusError."""

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        """Reset what a client may not set on creation. The status is already gone if `has_status`."""

    def prepare_update(self, new: Object, old: Object, ctx: Context) -> None:
        """Restore what an update of the main resource may not change. The status is already the old one."""

    def prepare_status(self, new: Object, old: Object, ctx: Context) -> None:
        """Adjust an update through the status sub-resource; only the status differs from `old`."""

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        """What is wrong with a new object."""
        return []

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        """What is wrong with a change; by default that of a new object."""
        return self.validate(new, ctx)

    def validate_status(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        """What is wrong with a change of the status."""
        return []

    def selectable(self, obj: Object) -> Mapping[str, str]:
        """The values of `selectable_names`; absent means ""."""
        return {}

    def grace_period_s(self, obj: Object, requested: int | None) -> int | None:
        """How long a deleted object stays for its node to end it; None if this kind is removed at once."""
        return None

    def mark_deleted(self, obj: Object, ctx: Context) -> None:
        """Change more than metadata when the deletion starts."""

    def holds_deletion(self, obj: Object) -> bool:
        """Whether something besides metadata.finalizers keeps a deleted object."""
        return False
