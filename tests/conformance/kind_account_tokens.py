"""Tokens of service accounts: what TokenRequest gives, what is in them, and who they are as long as they live.

The lines of a file belong together. A recording does not list the objects that it was made with: they are told from
what was asked for and answered. The unit is a line.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from typing import cast

from access_server import AccessServer, Headers
from outcome import Difference, Kind, Outcome

from muster.api.codec import JSON, Object, dumps, loads
from muster.clock import VirtualClock, run_virtual

SELF = ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews")
REVIEW = ("POST", "/apis/authentication.k8s.io/v1/tokenreviews")
OTHER_UID = "11111111-2222-3333-4444-555555555555"
_UID_OF = re.compile(r"<uid of (\w+)/([^>]+)>")
_EXTRA = "authentication.kubernetes.io/"


def recognise(line: Object) -> bool:
    """Whether a line is about a token of a service account."""
    return str(line.get("id", "")).startswith("token-") and "theme" in line


def run(lines: Sequence[Object], seed: int | None) -> Iterator[Outcome]:
    """Replay one file on one server."""

    async def main(clock: VirtualClock) -> list[Outcome]:
        world = World(lines, clock)
        await world.create()
        return [await world.compare(line) for line in lines]

    yield from run_virtual(main)


class World:
    """The objects of a recording, and the tokens that were issued so far."""

    def __init__(self, lines: Sequence[Object], clock: VirtualClock) -> None:
        self._clock = clock
        self._server = AccessServer(clock)
        asked = next(line["request"] for line in lines if "request" in line)
        parts = asked["path"].split("/")
        self._namespace, self._account = parts[4], parts[6]
        self._lines = lines
        self._uids: dict[str, tuple[str, str]] = {}
        self._current: dict[tuple[str, str], str] = {}
        self._tokens: list[str] = []
        self._pod_token = ""

    async def create(self) -> None:
        """Create the objects that the recording was made with."""
        await self._server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._namespace}})
        await self._make("ServiceAccount", self._account)
        await self._make("ServiceAccount", "another")
        for kind, name, node, account in sorted(set(objects_of(self._lines, self._account))):
            await self._make(kind, name, node, account)

    async def _make(self, kind: str, name: str, node: str = "", account: str = "") -> None:
        meta = {"name": name} if kind == "Node" else {"name": name, "namespace": self._namespace}
        obj: Object = {"apiVersion": "v1", "kind": kind, "metadata": meta}
        if kind == "Pod":
            spec = {"serviceAccountName": account, "containers": [{"name": "c", "image": "i"}]}
            obj["spec"] = {**spec, **({"nodeName": node} if node else {})}
        await self._server.create(obj)
        await self._learn(kind, name)

    async def _learn(self, kind: str, name: str) -> None:
        _, body, _ = await self._server.ask("GET", self._path(kind, name))
        uid = cast(Object, body)["metadata"]["uid"]
        self._uids[uid] = (kind, name)
        self._current[kind, name] = uid

    def _path(self, kind: str, name: str) -> str:
        return f"/api/v1/{'' if kind == 'Node' else f'namespaces/{self._namespace}/'}{kind.lower()}s/{name}"

    async def compare(self, line: Object) -> Outcome:
        """Do what a line says."""
        got = self._named(await self._answer(line))
        want = line["response"]
        differences = [Difference(key, want[key], got.get(key)) for key in want if want[key] != got.get(key)]
        return Outcome(f"{line['id']} {line['note']}", line["theme"], tuple(differences))

    async def _answer(self, line: Object) -> Object:
        if line["theme"] == "discovery":
            return await self._published(line)
        if "request" in line:
            return await self._request(line["request"])
        if "audiences" in line:
            token = self._reviewed(line)
            spec = {"token": token} | ({"audiences": line["audiences"]} if line["audiences"] is not None else {})
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
            code, answer, _ = await self._server.ask(*REVIEW, body=body)
            answer = cast(Object, answer)
            return {"code": code, "status": answer.get("status"), "body": answer}
        token = await self._prepared(line) if line["theme"] == "deleted" else self._tokens[-1]
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        code, answer, _ = await self._server.ask(*SELF, token=token, body=body)
        status = cast(Object, answer).get("status")
        return {"code": code, "body": answer, "userInfo": status.get("userInfo") if isinstance(status, dict) else None}

    async def _request(self, request: Object) -> Object:
        who = request.get("as")
        headers: Headers = {"Impersonate-User": who[0], "Impersonate-Group": who[1:]} if who else {}
        headers = {name: value for name, value in headers.items() if value}
        body = self._with_uids(request["body"])
        code, answer, _ = await self._server.ask(request["method"], request["path"], body=body, headers=headers)
        answer = cast(Object, answer)
        if code != 201:
            return {"code": code, "body": answer}
        token = answer["status"]["token"]
        self._tokens.append(token)
        meta = {key: value for key, value in answer["metadata"].items() if key in ("name", "namespace", "uid")}
        return {"code": code, "spec": answer["spec"], "metadata": meta, "token": decoded(token)}

    def _with_uids(self, body: JSON) -> JSON:
        text = dumps(body).decode().replace('"<uid>"', f'"{OTHER_UID}"')
        return loads(_UID_OF.sub(lambda match: self._current.get((match[1], match[2]), match[0]), text))

    def _named(self, answer: Object) -> Object:
        """An answer with the recording's words for uids."""
        text = dumps(answer).decode()
        for uid, (kind, name) in self._uids.items():
            text = text.replace(uid, f"<uid of {kind}/{name}>")
        named = loads(re.sub(r"JTI=[0-9a-f-]{36}", "JTI=<jti>", text))
        return cast(Object, named)

    def _token_with(self, **wanted: bool) -> str:
        """The first token that is bound to these kinds and to no others."""
        for token in self._tokens:
            private = claims_of(token)["kubernetes.io"]
            if all((kind in private) == is_there for kind, is_there in wanted.items()):
                return token
        raise AssertionError(wanted)

    def _of_pod(self, name: str) -> str:
        return next(one for one in self._tokens if claims_of(one)["kubernetes.io"].get("pod", {}).get("name") == name)

    def _reviewed(self, line: Object) -> str:
        """The token that a TokenReview was about, by what the recording says of it."""
        note = line["note"]
        extra = ((line["response"].get("status") or {}).get("user") or {}).get("extra") or {}
        if f"{_EXTRA}pod-name" in extra:
            return self._of_pod(extra[f"{_EXTRA}pod-name"][0])
        if f"{_EXTRA}node-name" in extra:
            return self._token_with(node=True, pod=False)
        first = self._tokens[0]
        fixed = {
            "static token": "lowtoken",
            "static token with audience": "lowtoken",
            "nonsense": "nonsense",
            "JWT of nobody": of_nobody(),
            "empty token": "",
            "signature changed": first[:-8] + ("AAAAAAAA" if first[-8:] != "AAAAAAAA" else "BBBBBBBB"),
            "pod deleted": self._pod_token,
        }
        if note in fixed:
            return fixed[note]
        own = claims_of(first)["aud"]
        if note.startswith("other audience"):
            return next(token for token in self._tokens if not set(claims_of(token)["aud"]) & set(own))
        if note.startswith("token with two"):
            return next(token for token in self._tokens if len(set(claims_of(token)["aud"])) == 2)
        return first

    async def _prepared(self, line: Object) -> str:
        """Delete or make anew what a line says; the token that it looks at."""
        note = line["note"]
        bound = self._token_with(secret=True) if "secret" in note else ""
        if "11 s" in note or "cache" not in note:
            await self._clock.sleep(11.0)
        if note.startswith("pod token before"):
            name = line["response"]["userInfo"]["extra"][f"{_EXTRA}pod-name"][0]
            self._pod_token = self._of_pod(name)
            return self._pod_token
        if note.startswith("right after the pod"):
            await self._delete("Pod", claims_of(self._pod_token)["kubernetes.io"]["pod"]["name"])
        if "the pod is deleted" in note:
            return self._pod_token
        if "secret" in note:
            name = claims_of(bound)["kubernetes.io"]["secret"]["name"]
            await (self._make("Secret", name) if "anew" in note else self._delete("Secret", name))
            return bound
        if note.startswith("node deleted"):
            token = self._token_with(node=True, pod="pod" in note)
            name = claims_of(token)["kubernetes.io"]["node"]["name"]
            if ("Node", name) in self._current:
                await self._delete("Node", name)
                del self._current["Node", name]
            return token
        if note == "service account deleted":
            await self._delete("ServiceAccount", self._account)
        elif note.startswith("service account made anew"):
            await self._make("ServiceAccount", self._account)
        elif note == "new account":
            return self._tokens[-1]
        return self._tokens[0]

    async def _delete(self, kind: str, name: str) -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        await self._server.ask("DELETE", self._path(kind, name), body=options)

    async def _published(self, line: Object) -> Object:
        code, body, answer = await self._server.ask("GET", line["note"], headers={"Host": "<server>"})
        assert answer is not None
        headers = answer.headers
        body = cast(Object, body)
        for key in body.get("keys") or ():
            key.update(kid="<kid>", n="<n>")
        media = headers.get("Content-Type", "application/json")
        return {"code": code, "content_type": media, "cache_control": headers.get("Cache-Control"), "body": body}


