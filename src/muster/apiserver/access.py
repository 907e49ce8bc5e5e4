"""The gate before the API server: who sends a request, as whom it is to be done, and whether that is allowed.

Order of steps: apiserver `DefaultBuildHandlerChain` (authentication, impersonation, authorization).
"""

from __future__ import annotations

from msgspec.structs import replace

from muster.apiserver.authentication.chain import Authenticator
from muster.apiserver.authorization.attributes import attributes_of, denied
from muster.apiserver.authorization.authorizer import Decide
from muster.apiserver.authorization.impersonation import Impersonation, wanted_of
from muster.apiserver.request import ApiRequest


class Access:
    """Lets requests in, or refuses them."""

    def __init__(self, authenticator: Authenticator, decide: Decide, *, constrained_impersonation: bool = True) -> None:
        self._authenticator = authenticator
        self._decide = decide
        self._impersonation = Impersonation(decide, is_constrained=constrained_impersonation)

    async def admit(self, request: ApiRequest) -> ApiRequest:
        """The request with its user. Raises StatusError (400, 401, 403)."""
        user = await self._authenticator.authenticate(request)
        attributes = attributes_of(request)
        wanted = wanted_of(request)
        if wanted is not None:
            user = self._impersonation.user(user, wanted, attributes)
        decision = self._decide(user, attributes)
        if not decision.is_allowed:
            raise denied(user, attributes, decision.reason)
        return replace(request, user=user)
