"""Authentication configuration files: what is wrong with them, at the start and as a change, and how changes go on.

The unit is a line. Of texts that show how Go prints a file, only the beginning is compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from access_server import ISSUER, AccessServer
from kind_authn import options_of
from outcome import Difference, Kind, Outcome
from token_issuers import Issuers

from muster.api.codec import JSON, Object, dumps
from muster.apiserver.authentication.issuers import IssuerSet
from muster.apiserver.authentication.reload import ConfigurationKeeper
from muster.cli.errors import BadInput
from muster.cli.up_access import AccessOptions, anonymous_of, configured, read_configuration
from muster.clock import RealClock, VirtualClock, run_virtual

SHOWN_FILE = "is missing in '"
"""What comes after this is the file as the recorder wrote it."""
TOKENS = {
    "issuer": {"aud": "kube", "sub": "x"},
    "issuer2": {"aud": "cluster", "sub": "x", "email": "e"},
    "issuer3": {"aud": "third", "sub": "x"},
}
"""Claims of tokens that the recorded configurations take."""
ALWAYS_ALLOW = "--authorization-mode=AlwaysAllow"
GOOD: Object = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "AuthenticationConfiguration",
    "jwt": [
        {
            "issuer": {"url": "{issuer}", "certificateAuthority": "{ca}", "audiences": ["kube"]},
            "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
        }
    ],
}
"""What a server ran with before a change."""


def recognise(line: Object) -> bool:
    """Whether a line is about a configuration file."""
    return str(line.get("id", "")).startswith("config-") and ("start" in line or "initial" in line)


def run(lines: Sequence[Object], seed: int | None) -> Iterator[Outcome]:
    """Replay each line."""
    for line in lines:
        differences = _replay_sequence(line) if "initial" in line else [*_started(line), *_reloaded(line)]
        yield Outcome(f"{line['id']} {line['note']}", line["theme"], tuple(differences))


def _text(config: JSON) -> str:
    return config if isinstance(config, str) else dumps(config).decode().replace("\x7f", "\\u007f")


def _started(line: Object) -> list[Difference]:
    """What starting with the file does."""
    issuers = Issuers({}, RealClock())
    want = cast(Object, issuers.filled(line["start"]))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "authn.yaml"
        named = next(
            (flag.partition("=")[2] for flag in line["flags"] if flag.startswith("--authentication-config")), ""
        )
        if line["config"] is not None:
            path.write_text(_text(issuers.filled(line["config"])), encoding="utf-8")
        try:
            _start(line["flags"], Path(named) if named else path if line["config"] is not None else None)
            error = None
        except BadInput as found:
            error = str(found).replace(str(path), "{file}")
    if _short(error) == _short(want["error"]):
        return []
    return [Difference("start", want["error"], error)]


def _start(flags: Sequence[str], path: Path | None) -> None:
    options = replace(options_of(flags, "AlwaysAllow" if ALWAYS_ALLOW in flags else "RBAC"), authentication_config=path)
    anonymous_of(options, configured(options, ISSUER)[1])


def _short(text: str | None) -> str | None:
    return text.partition(SHOWN_FILE)[0] if text else text


class Follower:
    """A server whose configuration file is changed."""

    def __init__(self, initial: JSON, clock: VirtualClock) -> None:
        self.issuers = Issuers({"issuer2": {"jwks": [{"key": "rsa1"}]}}, clock)
        self.text: str | None = _text(self.issuers.filled(initial))
        self.told: list[tuple[str, str]] = []
        self._clock = clock
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "authn.yaml"
            path.write_text(self.text, encoding="utf-8")
            config = read_configuration(path, ISSUER)[1]
        assert config is not None
        trusted = IssuerSet(config, clock, self.issuers.fetch)
        trusted.start()
        self._server = AccessServer(clock, issuers=trusted, anonymous=anonymous_of(AccessOptions(None, "RBAC"), config))
        self._keeper = ConfigurationKeeper(
            self._read,
            self.text,
            self._server.authenticator,
            clock,
            self.issuers.fetch,
            own_issuers=(ISSUER,),
            anonymous=config.anonymous,
            told=lambda stage, error: self.told.append((stage, error)),
        )
        self._running = asyncio.get_running_loop().create_task(self._keeper.run())

    def _read(self) -> str:
        if self.text is None:
            raise FileNotFoundError(2, "No such file or directory", "{file}")
        return self.text

    async def stop(self) -> None:
        """End what runs."""
        self._running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._running
        self._server.authenticator.stop()

    async def ask(self, issuer: str) -> Object:
        """What a good token of an issuer is worth."""
        claims = {"iss": f"{{{issuer}}}", "exp": "now+300", **TOKENS[issuer]}
        token = self.issuers.token({"header": {"alg": "RS256", "kid": "rsa1"}, "claims": claims, "key": "rsa1"})
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        code, answer, _ = await self._server.ask("POST", path, token=token, body=body)
        if code != 201:
            return {"code": code}
        return {"code": code, "username": cast(Object, answer)["status"]["userInfo"]["username"]}

    async def anonymous(self, path: str) -> int:
        """The code that a request without credentials gets."""
        return (await self._server.ask("GET", path, token=None))[0]

    async def until_told(self, seconds: float) -> None:
        """Wait for an outcome."""
        until = self._clock.now() + seconds
        while not self.told and self._clock.now() < until:
            await self._clock.sleep(0.5)


def _reloaded(line: Object) -> list[Difference]:
    """What the file does as a change."""
    if not line.get("reload") or line["config"] is None:
        return []

    async def main(clock: VirtualClock) -> list[Difference]:
        follower = Follower(GOOD, clock)
        want = cast(Object, follower.issuers.filled(line["reload"]))
        try:
            await clock.sleep(2.0)
            follower.text = _text(follower.issuers.filled(line["config"]))
            await follower.until_told(90.0)
            stage, error = follower.told[0] if follower.told else ("", "")
            got = {"stage": stage, "error": error, "works": (await follower.ask("issuer"))["code"] == 201}
        finally:
            await follower.stop()
        wanted = {"stage": want["stage"], "error": want["error"], "works": want["old_config_still_works"]}
        return [
            Difference(f"reload: {key}", wanted[key], got[key])
            for key in wanted
            if (_short(str(wanted[key])) != _short(str(got[key])) if key == "error" else wanted[key] != got[key])
        ]

    return run_virtual(main)


def _replay_sequence(line: Object) -> list[Difference]:
    """Change the file as recorded, and see what is taken over."""

    async def main(clock: VirtualClock) -> list[Difference]:
        follower = Follower(line["initial"], clock)
        try:
            await clock.sleep(2.0)
            return [found for step in enumerate(line["steps"]) for found in await _step(follower, clock, *step)]
        finally:
            await follower.stop()

    return run_virtual(main)


async def _step(follower: Follower, clock: VirtualClock, number: int, step: Object) -> list[Difference]:
    observed = step.get("observed") or {}
    want: JSON = None
    got: JSON = None
    match step["do"]:
        case "tokens":
            want, got = observed, {name: await follower.ask(name) for name in observed}
        case "anonymous":
            want, got = observed, {path: await follower.anonymous(path) for path in observed}
        case "issuer":
            follower.issuers.set(step["issuer"], step["set"])
        case "wait":
            await clock.sleep(step["s"])
        case "write" | "delete" | "touch" | "await":
            if step["do"] == "write" and step["how"] == "inplace":
                follower.text = ""  # what a file is while it is written in place
                await follower.until_told(5.0)
            elif step["do"] == "delete":
                follower.text = None
            if step["do"] == "write" and not (step["how"] == "inplace" and observed.get("error")):
                follower.text = _text(follower.issuers.filled(step["config"]))
            if not observed:
                return []
            await follower.until_told(70.0 if observed["log"] else observed["watched_s"])
            if step.get("how") == "inplace":
                follower.text = _text(follower.issuers.filled(step["config"]))
            told, follower.told[:] = list(follower.told), []
            log = {"reloaded": "reloaded authentication config"}
            # One change of a real file may be noticed twice.
            want = {"log": sorted(set(observed["log"])), "error": follower.issuers.filled(observed["error"])}
            got = {
                "log": sorted({log.get(stage, stage) for stage, _ in told}),
                "error": next((error for _, error in told if error), None),
            }
    return [] if want == got else [Difference(f"step {number}: {step['do']}", want, got)]


KIND = Kind("authentication configurations", recognise, lambda line: str(line["theme"]), run)
