"""What fields are for, in words, where an optional package brings them: kubernetes-validate, which carries upstream's
descriptions of each release. Without it there are none, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from muster.api.codec import Object, loads

PACKAGE = "kubernetes_validate"


@lru_cache(maxsize=4)
def descriptions(release: str) -> Mapping[str, str]:
    """The descriptions of a release such as `1.37`, by definition and field: `api.core.v1.PodSpec#nodeName`."""
    path = _definitions_file(release)
    if path is None:
        return {}
    definitions: Mapping[str, Object] = loads(path.read_bytes())["$defs"]
    return {
        f"{name.removeprefix('io.k8s.')}#{field}": schema["description"]
        for name, definition in definitions.items()
        for field, schema in (definition.get("properties") or {}).items()
        if "description" in schema
    }


def _definitions_file(release: str) -> Path | None:
    spec = find_spec(PACKAGE)
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(place) / "kubernetes-json-schema" / f"v{release}.0-local" / "_definitions.json"
        if path.is_file():
            return path
    return None
