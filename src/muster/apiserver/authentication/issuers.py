"""Token issuers: discovery of their keys, and tokens checked against them.

An issuer is looked up in the background and again every `RETRY_S` until its discovery document was read. Keys are read
when a token needs them; known ones go on working when the issuer is away. Fetching is passed in. Source: go-oidc's
`RemoteKeySet` and apiserver `plugin/pkg/authenticator/token/oidc`.
"""

from __future__ import annotations

import asyncio
import email.utils
import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Protocol

from msgspec import DecodeError, Struct

from muster.api.codec import JSON, Object, loads
from muster.apiserver.authentication.claims import check_id_token, issuer_of, source_of, user_of
from muster.apiserver.authentication.configuration import Issuer
from muster.apiserver.authentication.signatures import (
    Key,
    KeySetError,
    Token,
    TokenError,
    is_signed_by,
    parse_keys,
    parse_token,
)
from muster.apiserver.authentication.validation import Checked, CheckedConfiguration
from muster.apiserver.request import User
from muster.clock import Clock

logger = logging.getLogger(__name__)

RETRY_S = 10.0
"""How long after a failed discovery the next one is tried."""
_NOT_VERIFIED = "oidc: verify token: failed to verify signature"


class Fetched(Struct, frozen=True):
    """An answer of an issuer; names of headers in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class FetchError(Exception):
    """An issuer could not be reached; the message says why. Retryable."""


class Fetch(Protocol):
    """GET of a URL whose server's certificate is of the given CA (PEM; "": the system's). Raises `FetchError`.

    `bearer`: a token to send, if any.
    """

    async def __call__(self, url: str, certificate_authority: str, bearer: str = "") -> Fetched:
        """The answer."""
        ...


class Verifier:
    """What one issuer's tokens are checked with: its keys, found by its discovery document."""

    def __init__(self, issuer: Issuer, algorithms: Sequence[str], clock: Clock, fetch: Fetch) -> None:
        self.url = issuer.url
        self.problem = "not looked up yet"
        """Why discovery has not succeeded; "" once it has."""
        self._issuer = issuer
        self._algorithms = algorithms
        self._clock = clock
        self._fetch = fetch
        self._keys_url = ""
        self._keys: list[Key] = []
        self._fresh_until = 0.0
        self._reading: asyncio.Task[None] | None = None
        self.tried = asyncio.Event()
        """Set when the first look-up has ended, well or not."""

    async def discover(self) -> None:
        """Read the discovery document, again and again until that succeeds."""
        while self.problem:
            try:
                self._keys_url = await self._discovered()
                self.problem = ""
            except FetchError as error:
                self.problem = str(error)
            self.tried.set()
            if self.problem:
                logger.warning("issuer is not usable yet", extra={"issuer": self.url, "error": self.problem})
                await self._clock.sleep(RETRY_S, periodic=True)

    async def _discovered(self) -> str:
        url = self._issuer.discovery_url or self.url.rstrip("/") + "/.well-known/openid-configuration"
        answer = await self._fetch(url, self._issuer.certificate_authority)
        if answer.status != 200:
            raise FetchError(f"{_status(answer.status)}: {answer.body[:200].decode(errors='replace')}")
        try:
            document = loads(answer.body)
        except (ValueError, DecodeError, RecursionError) as error:
            raise FetchError("oidc: failed to decode provider discovery object") from error
        document = document if isinstance(document, dict) else {}
        if document.get("issuer") != self.url:
            got = document.get("issuer")
            raise FetchError(f'oidc: issuer URL provided to client ("{self.url}") did not match the issuer URL "{got}"')
        keys_url = document.get("jwks_uri")
        if not isinstance(keys_url, str) or not keys_url:
            raise FetchError("oidc: the discovery document has no jwks_uri")
        return keys_url

    async def verify(self, token: Token) -> None:
        """Check a token of the issuer. Raises `TokenError`."""
        check_id_token(token, self._issuer.audiences, self._clock.now(), self._algorithms)
        if not is_signed_by(token, self._keys):
            if self._clock.now() < self._fresh_until:
                raise TokenError(f"{_NOT_VERIFIED}: failed to verify id token signature")
            await self._read_keys()
            if not is_signed_by(token, self._keys):
                raise TokenError(f"{_NOT_VERIFIED}: failed to verify id token signature")

    async def _read_keys(self) -> None:
        """Read the key set; who asks meanwhile waits for the same answer. Raises `TokenError`."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read_keys_now())
            self._reading.add_done_callback(self._forget_reading)
        try:
            await asyncio.shield(self._reading)
        except (FetchError, KeySetError) as error:
            raise TokenError(f"{_NOT_VERIFIED}: fetching keys {error}") from error

    def _forget_reading(self, task: asyncio.Task[None]) -> None:
        self._reading = None
        if not task.cancelled():
            task.exception()  # looked at here too, for when all who waited have gone

    async def _read_keys_now(self) -> None:
        answer = await self._fetch(self._keys_url, self._issuer.certificate_authority)
        if answer.status != 200:
            raise FetchError(f"oidc: get keys failed: {_status(answer.status)}")
        self._keys = parse_keys(answer.body)
        self._fresh_until = fresh_until(answer.headers, self._clock.now())


class Sources:
    """Claims that tokens only refer to: fetched where they say, in tokens of issuers that are looked up when needed.

    Source: `claimResolver` of apiserver `plugin/pkg/authenticator/token/oidc`.
    """

    def __init__(self, checked: Checked, clock: Clock, fetch: Fetch) -> None:
        self._checked = checked
        self._clock = clock
        self._fetch = fetch
        self._verifiers: dict[str, Verifier] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def stop(self) -> None:
        """Stop looking up issuers. Idempotent."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    async def resolved(self, claims: Object, claim: str) -> Object:
        """The claim that the claims refer to; nothing if it is there, or nowhere. Raises `TokenError`."""
        source = source_of(claims, claim)
        if source is None:
            return {}
        try:
            return {claim: await self._read(*source, claim)}
        except TokenError as error:
            raise TokenError(f"oidc: could not expand distributed claims: {error}") from error

    async def _read(self, url: str, bearer: str, claim: str) -> JSON:
        try:
            answer = await self._fetch(url, self._checked.rules.issuer.certificate_authority, bearer)
        except FetchError as error:
            raise TokenError(f'while getting distributed claim "{claim}": {error}') from error
        if not 200 <= answer.status <= 299:
            raise TokenError(f'while getting distributed claim "{claim}": {_status(answer.status)}')
        token = parse_token(answer.body.decode(errors="replace"))
        if token is None:
            raise TokenError("getting untrusted issuer from endpoint failed: malformed token")
        issuer = issuer_of(token)
        try:
            await self._verifier(issuer).verify(token)
        except TokenError as error:
            raise TokenError(f"verifying untrusted issuer {issuer} failed: {error}") from error
        if claim not in token.claims:
            raise TokenError(f"jwt returned by distributed claim endpoint {url} did not contain claim: {claim}")
        return token.claims[claim]

    def _verifier(self, url: str) -> Verifier:
        """What tokens of an issuer are checked with. Raises `TokenError` until its discovery has succeeded."""
        verifier = self._verifiers.get(url)
        if verifier is None:
            own = self._checked.rules.issuer
            issuer = Issuer(url, certificate_authority=own.certificate_authority, audiences=own.audiences)
            verifier = self._verifiers[url] = Verifier(issuer, self._checked.algorithms, self._clock, self._fetch)
            self._tasks.append(asyncio.get_running_loop().create_task(verifier.discover()))
        if verifier.problem:
            raise TokenError(f'verifier not initialized for issuer: "{url}"')
        return verifier


