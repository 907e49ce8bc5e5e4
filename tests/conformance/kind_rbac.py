"""Worlds of roles and bindings, and what was allowed in them; and the roles that a server makes by itself.

The unit is a check: an access review, a real request, or a look at an object.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import cast

from access_server import AccessServer, impersonating
from outcome import Difference, Kind, Outcome

from muster.api.codec import JSON, Object, dumps, loads
from muster.apiserver.authentication.configuration import Anonymous
from muster.clock import VirtualClock, run_virtual

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
PLURALS = ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_ALLOWED = "RBAC: allowed by "


def recognise(line: Object) -> bool:
    """Whether a line is a world of roles."""
    return {"objects", "checks", "theme"} <= line.keys()


def run(lines: Sequence[Object], seed: int | None) -> Iterator[Outcome]:
    """Replay the worlds one after the other, each on a server of its own."""
    for line in lines:
        yield from replay_world(line)


def replay_world(world: Object) -> list[Outcome]:
    """Replay one world."""

    async def main(clock: VirtualClock) -> list[Outcome]:
        server = AccessServer(clock, anonymous=Anonymous(enabled=True))
        running = asyncio.get_running_loop().create_task(server.cluster.run())
        try:
            await clock.sleep(1.0)
            for name in namespaces_of(world):
                await server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            for obj in world["objects"]:
                await server.create(obj)
            return [
                outcome
                for step in enumerate(world["checks"])
                async for outcome in _checked(server, clock, world, *step)
            ]
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    return run_virtual(main)


def namespaces_of(world: Object) -> list[str]:
    """The namespaces that must exist: those of objects, and those that requests found something in."""
    found = {obj["metadata"].get("namespace") for obj in world["objects"]}
    for check in world["checks"]:
        if "create" in check:
            found.add(check["create"]["metadata"].get("namespace"))
        if "request" not in check:
            continue
        parts = check["request"]["path"].partition("?")[0].split("/")
        body = check["response"].get("body") or {}
        is_missing = (body.get("details") or {}).get("kind") == "namespaces"
        if "namespaces" in parts[:-1] and check["response"]["code"] != 403 and not is_missing:
            found.add(parts[parts.index("namespaces") + 1])
    return sorted(name for name in found if name and name not in ("default", "kube-system", "kube-public"))


async def _checked(
    server: AccessServer, clock: VirtualClock, world: Object, number: int, check: Object
) -> AsyncIterator[Outcome]:
    if "wait" in check:
        await clock.sleep(check["wait"])
    elif "create" in check:
        await server.create(check["create"])
    elif "delete" in check:
        await server.ask("DELETE", check["delete"])
    else:
        got = await _answer(server, check)
        want = check["response"]
        differences = [
            Difference(f"{number}: {key}", want[key], got.get(key))
            for key in want
            if not _is_same(key, want[key], got.get(key), check)
        ]
        what = check.get("sar") or check.get("request") or check.get("read")
        unit = f"{world['id']} {number} {dumps(what).decode()[:200]}"
        yield Outcome(unit, world["theme"], tuple(differences))


async def _answer(server: AccessServer, check: Object) -> Object:
    if "sar" in check:
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": check["sar"]}
        _, found, _ = await server.ask("POST", REVIEWS, body=body)
        return cast(Object, cast(Object, found).get("status") or {})
    if "read" in check:
        _, found, _ = await server.ask("GET", check["read"])
        return cast(Object, found)
    request = check["request"]
    token, headers = request.get("token"), dict(request.get("headers") or {})
    if "as" in request:
        token, headers = "admintoken", {**impersonating(request["as"]), **headers}
    code, body, _ = await server.ask(
        request["method"], request["path"], token=token, body=request.get("body"), headers=headers
    )
    return seen(code, body)


def seen(code: int, body: JSON) -> Object:
    """An answer by the fields that recordings have."""
    if not isinstance(body, dict):
        return {"code": code, "text": body, "kind": None}
    status = body.get("status")
    info = status.get("userInfo") if isinstance(status, dict) else None
    return {"code": code, "body": body, "kind": body.get("kind"), "status": status, "userInfo": info, "text": ""}


def _is_same(key: str, want: JSON, got: JSON, check: Object) -> bool:
    if key == "text":
        # What else is served is not compared, only that it is.
        path: str = check["request"]["path"]
        return "/metrics" in path or want == got or check["response"]["code"] in (403,)
    if key == "reason" and isinstance(want, str) and isinstance(got, str):
        both_allow = want.startswith(_ALLOWED) and got.startswith(_ALLOWED)
        return both_allow or bool(want == got)
    if key == "body":
        return bool(_comparable(want) == _comparable(got))
    if key == "status" and isinstance(want, dict) and isinstance(got, dict):
        if not all(_is_same(name, want.get(name), got.get(name), check) for name in ("reason",)):
            return False
        return _unordered({**want, "reason": 0}) == _unordered({**got, "reason": 0})
    return bool(want == got)


def _comparable(body: JSON) -> JSON:
    """A Status without times and the uid of what was deleted."""
    body = loads(_TIME.sub("<time>", dumps(body).decode()))
    if not isinstance(body, dict) or not isinstance(body.get("details"), dict):
        return body
    return {**body, "details": {key: value for key, value in body["details"].items() if key != "uid"}}


def _unordered(status: Object) -> Object:
    return {
        key: sorted(dumps(item).decode() for item in map(_sorted, value)) if isinstance(value, list) else value
        for key, value in status.items()
    }


def _sorted(value: JSON) -> JSON:
    return dict(sorted(value.items())) if isinstance(value, dict) else value


KIND = Kind("roles and bindings", recognise, lambda line: str(line["theme"]), run)


def recognise_bootstrap(line: Object) -> bool:
    """Whether it is the object with all roles of a fresh server."""
    return set(PLURALS) <= line.keys()


def run_bootstrap(lines: Sequence[Object], seed: int | None) -> Iterator[Outcome]:
    """Compare each role and binding of a fresh server."""

    async def main(clock: VirtualClock) -> dict[str, dict[str, Object]]:
        server = AccessServer(clock)
        found: dict[str, dict[str, Object]] = {}
        for plural in PLURALS:
            _, body, _ = await server.ask("GET", f"/apis/rbac.authorization.k8s.io/v1/{plural}")
            found[plural] = {_key(obj): _content(obj) for obj in cast(Object, body)["items"]}
        return found

    ours = run_virtual(main)
    for line in lines:
        for plural in PLURALS:
            wanted = {_key(obj): _content(obj) for obj in line[plural]}
            for key in sorted(wanted.keys() | ours[plural].keys()):
                want, got = wanted.get(key), ours[plural].get(key)
                differences = (Difference(key, want, got),) if want != got else ()
                yield Outcome(f"{plural} {key}", plural, differences)


def _key(obj: Object) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


def _content(obj: Object) -> Object:
    meta = {key: obj["metadata"][key] for key in ("labels", "annotations") if key in obj["metadata"]}
    fields = ("rules", "aggregationRule", "roleRef", "subjects")
    return {"metadata": meta, **{key: obj[key] for key in fields if obj.get(key)}}


BOOTSTRAP = Kind("roles of a fresh server", recognise_bootstrap, lambda line: "bootstrap", run_bootstrap)
