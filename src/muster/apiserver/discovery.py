"""What the server says it serves, made from the resource table: aggregated and plain discovery, and the version.

Source: kube-apiserver's answers (recordings) and apiserver `pkg/endpoints/discovery`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping

from muster import __version__
from muster.api.codec import Object, Objects, dumps
from muster.apiserver.errors import failure
from muster.apiserver.health import HEALTH_PATHS, health
from muster.apiserver.negotiation import DISCOVERY_FORMS, choose
from muster.apiserver.options import ServerOptions
from muster.apiserver.request import ApiRequest
from muster.apiserver.resources import ResourceTable, Served, Subresource
from muster.client.transport import Response

NEWEST_RELEASE = "1.37"

_GROUP_ORDER = (
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
)
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?$")


class Discovery:
    """Answers the requests that are not about objects. Documents are made at the first request for them."""

    def __init__(self, resources: ResourceTable, options: ServerOptions) -> None:
        self._resources = resources
        self._release = options.emulate or NEWEST_RELEASE
        self._cache: dict[tuple[str, str], tuple[bytes, str]] = {}
        self._versions: dict[str, list[str]] = {}
        self._seen = -1

    def answer(self, request: ApiRequest) -> Response | None:
        """The answer to a discovery, version or health request; None if the path is something else."""
        path = request.path.rstrip("/") or "/"
        if path.count("/") > 3:
            return None  # nearly all requests
        if path.startswith(HEALTH_PATHS) and (found := health(request, path)) is not None:
            return found
        if path == "/version":
            return Response(200, version_info(self._release))
        self._refresh()
        if path == "/":
            return Response(200, {"paths": root_paths(self._versions)})
        if path in ("/api", "/apis"):
            return self._root(request, path)
        return self._group(path)

    def _root(self, request: ApiRequest, path: str) -> Response:
        form = choose(request.headers.get("accept", ""), DISCOVERY_FORMS)
        if form is None:
            kinds = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
            message = f"406: Not Acceptable\n\nAvailable representations: {kinds}"
            return Response(406, failure(406, "NotAcceptable", message, {}).status)
        if not form.kind:
            host = request.headers.get("host", "")
            return Response(200, api_versions(host) if path == "/api" else group_list(self._versions))
        body, tag = self._aggregated(path, form.version)
        headers = {"Content-Type": form.content_type, "ETag": tag, "Vary": "Accept", "Cache-Control": "public"}
        if tag in request.headers.get("if-none-match", ""):
            return Response(304, b"", headers)
        return Response(200, body, headers)

    def _aggregated(self, path: str, version: str) -> tuple[bytes, str]:
        found = self._cache.get((path, version))
        if found is None:
            body = dumps(aggregated(self._resources, core=path == "/api", version=version))
            tag = f'"{hashlib.sha256(body).hexdigest().upper()}"'
            found = self._cache[path, version] = (body, tag)
        return found

    def _refresh(self) -> None:
        """Forget what was made of other kinds than those that are served now."""
        if self._seen != self._resources.changes:
            self._seen = self._resources.changes
            self._cache.clear()
            self._versions = versions_by_group(self._resources)

    def _group(self, path: str) -> Response | None:
        versions = self._versions
        match path.strip("/").split("/"):
            case ["api", version]:
                known = version in versions.get("", ())
                return Response(200, resource_list(self._resources, "", version)) if known else _not_found()
            case ["apis", group]:
                return Response(200, group_document(group, versions[group])) if versions.get(group) else None
            case ["apis", group, version] if group in versions:
                known = version in versions[group]
                return Response(200, resource_list(self._resources, group, version)) if known else _not_found()
        return None


def _not_found() -> Response:
    return Response(404, failure(404, "NotFound", "the server could not find the requested resource", {}).status)


def version_info(release: str) -> Object:
    """The answer of `/version` for a release such as `1.37`."""
    major, minor = release.split(".")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": f"v{release}.0+muster-{__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }


def version_order(version: str) -> tuple[int, int, int]:
    """A sort key that puts the preferred version first: stable before beta before alpha, newest first."""
    match = _VERSION.match(version)
    if match is None:
        return (3, 0, 0)
    major, stage, number = match.groups()
    return ({None: 0, "beta": 1, "alpha": 2}[stage], -int(major), -int(number or 0))


def versions_by_group(resources: ResourceTable) -> dict[str, list[str]]:
    """The served versions of each group, preferred version first, groups in kube-apiserver's order."""
    found: dict[str, list[str]] = {}
    for group, version in resources.group_versions():
        found.setdefault(group, []).append(version)
    order = {group: position for position, group in enumerate(("", *_GROUP_ORDER))}
    groups = sorted(found, key=lambda group: (order.get(group, len(order)), group))
    return {group: sorted(found[group], key=version_order) for group in groups}


