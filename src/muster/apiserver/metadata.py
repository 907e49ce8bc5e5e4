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
    path_segment_problems,
    qualified_name_problems,
    required,
    shown,
    validate_annotations,
    validate_labels,
)
from muster.apiserver.registry.strategy import Strategy

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_BASE = 58
_ATTEMPTS = 8
STANDARD_FINALIZERS = frozenset(("kubernetes", "orphan", "foregroundDeletion"))


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
    ):
        metadata.pop(name, None)
    if not metadata.get("generation"):
        metadata.pop("generation", None)
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
    ):
        if name in old:
            metadata[name] = old[name]
        else:
            metadata.pop(name, None)
    metadata.pop("managedFields", None)


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
    generation = metadata.get("generation") or 0
    if generation < 0:
        errors.append(invalid_value("metadata.generation", generation, "must be greater than or equal to 0"))
    errors += _validate_maps(metadata) + _validate_owners(metadata) + _validate_finalizers(metadata)
    return errors + _validate_own_finalizers(metadata, strategy)


def _validate_maps(metadata: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    labels, annotations = metadata.get("labels"), metadata.get("annotations")
    if labels:
        errors += validate_labels(labels, "metadata.labels")
    if annotations:
        errors += validate_annotations(annotations, "metadata.annotations")
    return errors


def _validate_owners(metadata: Object) -> list[FieldError]:
    """Owner references; upstream's paths leave the index out."""
    at = "metadata.ownerReferences"
    errors: list[FieldError] = []
    controllers: list[str] = []
    for owner in metadata.get("ownerReferences") or ():
        version, kind = owner.get("apiVersion") or "", owner.get("kind") or ""
        # What is no group and version has no version: Go's parser says so about two slashes, too.
        if not version or version.count("/") > 1:
            errors.append(invalid_value(f"{at}.apiVersion", version, "version must not be empty"))
        for name in ("kind", "name", "uid"):
            if not owner.get(name):
                errors.append(invalid_value(f"{at}.{name}", "", "must not be empty"))
        if (version, kind) == ("v1", "Event"):
            errors.append(invalid_value(at, owner, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            controllers.append(f"{kind}/{owner.get('name')}")
    if len(controllers) > 1:
        why = (
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{controllers[0]} and {controllers[1]}"
        )
        errors.append(invalid_value(at, metadata["ownerReferences"], why))
    return errors


def _validate_finalizers(metadata: Object) -> list[FieldError]:
    """What holds for the finalizers of all kinds."""
    errors: list[FieldError] = []
    finalizers = metadata.get("finalizers") or ()
    for name in finalizers:
        errors += [invalid_value("metadata.finalizers", name, problem) for problem in qualified_name_problems(name)]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        why = "finalizer orphan and foregroundDeletion cannot be both set"
        errors.append(invalid_value("metadata.finalizers", list(finalizers), why))
    return errors


def _validate_own_finalizers(metadata: Object, strategy: Strategy) -> list[FieldError]:
    """Finalizers without a domain are Kubernetes' own; the oldest kinds see to it."""
    if not strategy.knows_finalizers:
        return []
    return [
        invalid_value(f"metadata.finalizers[{index}]", name, problem)
        for index, name in enumerate(metadata.get("finalizers") or ())
        for problem in own_finalizer_problems(name)
    ]


def own_finalizer_problems(name: str) -> list[str]:
    """What is wrong with a finalizer that has no domain. Source: upstream `validateKubeFinalizerName`."""
    if "/" in name or name in STANDARD_FINALIZERS:
        return []
    return ["name is neither a standard finalizer name nor is it fully qualified"]


_FIXED = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")


def validate_fixed(new: Object, old: Object) -> list[FieldError]:
    """What only the server says may be sent along as it is; leaving it out is no change. Say so before `restore_fixed`.

    Upstream checks this twice, once for all kinds and once for the kind.
    """
    return [
        invalid_value(f"metadata.{name}", new[name], "field is immutable")
        for name in _FIXED
        if new.get(name) not in (None, "") and new[name] != old.get(name)
        for _ in range(2)
    ]


def validate_metadata_update(new: Object, old: Object, strategy: Strategy, *, repeats: bool) -> list[FieldError]:
    """What an update does to metadata.

    `repeats`: errors come as often as upstream finds them: it checks an update for all kinds, then the new object as
    a whole, then the update again for the kind, and most kinds then the new object again.
    Source: apiserver `registry/rest/update.go`, apimachinery `api/validation/objectmeta.go`.
    """
    errors = _validate_no_new_finalizers(new, old)
    if new.get("name") != old.get("name"):
        errors.append(invalid_value("metadata.name", new.get("name"), "field is immutable"))
    maps, finalizers = _validate_maps(new) + _validate_owners(new), _validate_finalizers(new)
    own = _validate_own_finalizers(new, strategy)
    if not repeats:
        return errors + maps + finalizers + own
    again = strategy.revalidates_metadata
    base = new.get("generateName")
    prefix = (
        [invalid_value("metadata.generateName", base, text) for text in path_segment_problems(base)] if base else []
    )
    if again and base:
        problems = strategy.name_problems(base[:-1] + "a" if base.endswith("-") else base)
        prefix += [invalid_value("metadata.generateName", base, problem) for problem in problems]
    return errors * 2 + prefix + maps * (4 if again else 3) + finalizers * (1 + again) + own * (1 + again)


def _validate_no_new_finalizers(new: Object, old: Object) -> list[FieldError]:
    if not old.get("deletionTimestamp"):
        return []
    before = old.get("finalizers") or ()
    added = [name for name in new.get("finalizers") or () if name not in before]
    if not added:
        return []
    found = "[]string{" + ", ".join(shown(name) for name in added) + "}"
    why = f"no new finalizers can be added if the object is being deleted, found new finalizers {found}"
    return [forbidden_field("metadata.finalizers", why)]
