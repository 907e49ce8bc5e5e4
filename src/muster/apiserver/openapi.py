"""OpenAPI v3 documents, one a group version: enough for `kubectl apply`, `create -f`, `edit`, `diff` and `explain`.

What clients need of them (paths with a PATCH that names the kind and `fieldValidation`, merge keys, single types) is in
the project's notes on kubectl; the documents carry no descriptions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from muster.api.codec import JSON, Object, canonical, dumps
from muster.apiserver.discovery import NEWEST_RELEASE
from muster.apiserver.errors import failure
from muster.apiserver.options import ServerOptions
from muster.apiserver.request import ApiRequest
from muster.apiserver.resources import ResourceTable, Served, Subresource
from muster.apiserver.schema import ALL_RELEASES, Facts, facts
from muster.client.transport import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Response

ROOT = "/openapi/v3"
_REF = "#/components/schemas/"
_JSON = "application/json"
_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_PATCHES = (APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH)
_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")


class OpenApi:
    """Answers `/openapi/v3` and what is below it. A document is made when it is first asked for."""

    def __init__(self, resources: ResourceTable, options: ServerOptions) -> None:
        self._resources = resources
        self._seen = resources.changes
        self._release = options.emulate or NEWEST_RELEASE
        self._facts_of = options.emulate or ALL_RELEASES
        self._documents: dict[str, bytes] = {}

    def answer(self, request: ApiRequest) -> Response | None:
        """The answer to an OpenAPI request; None if the path is something else."""
        path = request.path.rstrip("/")
        if not path.startswith("/openapi/"):
            return None
        if self._seen != self._resources.changes:
            self._seen = self._resources.changes
            self._documents.clear()
        if path == ROOT:
            return Response(200, self._index())
        if path == "/openapi/v2" and "protobuf" in request.headers.get("accept", ""):
            return Response(200, empty_v2(self._release), {"Content-Type": _V2_PROTOBUF})
        served = {_path(group, version): (group, version) for group, version in self._resources.group_versions()}
        group_version = served.get(path.removeprefix(f"{ROOT}/"))
        if group_version is None:
            return Response(
                404, failure(404, "NotFound", "the server could not find the requested resource", {}).status
            )
        return Response(200, self._document(*group_version), {"Content-Type": _JSON, "Vary": "Accept"})

    def _index(self) -> Object:
        paths: Object = {}
        for group, version in self._resources.group_versions():
            path = _path(group, version)
            # The hash lets clients keep a document for ever; it is made from what the document is made from.
            entries = _served(self._resources, group, version)
            names = [e.resource.plural for e in entries]
            custom = canonical([dict(e.openapi) for e in entries if e.openapi]).decode()
            tag = hashlib.sha256(f"{self._release} {path} {names} {custom}".encode()).hexdigest().upper()
            paths[path] = {"serverRelativeURL": f"{ROOT}/{path}?hash={tag}"}
        return {"paths": paths}

    def _document(self, group: str, version: str) -> bytes:
        path = _path(group, version)
        if path not in self._documents:
            served = _served(self._resources, group, version)
            self._documents[path] = dumps(document(served, facts(self._facts_of), self._release))
        return self._documents[path]


def empty_v2(release: str) -> bytes:
    """A document of the old format that describes nothing, as a protobuf message (swagger = 1, info = 2).

    kubectl asks for it when the new format does not know a kind; without an answer it reports that instead of the
    unknown kind.
    """

    def text(number: int, value: bytes) -> bytes:
        return bytes((number << 3 | 2, len(value))) + value

    return text(1, b"2.0") + text(2, text(1, b"Kubernetes") + text(2, f"v{release}.0".encode()))


def _path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _served(resources: ResourceTable, group: str, version: str) -> list[Served]:
    return [e for e in resources.entries if (e.resource.group, e.resource.version) == (group, version)]


def document(entries: Iterable[Served], known: Facts, release: str) -> Object:
    """The OpenAPI v3 document of some resources, with every definition that they refer to."""
    paths: Object = {}
    schemas: dict[str, Object] = {}
    for served in entries:
        names = _definition_names(served, known, schemas)
        paths |= _paths(served, *names)
    _close(schemas, known)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": f"v{release}.0"},
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


def _definition_names(served: Served, known: Facts, schemas: dict[str, Object]) -> tuple[str, str]:
    """The names of the definitions of a kind and its list; a kind without facts gets an open one."""
    resource = served.resource
    names = []
    for kind in (resource.kind, f"{resource.kind}List"):
        name = known.names.get((resource.group, resource.version, kind))
        if name is None:
            reversed_group = ".".join(reversed((resource.group or "core").split(".")))
            name = f"{reversed_group}.{resource.version}.{kind}"
            gvk = {"group": resource.group, "version": resource.version, "kind": kind}
            schemas[name] = {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "x-kubernetes-group-version-kind": [gvk],
            }
            if served.openapi and kind == resource.kind:
                schemas[name] = dict(served.openapi)
        else:
            schemas[name] = known.definitions[name]
        names.append(name)
    return names[0], names[1]


def _close(schemas: dict[str, Object], known: Facts) -> None:
    """Add every definition that is referred to, directly or not."""
    waiting: list[JSON] = list(schemas.values())
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            ref = value.get("$ref")
            if isinstance(ref, str) and ref.startswith(_REF):
                name = ref.removeprefix(_REF)
                if name not in schemas:
                    schemas[name] = known.definitions[name]
                    waiting.append(schemas[name])
            waiting += value.values()


def _paths(served: Served, name: str, list_name: str) -> Object:
    resource = served.resource
    collection = resource.path("{namespace}" if resource.namespaced else None)
    one = f"{collection}/{{name}}"
    operations = _Operations(served)
    verbs = served.verbs
    paths: Object = {}
    shared = [_parameter("namespace", "path")] if resource.namespaced else []
    found: Object = {}
    if "list" in verbs:
        found["get"] = operations.read("list", list_name)
    if "create" in verbs:
        found["post"] = operations.write("post", name)
    if found:
        paths[collection] = {**found, "parameters": shared}
    found = {}
    if "get" in verbs:
        found["get"] = operations.read("get", name)
    if "update" in verbs:
        found["put"] = operations.write("put", name)
    if "patch" in verbs:
        found["patch"] = operations.patch(name)
    if "delete" in verbs:
        found["delete"] = operations.read("delete", name)
    if found:
        paths[one] = {**found, "parameters": [*shared, _parameter("name", "path")]}
    for sub in served.subresources:
        if sub.kind == resource.kind:
            paths[f"{one}/{sub.name}"] = _subresource(operations, sub, name)
    return paths


def _subresource(operations: _Operations, sub: Subresource, name: str) -> Object:
    found: Object = {}
    if "get" in sub.verbs:
        found["get"] = operations.read("get", name)
    if "update" in sub.verbs:
        found["put"] = operations.write("put", name)
    if "patch" in sub.verbs:
        found["patch"] = operations.patch(name)
    return found


class _Operations:
    """Makes the operations of one kind."""

    def __init__(self, served: Served) -> None:
        resource = served.resource
        self._patches = served.patch_types or _PATCHES
        self._kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}

    def read(self, action: str, name: str) -> Object:
        return self._operation(action, name, [])

    def write(self, action: str, name: str) -> Object:
        operation = self._operation(action, name, _WRITE_PARAMETERS)
        return operation | {"requestBody": {"content": {_JSON: _schema(name)}, "required": True}}

    def patch(self, name: str) -> Object:
        operation = self._operation("patch", name, (*_WRITE_PARAMETERS, "force"))
        content = {type_: {"schema": {"type": "object"}} for type_ in self._patches}
        return operation | {"requestBody": {"content": content, "required": True}}

    def _operation(self, action: str, name: str, parameters: Iterable[str]) -> Object:
        return {
            "parameters": [_parameter(parameter, "query") for parameter in parameters],
            "responses": {"200": {"description": "OK", "content": {_JSON: _schema(name)}}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": self._kind,
        }


def _schema(name: str) -> Object:
    return {"schema": {"$ref": f"{_REF}{name}"}}


def _parameter(name: str, place: str) -> Object:
    type_ = "boolean" if name == "force" else "string"
    parameter: Object = {"name": name, "in": place, "schema": {"type": type_, "uniqueItems": True}}
    return parameter | {"required": True} if place == "path" else parameter