def objects_of(lines: Sequence[Object], account: str) -> Iterator[tuple[str, str, str, str]]:
    """Kind, name, node and account of the objects that a recording tells of."""
    for line in lines:
        request = line.get("request") or {}
        bound = ((request.get("body") or {}).get("spec") or {}).get("boundObjectRef") or {}
        kind, name = bound.get("kind"), bound.get("name")
        response = line["response"]
        if kind not in ("Pod", "Secret", "Node") or not name or response["code"] in (404, 409):
            continue
        private = ((response.get("token") or {}).get("claims") or {}).get("kubernetes.io") or {}
        node = private.get("node") or {}
        if node.get("uid"):
            yield "Node", node["name"], "", ""
        if response["code"] == 201:
            yield kind, name, node.get("name", "") if kind == "Pod" else "", account if kind == "Pod" else ""
        elif kind == "Pod" and "different serviceaccount" in response["body"]["message"]:
            yield kind, name, "", "another"


def claims_of(token: str) -> Object:
    """The claims of a token, unchecked."""
    part = token.split(".")[1]
    return cast(Object, loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))))


def decoded(token: str) -> Object:
    """A token as recordings show it."""
    part = token.split(".")[0]
    header = cast(Object, loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))))
    claims = claims_of(token)
    issued, order = claims["iat"], list(claims)
    for name in ("exp", "nbf"):
        claims[name] = f"iat+{claims[name] - issued}"
    private = claims["kubernetes.io"]
    if "warnafter" in private:
        private["warnafter"] = f"iat+{private['warnafter'] - issued}"
    claims |= {"iat": "now", "jti": "<jti>"}
    return {"header": {**header, "kid": "<kid>"}, "claims": claims, "claim_order": order}


def of_nobody() -> str:
    """A token in form, of an issuer that nobody knows."""
    parts = ({"alg": "RS256"}, {"iss": "https://nobody.test", "sub": "x"}, {"not": "a signature"})
    return ".".join(base64.urlsafe_b64encode(dumps(part)).rstrip(b"=").decode() for part in parts)


KIND = Kind("tokens of service accounts", recognise, lambda line: str(line["theme"]), run)
