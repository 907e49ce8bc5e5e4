"""Structured authentication: a configuration, issuers, a token and a request; who it is, or 401. The unit is a case."""

from __future__ import annotations

import base64
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from access_server import ISSUER, AccessServer, Headers
from kind_rbac import seen
from outcome import Difference, Kind, Outcome
from token_issuers import Issuers, authority, client_certificate

from muster.api.codec import JSON, Object, dumps, loads
from muster.apiserver.authentication.certificates import Authority, Certificates, RequestHeaders
from muster.apiserver.authentication.issuers import IssuerSet
from muster.apiserver.authentication.validation import CheckedConfiguration
from muster.apiserver.options import Mode
from muster.cli.errors import BadInput
from muster.cli.up_access import AccessOptions, anonymous_of, read_configuration
from muster.cli.up_oidc import OidcOptions
from muster.clock import VirtualClock, run_virtual

LOOK_UP_S = 1.0
"""How long issuers have to be looked up before the first request."""
_DIGEST = re.compile(r"X509SHA256=[0-9a-f]{64}")
TEXT = 40
"""How much of a text is recorded."""
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def recognise(line: Object) -> bool:
    """Whether a line is a case of authentication."""
    return {"config", "issuers", "steps", "authorizationMode"} <= line.keys()


def run(lines: Sequence[Object], seed: int | None) -> Iterator[Outcome]:
    """Replay the cases one after the other, each on a server of its own."""
    for line in lines:
        yield replay_case(line)


def replay_case(case: Object) -> Outcome:
    """Replay one case."""

    async def main(clock: VirtualClock) -> list[Difference]:
        issuers = Issuers(case["issuers"], clock)
        try:
            server, trusted = server_of(case, issuers, clock)
        except BadInput as error:
            return [Difference("start", None, str(error))]
        trusted.start()
        try:
            await clock.sleep(LOOK_UP_S)
            return [found for step in enumerate(case["steps"]) for found in await _step(server, issuers, clock, *step)]
        finally:
            trusted.stop()

    differences = run_virtual(main)
    return Outcome(f"{case['id']} {case['note']}", case["theme"], tuple(differences))


def server_of(case: Object, issuers: Issuers, clock: VirtualClock) -> tuple[AccessServer, IssuerSet]:
    """The server of a case, started as `muster up` would start it."""
    options = options_of(case["flags"], case["authorizationMode"])
    config = checked(issuers.filled(case["config"]))
    trusted = IssuerSet(config, clock, issuers.fetch)
    modes: tuple[Mode, ...] = ("AlwaysAllow",) if options.authorization_mode == "AlwaysAllow" else ("Node", "RBAC")
    server = AccessServer(
        clock,
        modes=modes,
        issuers=trusted,
        anonymous=anonymous_of(options, config),
        certificates=certificates_of_flags(case["flags"]),
    )
    return server, trusted


def certificates_of_flags(flags: Sequence[str]) -> Certificates:
    """Whose certificates mean something by recorded flags; names of headers are upstream's usual ones."""
    given = dict(flag.removeprefix("--").split("=", 1) for flag in flags)
    names = tuple(filter(None, given.get("requestheader-allowed-names", "").split(",")))
    return Certificates(
        Authority(authority("client")) if "client-ca-file" in given else None,
        Authority(authority("proxy")) if "requestheader-client-ca-file" in given else None,
        RequestHeaders(allowed_names=names),
    )


def options_of(flags: Sequence[str], mode: str) -> AccessOptions:
    """The options of `muster up` that recorded flags are; others are left out."""
    anonymous = next((flag.partition("=")[2] for flag in flags if flag.startswith("--anonymous-auth")), None)
    return AccessOptions(
        authorization_mode="AlwaysAllow" if mode == "AlwaysAllow" else "RBAC",
        anonymous_auth=cast("None", anonymous),
        oidc=OidcOptions(
            **{
                name.removeprefix("--").replace("-", "_"): value  # type: ignore[arg-type]  # recorded ones are texts
                for name, _, value in (flag.partition("=") for flag in flags)
                if name.startswith("--oidc-")
            }
        ),
    )


def checked(config: JSON) -> CheckedConfiguration:
    """A configuration, read from a file as `muster up` does."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "authn.yaml"
        path.write_bytes(config.encode() if isinstance(config, str) else dumps(config))
        found = read_configuration(path, ISSUER)[1]
    assert found is not None
    return found


async def _step(
    server: AccessServer, issuers: Issuers, clock: VirtualClock, number: int, step: Object
) -> list[Difference]:
    if "wait" in step:
        await clock.sleep(step["wait"])
        return []
    if "issuer" in step:
        issuers.set(step["issuer"], step["set"])
        return []
    got = await _asked(server, issuers, step)
    want = step["response"]
    return [
        Difference(f"step {number}: {key}", want[key], got.get(key))
        for key in want
        if want[key] != (str(got.get(key))[:TEXT] if key == "text" else got.get(key))
    ]


async def _asked(server: AccessServer, issuers: Issuers, step: Object) -> Object:
    token = await _token(server, issuers, step.get("token"))
    if "keep" in step and token is not None:
        issuers.keep(step["keep"], token)
    request = step["request"]
    body: JSON = None
    if request["path"].endswith("selfsubjectreviews"):
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    headers: Headers = {**(request.get("headers") or {})}
    if "authorization" in request:
        headers = {**headers, "authorization": request["authorization"].replace("{token}", token or "")}
    if "websocketSubprotocols" in request:
        text = base64.urlsafe_b64encode((token or "").encode()).rstrip(b"=").decode()
        offered = [each.replace("{token as base64url}", text) for each in request["websocketSubprotocols"]]
        upgrade = {"connection": "Upgrade", "upgrade": "websocket"}
        headers = {**headers, **upgrade, "sec-websocket-protocol": ", ".join(offered)}
        token = token if "header" in request.get("tokenIn", "") else None
    shown = request.get("clientCertificate")
    certificate = client_certificate(shown) if shown else b""
    code, answer, _ = await server.ask(
        request["method"], request["path"], token=token, body=body, headers=headers, certificate=certificate
    )
    got = seen(code, loads(_named(dumps(answer).decode())))
    if isinstance(answer, str):
        got["text"] = answer
    return got


def _named(text: str) -> str:
    """A text with the recording's words for what is made anew each time."""
    return _DIGEST.sub("X509SHA256=<hex of the certificate>", _UUID.sub("<uuid>", text))


async def _token(server: AccessServer, issuers: Issuers, described: Object | None) -> str | None:
    if described is None:
        return None
    if "serviceAccount" in described:
        namespace, name = described["serviceAccount"].split("/")
        meta = {"name": name, "namespace": namespace}
        await server.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        _, body, _ = await server.ask("POST", path, body={})
        return cast(str, cast(Object, body)["status"]["token"])
    return issuers.token(described)


KIND = Kind("structured authentication", recognise, lambda line: str(line["theme"]), run)