def root_paths(served: Mapping[str, list[str]]) -> list[str]:
    """The paths that `/` lists."""
    paths = ["/api", "/api/v1", "/apis", *HEALTH_PATHS, "/metrics", "/openapi/v3", "/version"]
    for group, versions in served.items():
        if group:
            paths += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions)]
    return sorted(paths)


def api_versions(host: str) -> Object:
    """The plain document of `/api`."""
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def group_list(served: Mapping[str, list[str]]) -> Object:
    """The plain document of `/apis`."""
    groups = [_group_entry(group, versions) for group, versions in served.items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group_document(group: str, versions: list[str]) -> Object:
    """The plain document of `/apis/GROUP`."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group_entry(group, versions)}


def _group_entry(group: str, versions: list[str]) -> Object:
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": entries, "preferredVersion": entries[0]}


def resource_list(resources: ResourceTable, group: str, version: str) -> Object:
    """The plain document of `/api/v1` or `/apis/GROUP/VERSION`."""
    entries: Objects = []
    for served in _served(resources, group, version):
        entries.append(_resource_entry(served))
        entries += [_subresource_entry(served, sub) for sub in served.subresources]
    name = f"{group}/{version}" if group else version
    document: Object = {"kind": "APIResourceList", "groupVersion": name, "resources": entries}
    return document if not group else {"kind": "APIResourceList", "apiVersion": "v1", **document}


def _served(resources: ResourceTable, group: str, version: str) -> list[Served]:
    found = [e for e in resources.entries if (e.resource.group, e.resource.version) == (group, version)]
    return sorted(found, key=lambda entry: entry.resource.plural)


def _resource_entry(served: Served) -> Object:
    resource = served.resource
    entry: Object = {
        "name": resource.plural,
        "singularName": served.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(served.verbs),
    }
    _names(entry, served)
    if "list" in served.verbs:
        entry["storageVersionHash"] = storage_version_hash(resource.group, resource.version, resource.kind)
    return entry


def _subresource_entry(served: Served, sub: Subresource) -> Object:
    entry: Object = {"name": f"{served.resource.plural}/{sub.name}", "singularName": ""}
    entry["namespaced"] = served.resource.namespaced
    if sub.version:
        entry |= {"group": sub.group, "version": sub.version}
    return entry | {"kind": sub.kind, "verbs": list(sub.verbs)}


def _names(entry: Object, served: Served) -> None:
    if served.short_names:
        entry["shortNames"] = list(served.short_names)
    if served.categories:
        entry["categories"] = list(served.categories)


def storage_version_hash(group: str, version: str, kind: str) -> str:
    """Source: apiserver `pkg/endpoints/discovery/storageversionhash.go`."""
    digest = hashlib.sha256(f"{group}/{version}/{kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def aggregated(resources: ResourceTable, *, core: bool, version: str) -> Object:
    """The APIGroupDiscoveryList of `/api` (core) or `/apis`, in version `v2` or `v2beta1`."""
    items = [
        {"metadata": {"name": group} if group else {}, "versions": _aggregated_versions(resources, group, versions)}
        for group, versions in versions_by_group(resources).items()
        if core == (not group)
    ]
    kind = "APIGroupDiscoveryList"
    return {"kind": kind, "apiVersion": f"apidiscovery.k8s.io/{version}", "metadata": {}, "items": items}


def _aggregated_versions(resources: ResourceTable, group: str, versions: Iterable[str]) -> Objects:
    return [
        {
            "version": version,
            "resources": [_aggregated_resource(served) for served in _served(resources, group, version)],
            "freshness": "Current",
        }
        for version in versions
    ]


def _aggregated_resource(served: Served) -> Object:
    entry: Object = {
        "resource": served.resource.plural,
        "responseKind": {"group": "", "version": "", "kind": served.resource.kind},
        "scope": "Namespaced" if served.resource.namespaced else "Cluster",
        "singularResource": served.singular,
        "verbs": list(served.verbs),
    }
    _names(entry, served)
    subresources = [
        {
            "subresource": sub.name,
            "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
            "verbs": list(sub.verbs),
        }
        for sub in served.subresources
    ]
    return entry | {"subresources": subresources} if subresources else entry
