"""Make `src/muster/apiserver/data/schemas.json.gz`: facts about the fields of Kubernetes' kinds, without prose.

Usage: python hack/openapi_facts.py SCHEMAS OUTPUT
SCHEMAS is the directory `kubernetes_validate/kubernetes-json-schema` of the published package kubernetes-validate
(1.37.0, Apache-2.0), which holds one `_definitions.json` a release. Kept are field names, types, formats, references,
required fields, and the list, map and patch extensions; where releases differ, the newest wins, and what is not in
all of them carries `x-releases`.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

RELEASES = ("1.35", "1.36", "1.37")
KEPT = ("type", "format", "required", "x-kubernetes-group-version-kind", "x-kubernetes-unions")
LIST_AND_PATCH = "x-kubernetes-"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"


def single_type(value: object) -> object:
    """`["array", "null"]` is `array`: a list of types breaks `kubectl explain`, and null is allowed everywhere."""
    if isinstance(value, list):
        return next(item for item in value if item != "null")
    return value


def fact(schema: dict[str, object]) -> dict[str, object]:
    """One schema without prose, references turned into those of OpenAPI v3."""
    out: dict[str, object] = {}
    for key, value in schema.items():
        if key == "$ref":
            out[key] = str(value).replace("#/$defs/", "#/components/schemas/")
        elif key == "type":
            out[key] = single_type(value)
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            out[key] = fact(value)
        elif key == "properties" and isinstance(value, dict):
            out[key] = {name: fact(child) for name, child in sorted(value.items())}
        elif key in KEPT or key.startswith(LIST_AND_PATCH):
            out[key] = value
    return out


def definition(name: str, schema: dict[str, object]) -> dict[str, object]:
    """One definition; the two types that JSON writes in two ways become strings with a format."""
    if name == INT_OR_STRING:
        return {"type": "string", "format": "int-or-string"}
    if name == QUANTITY:
        return {"type": "string", "format": "quantity"}
    return fact(schema)


def merge(by_release: dict[str, dict[str, dict[str, object]]]) -> dict[str, object]:
    """All releases in one: definitions and properties, marked where they are not in every release."""
    merged: dict[str, object] = {}
    for name in sorted({name for definitions in by_release.values() for name in definitions}):
        having = {release: by_release[release][name] for release in RELEASES if name in by_release[release]}
        newest = dict(having[max(having)])
        if len(having) < len(RELEASES):
            newest["x-releases"] = sorted(having)
        properties: dict[str, dict[str, object]] = {}
        for release, schema in having.items():
            for field, child in dict(schema.get("properties", {})).items():  # type: ignore[call-overload]  # a JSON object
                since = properties.get(field, {}).get("x-releases", [])
                properties[field] = {**child, "x-releases": [*since, release]}  # type: ignore[misc]  # a list of names
        for child in properties.values():
            if child["x-releases"] == sorted(having):
                del child["x-releases"]
        if properties:
            newest["properties"] = dict(sorted(properties.items()))
        merged[name] = newest
    return merged


def main(source: Path, output: Path) -> None:
    by_release = {}
    for release in RELEASES:
        text = (source / f"v{release}.0-local" / "_definitions.json").read_text()
        definitions = json.loads(text)["$defs"]
        by_release[release] = {name: definition(name, schema) for name, schema in definitions.items()}
    facts = {"releases": RELEASES, "definitions": merge(by_release)}
    data = json.dumps(facts, separators=(",", ":"), sort_keys=True).encode()
    output.write_bytes(gzip.compress(data, compresslevel=9, mtime=0))
    sys.stdout.write(f"{len(facts['definitions'])} definitions, {len(data)} bytes, {output.stat().st_size} packed\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
