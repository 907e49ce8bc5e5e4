"""An embedded server that asks who somebody is and what they may do, and requests to it as they were recorded."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from typing import TypeAlias
from urllib.parse import parse_qsl, unquote

from conversation import read_answer, read_events

from muster.api.codec import JSON, Object, dumps
from muster.apiserver.access import Access
from muster.apiserver.authentication.accounts import Accounts, SigningKey
from muster.apiserver.authentication.certificates import Certificates
from muster.apiserver.authentication.chain import Authenticator
from muster.apiserver.authentication.configuration import Anonymous
from muster.apiserver.authentication.issuers import IssuerSet
from muster.apiserver.authorization.authorizer import authorizer
from muster.apiserver.front import Front, Streamed
from muster.apiserver.options import Mode
from muster.apiserver.request import ApiRequest, User
from muster.apiserver.store.memory import MemoryStore
from muster.client.transport import Response
from muster.clock import Clock
from muster.controllers.registry import CONTROLLERS
from muster.simulator.embedded import EmbeddedCluster
from muster.simulator.options import ClusterOptions

ISSUER = "https://sa.example.test"
"""The server's own issuer in all recordings."""
SUPERUSER = "admintoken"
STATIC = {
    SUPERUSER: User("admin", ("system:masters",), "admin"),
    "lowtoken": User("low", ("lowgroup",), "uid-low"),
    "nobodytoken": User("nobody", ()),
    **{f"ca{n}token": User(f"ca{n}", (), f"uid-ca{n}") for n in range(1, 30)},
}
Headers: TypeAlias = Mapping[str, str | list[str]]
AGGREGATION = "clusterrole-aggregation-controller"


@cache
def signing_key() -> SigningKey:
    """One key for all servers: making one takes long."""
    return SigningKey.generate()


class AccessServer:
    """A server of 1.36 with its gate; `run()` runs the one controller that such recordings need."""

    def __init__(
        self,
        clock: Clock,
        *,
        modes: tuple[Mode, ...] = ("Node", "RBAC"),
        issuers: IssuerSet | None = None,
        anonymous: Anonymous | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        without = frozenset({"nodes", "scheduler", *CONTROLLERS} - {AGGREGATION})
        options = ClusterOptions(without=without, emulate="1.36", authorization_modes=modes)
        self.store = MemoryStore()
        self.cluster = EmbeddedCluster(self.store, clock, random.Random(0), options)
        accounts = Accounts(signing_key, ISSUER)
        self.authenticator = Authenticator(
            self.store,
            clock,
            accounts=accounts,
            issuers=issuers,
            static=STATIC,
            anonymous=anonymous,
            certificates=certificates,
        )
        server = self.cluster.server
        server.accounts, server.authenticator = accounts, self.authenticator
        self._front = Front(server, clock, Access(self.authenticator, authorizer(modes, self.store)))

    async def ask(
        self,
        method: str,
        path: str,
        *,
        token: str | None = SUPERUSER,
        body: JSON = None,
        headers: Headers | None = None,
        certificate: bytes = b"",
    ) -> tuple[int, JSON, Response | None]:
        """Send a request with a token (None: without); the code, the body as a client reads it, and the answer."""
        path, _, query = path.partition("?")
        pairs: list[tuple[str, str]] = []
        if token is not None:
            pairs.append(("authorization", f"Bearer {token}"))
        if body is not None:
            pairs.append(("content-type", "application/json"))
        given = {name.lower(): value for name, value in (headers or {}).items()}
        pairs = [pair for pair in pairs if pair[0] not in given]
        for name, values in given.items():
            pairs += [(name, value) for value in ([values] if isinstance(values, str) else values)]
        data = None if body is None else dumps(body)
        request = ApiRequest(
            method,
            unquote(path),
            tuple(parse_qsl(query, keep_blank_values=True)),
            dict(pairs),
            data,
            header_pairs=tuple(pairs),
            certificate=certificate,
        )
        answer = await self._front.answer(request)
        if isinstance(answer, Streamed):
            if "timeoutSeconds" in path + query:
                await read_events(answer)
            return 200, "", None
        return answer.status, read_answer(answer), answer

    async def create(self, obj: Object) -> None:
        """Create an object as the superuser; it must succeed."""
        code, body, _ = await self.ask("POST", collection_of(obj), body=obj)
        assert code == 201, body


def collection_of(obj: Object) -> str:
    """The path to create an object at."""
    version, kind, namespace = obj["apiVersion"], obj["kind"], obj["metadata"].get("namespace")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/{f'namespaces/{namespace}/' if namespace else ''}{kind.lower()}s"


def impersonating(who: Object) -> dict[str, str | list[str]]:
    """The headers by which a superuser acts as somebody."""
    headers: dict[str, str | list[str]] = {"Impersonate-User": who["user"]}
    if who.get("groups"):
        headers["Impersonate-Group"] = list(who["groups"])
    if who.get("uid"):
        headers["Impersonate-Uid"] = who["uid"]
    for key, values in (who.get("extra") or {}).items():
        headers[f"Impersonate-Extra-{key}"] = values
    return headers
