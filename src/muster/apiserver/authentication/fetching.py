"""GET from an issuer over HTTPS. The one place of authentication that opens connections."""

from __future__ import annotations

import ssl

import aiohttp

from muster.apiserver.authentication.issuers import Fetched, FetchError
from muster.client.connection import verifying_context

TIMEOUT_S = 30.0
"""Source: apiserver's `oidc.New`."""
LARGEST_BYTES = 4 * 1024 * 1024


async def fetch(url: str, certificate_authority: str, bearer: str = "") -> Fetched:
    """GET `url`; its server's certificate must be of the CA (PEM; "": the system's). Raises `FetchError`.

    `bearer`: a token to send, if any.
    """
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    try:
        connector = aiohttp.TCPConnector(ssl=verifying_context(certificate_authority))
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        client = aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers)
        async with client as session, session.get(url) as answer:
            body = await answer.content.read(LARGEST_BYTES + 1)
            if len(body) > LARGEST_BYTES:
                raise FetchError(f'Get "{url}": the answer is larger than {LARGEST_BYTES} bytes')
            return Fetched(answer.status, {name.lower(): value for name, value in answer.headers.items()}, body)
    except (TimeoutError, aiohttp.ClientError, ssl.SSLError, OSError, ValueError) as error:
        raise FetchError(f'Get "{url}": {error or type(error).__name__}') from error
