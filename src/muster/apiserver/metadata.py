"""The rules of metadata that all kinds share: names, uids, generations, what an update may not change.

Source: apimachinery `pkg/api/validation/objectmeta.go`, apiserver `pkg/registry/rest/{create,update}.go`.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from muster.api.codec import Object
from muster.apiserver.context import Context
from muster.apiserver.fields import (
    FieldError,
    forbidden_field,
    invalid_value,
    qualified_name_problems,
    required,
    shown,
    validate_labels,
)
from muster.apiserver.registry.strategy import Strategy

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_BASE = 58
_ATTEMPTS = 8
STANDARD_FINALIZERS = frozenset(("kubernetes", "orphan", "foregroundDeletion"))
ANNOTATIONS_BYTES = 256 * 1024


def random_suffix(rng: random.Random) -> str:
    """Five characters that make a generated name unique."""
    return "".join(rng.choices(_SUFFIX_ALPHABET, k=5))


def random_uid(rng: random.Random) -> str:
    """A random UUID (version 4) as text."""
    bits = rng.getrandbits(128) & ~(0xF << 76) & ~(0x3 << 62) | (0x4 << 76) | (0x2 << 62)
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def generate_name(metadata: Object, rng: random.Random, is_taken: Callable[[str], bool]) -> None:
    """Make a name from generateName where there is none yet; a name that is taken is drawn again, a few times."""
    base = metadata.get("generateName")
    if not base or metadata.get("name"):
        return
    for _ in range(_ATTEMPTS):
        metadata["name"] = base[:_LONGEST_BASE] + random_suffix(rng)
        if not is_taken(metadata["name"]):
            return


def complete_new(metadata: Object, ctx: Context) -> None:
    """Set what the server decides of a new object's metadata."""
    for name in (
        "resourceVersion",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "managedFields",
        "generation",
    ):
        metadata.pop(name, None)
    metadata["uid"] = random_uid(ctx.rng)
    metadata["creationTimestamp"] = ctx.timestamp


def restore_fixed(metadata: Object, old: Object) -> None:
    """Put back what only the server may change. managedFields are left out: the caller sets them."""
    for name in (
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "namespace",
        "generateName",
    ):
        if name in old:
            metadata[name] = old[name]
        else:
            metadata.pop(name, None)
    metadata.pop("managedFields", None)
    metadata.pop("selfLink", None)


def validate_metadata(metadata: Object, strategy: Strategy) -> list[FieldError]:
    """Name, labels, annotations, owners and finalizers."""
    errors: list[FieldError] = []
    name = metadata.get("name") or ""
    base = metadata.get("generateName")
    if base:
        # A prefix may end with a dash: it is checked with a letter behind it.
        problems = strategy.name_problems(base[:-1] + "a" if base.endswith("-") else base)
        errors += [invalid_value("metadata.generateName", base, problem) for problem in problems]
    if not name:
        errors.append(required("metadata.name", "name or generateName is required"))
    else:
        errors += [invalid_value("metadata.name", name, problem) for problem in strategy.name_problems(name)]
    return errors + _validate_maps(metadata) + _validate_owners(metadata) + _validate_finalizers(metadata)


def _validate_maps(metadata: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    labels, annotations = metadata.get("labels"), metadata.get("annotations")
    if labels:
        errors += validate_labels(labels, "metadata.labels")
    if annotations:
        for key in sorted(annotations):
            problems = qualified_name_problems(key.lower())
            errors += [invalid_value("metadata.annotations", key, problem) for problem in problems]
        if sum(len(key) + len(str(value)) for key, value in annotations.items()) > ANNOTATIONS_BYTES:
            body = f"Too long: may not be more than {ANNOTATIONS_BYTES} bytes"
            errors.append(FieldError("FieldValueTooLong", "metadata.annotations", body))
    return errors


def _validate_owners(metadata: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    controllers: list[str] = []
    for index, owner in enumerate(metadata.get("ownerReferences") or ()):
        field = f"metadata.ownerReferences[{index}]"
        for name in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(name):
                errors.append(
                    invalid_value(
                        f"{field}.{name}",
                        "",
                        "version must not be empty" if name == "apiVersion" else f"{name} must not be empty",
                    )
                )
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    if len(controllers) > 1:
        why = (
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{controllers[0]} and {controllers[1]}"
        )
        errors.append(invalid_value("metadata.ownerReferences", metadata["ownerReferences"], why))
    return errors


def _validate_finalizers(metadata: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    finalizers = metadata.get("finalizers") or ()
    for index, name in enumerate(finalizers):
        field = f"metadata.finalizers[{index}]"
        problems = qualified_name_problems(name)
        if problems:
            errors += [invalid_value(field, name, problem) for problem in problems]
        elif "/" not in name and name not in STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            errors.append(invalid_value(field, name, why))
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        why = "finalizer orphan and foregroundDeletion cannot be both set"
        errors.append(invalid_value("metadata.finalizers", list(finalizers), why))
    return errors


def validate_metadata_update(new: Object, old: Object, strategy: Strategy) -> list[FieldError]:
    """What an update does to metadata."""
    errors = _validate_maps(new) + _validate_owners(new) + _validate_finalizers(new)
    if old.get("deletionTimestamp"):
        before = old.get("finalizers") or ()
        added = [name for name in new.get("finalizers") or () if name not in before]
        if added:
            found = "[]string{" + ", ".join(shown(name) for name in added) + "}"
            why = f"no new finalizers can be added if the object is being deleted, found new finalizers {found}"
            errors.append(forbidden_field("metadata.finalizers", why))
    if new.get("name") != old.get("name"):
        errors.append(invalid_value("metadata.name", new.get("name"), "field is immutable"))
    return errors