class JWTIssuer:
    """One issuer of a configuration."""

    def __init__(self, checked: Checked, clock: Clock, fetch: Fetch) -> None:
        self.verifier = Verifier(checked.rules.issuer, checked.algorithms, clock, fetch)
        self.url = self.verifier.url
        self.sources = Sources(checked, clock, fetch)
        self._checked = checked

    async def user(self, token: Token) -> User:
        """The user of a token of this issuer. Raises `TokenError`."""
        if self.verifier.problem:
            raise TokenError("oidc: authenticator not initialized")
        await self.verifier.verify(token)
        groups = self._checked.rules.claim_mappings.groups.claim
        distributed = await self.sources.resolved(token.claims, groups) if groups else {}
        return user_of(self._checked, token.claims, distributed)


def _status(code: int) -> str:
    """A code with its name, such as `503 Service Unavailable`."""
    try:
        return f"{code} {HTTPStatus(code).phrase}"
    except ValueError:
        return str(code)


def fresh_until(headers: Mapping[str, str], now: float) -> float:
    """Until when (in seconds) an answer need not be read again, by its caching headers; `now` if they do not say."""
    control = headers.get("cache-control", "")
    if re.search(r"\b(no-cache|no-store)\b", control):
        return now
    age = re.search(r"\bmax-age=(\d{1,9})\b", control)
    if age:
        return now + int(age[1])
    try:
        return email.utils.parsedate_to_datetime(headers["expires"]).timestamp()
    except (KeyError, ValueError, TypeError):
        return now


class IssuerSet:
    """The issuers of one configuration. `start` begins to look them up, `stop` ends that."""

    def __init__(self, config: CheckedConfiguration, clock: Clock, fetch: Fetch) -> None:
        self._issuers = [JWTIssuer(checked, clock, fetch) for checked in config.issuers]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Look up the issuers in the background."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(issuer.verifier.discover()) for issuer in self._issuers]

    async def tried(self) -> None:
        """Wait until each issuer was looked up once, well or not."""
        for issuer in self._issuers:
            await issuer.verifier.tried.wait()

    def stop(self) -> None:
        """Stop looking. Idempotent."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        for issuer in self._issuers:
            issuer.sources.stop()

    def problems(self) -> list[str]:
        """Why issuers are not usable, in the words of upstream's health check."""
        return [
            f'oidc: authenticator for issuer "{issuer.url}" is not healthy: {issuer.verifier.problem}'
            for issuer in self._issuers
            if issuer.verifier.problem
        ]

    async def user(self, token: Token) -> User | None:
        """The user of a token; None if no issuer here made it. Raises `TokenError`."""
        named = issuer_of(token)
        found = next((issuer for issuer in self._issuers if issuer.url == named), None) if named else None
        return await found.user(token) if found is not None else None
