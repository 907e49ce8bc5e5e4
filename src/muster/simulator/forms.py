"""What of a manifest its kind has, and what it does not have; why a server refuses one. Pure."""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from muster.api.manifests import Manifest, ManifestError, resource_of
from muster.apiserver.decoding import Types, WrongValue
from muster.apiserver.schema import facts
from muster.client.transport import ApiError


def decoded(manifest: Manifest, release: str = "") -> tuple[Manifest, list[str]]:
    """The manifest with the fields that its kind has in a release (`1.36`; `` for all), and what is said of others.

    Values are as a server would read them: nothing is null. Raises `ManifestError` for a value of a wrong type.
    """
    resource = resource_of(manifest.object)
    if resource is None:
        raise manifest.error(f"no kind {manifest.object.get('kind')!r} is known in {manifest.object.get('apiVersion')}")
    kind, version = resource.kind, resource.version
    try:
        obj, unknown = _types(release).decode(resource, manifest.object)
    except WrongValue as error:
        why = f'{kind} in version "{version}" cannot be handled as a {kind}: {error.message(kind)}'
        raise manifest.refused(why) from error
    obj.setdefault("metadata", {})
    known = {**obj, "apiVersion": manifest.object["apiVersion"], "kind": kind}
    return replace(manifest, object=known), [f'unknown field "{path}"' for path in unknown]


@lru_cache(maxsize=4)
def _types(release: str) -> Types:
    return Types(release)


def fault_of(manifest: Manifest) -> str:
    """What is wrong with the types of its values, in whatever release; "" for nothing."""
    try:
        decoded(manifest)
    except ManifestError as error:
        return error.message
    return ""


def refusal(manifest: Manifest, error: ApiError) -> str:
    """Why a server refuses a manifest."""
    resource = resource_of(manifest.object)
    if error.code != 404 or resource is None or (error.status.get("details") or {}).get("name"):
        return str(error)
    known = sorted(
        version
        for group, version, kind in facts().names
        if (group, kind) == (resource.group, resource.kind) and version != resource.version
    )
    others = " or ".join(f"{resource.group}/{version}" if resource.group else version for version in known)
    hint = f": {others} has it" if others else ""
    return f"{resource.api_version} has no kind {resource.kind} in this cluster{hint}"
