"""The chain of authenticators: from a request's credentials to a user.

Certificates come first, then tokens, in upstream's order: static ones, service accounts', bootstrap tokens, then the
issuers of the configuration. Who shows no credentials is anonymous where that is allowed; who shows bad ones is
refused. Source: apiserver `pkg/authentication/request`, `pkg/authentication/token`.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from muster.apiserver.authentication.accounts import Accounts, account_of, is_of
from muster.apiserver.authentication.bootstrap import bootstrap_user
from muster.apiserver.authentication.certificates import Certificates
from muster.apiserver.authentication.configuration import Anonymous
from muster.apiserver.authentication.issuers import IssuerSet
from muster.apiserver.authentication.signatures import TokenError, parse_token
from muster.apiserver.authentication.users import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED
from muster.apiserver.errors import StatusError, failure
from muster.apiserver.request import ApiRequest, User
from muster.apiserver.store.protocol import Store
from muster.clock import Clock

logger = logging.getLogger(__name__)

CACHE_S = 10.0
"""For how long an accepted token is not looked at again."""
_INVALID = "invalid bearer token"
_SUBPROTOCOL = "base64url.bearer.authorization.k8s.io."
_UNPADDED = re.compile(r"[A-Za-z0-9_-]+")


class Verdict(Struct, frozen=True):
    """What a token is worth: the user and for which audiences, or why it is refused (`error`)."""

    user: User | None = None
    audiences: tuple[str, ...] = ()
    error: str = ""


def unauthorized() -> StatusError:
    """What everybody is told whose credentials are no good."""
    return failure(401, "Unauthorized", "Unauthorized")


class Authenticator:
    """Tells who sends a request."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        accounts: Accounts,
        issuers: IssuerSet | None = None,
        static: Mapping[str, User] | None = None,
        anonymous: Anonymous | None = None,
        certificates: Certificates | None = None,
        takes_bootstrap_tokens: bool = False,
    ) -> None:
        self._issuers = issuers
        self._store = store
        self._clock = clock
        self._accounts = accounts
        self._static = static or {}
        self._anonymous = anonymous or Anonymous()
        self._certificates = certificates or Certificates()
        self._takes_bootstrap_tokens = takes_bootstrap_tokens
        self._accepted: dict[tuple[str, tuple[str, ...]], tuple[float, Verdict]] = {}

    def replace_issuers(self, issuers: IssuerSet) -> IssuerSet | None:
        """Trust these issuers from now on; returns those that were trusted so far."""
        old, self._issuers = self._issuers, issuers
        self._accepted.clear()
        return old

    def stop(self) -> None:
        """Stop looking up issuers. Idempotent."""
        if self._issuers is not None:
            self._issuers.stop()

    async def authenticate(self, request: ApiRequest) -> User:
        """The user who sends a request. Raises StatusError (401)."""
        user, errors = self._certificates.user(request, self._clock.now())
        if user is not None:
            return _authenticated(user)
        try:
            token = bearer_token(request)
        except TokenError as error:
            raise self._refused(request, [*errors, str(error)]) from error
        if token is None:
            if not errors and self._lets_in(request.path):
                return ANONYMOUS
            raise self._refused(request, errors or ["no credentials"])
        verdict = await self.review(token)
        if verdict.user is None:
            raise self._refused(request, [*errors, verdict.error])
        return verdict.user

    def _refused(self, request: ApiRequest, errors: Sequence[str]) -> StatusError:
        logger.warning("request refused", extra={"path": request.path, "error": ", ".join(errors)})
        return unauthorized()

    def _lets_in(self, path: str) -> bool:
        conditions = self._anonymous.conditions
        return self._anonymous.enabled and (not conditions or any(one.path == path for one in conditions))

    async def review(self, token: str, audiences: Sequence[str] = ()) -> Verdict:
        """What a token is worth for these audiences (none: our own)."""
        wanted = tuple(audiences) or self._accounts.own_audiences
        now = self._clock.now()
        known = self._accepted.get((token, wanted))
        if known is not None and now < known[0]:
            return known[1]
        verdict = await self._reviewed(token, wanted)
        if verdict.user is not None:
            self._accepted = {key: kept for key, kept in self._accepted.items() if now < kept[0]}
            self._accepted[token, wanted] = (now + CACHE_S, verdict)
        return verdict

    async def _reviewed(self, text: str, wanted: tuple[str, ...]) -> Verdict:
        own = tuple(each for each in wanted if each in self._accounts.own_audiences)
        errors = [_INVALID]
        if text in self._static:
            if own:
                return Verdict(_authenticated(self._static[text]), own)
            return Verdict(error=_INVALID)
        token = parse_token(text)
        if token is None:
            new = bootstrap_user(self._store, text, self._clock.now()) if self._takes_bootstrap_tokens and own else None
            return Verdict(_authenticated(new), own) if new is not None else Verdict(error=_INVALID)
        try:
            if is_of(self._accounts, token):
                user, shared = account_of(self._accounts, token, wanted, self._store, self._clock.now())
                return Verdict(_authenticated(user), tuple(shared))
            found = await self._issuers.user(token) if self._issuers is not None and own else None
            if found is not None:
                return Verdict(_authenticated(found), own)
        except TokenError as error:
            errors.append(str(error))
        return Verdict(error=errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")


def _authenticated(user: User) -> User:
    """The user as one who showed good credentials."""
    if AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups or user.name == ANONYMOUS.name:
        return user
    return User(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)


def bearer_token(request: ApiRequest) -> str | None:
    """The token that a request brings, in its header or as a WebSocket's subprotocol; None if there is none.

    Raises `TokenError` for a subprotocol that does not hold a token.
    """
    parts = request.headers.get("authorization", "").strip().split(" ", 2)
    if len(parts) > 1 and parts[0].lower() == "bearer" and parts[1]:
        return parts[1]
    if request.headers.get("upgrade", "").lower() != "websocket":
        return None
    offered = [each.strip() for each in request.headers.get("sec-websocket-protocol", "").split(",")]
    tokens = [each.removeprefix(_SUBPROTOCOL) for each in offered if each.startswith(_SUBPROTOCOL)]
    if not tokens:
        return None
    try:
        if not _UNPADDED.fullmatch(tokens[0]):
            raise ValueError
        return base64.urlsafe_b64decode(tokens[0] + "=" * (-len(tokens[0]) % 4)).decode()
    except (ValueError, binascii.Error) as error:
        raise TokenError("invalid base64.bearer.authorization token encoding") from error
