"""Who we are, for each request: fixed tokens, token files that are rotated, and plugins that print credentials.

Source of the rules: client-go `transport` (token files are read again once a minute, and after a 401) and
`plugin/pkg/client/auth/exec` (KUBERNETES_EXEC_INFO, expiry, a new run after a 401).
"""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from muster.api.codec import JSON, dumps, loads
from muster.client.connection import Connection, ExecPlugin
from muster.client.transport import ClientError
from muster.clock import Clock, parse_rfc3339

READ_AGAIN_S = 60.0
LEEWAY_S = 10.0
"""So long before they expire credentials are renewed: a request must arrive with them."""
PLUGIN_LIMIT_S = 60.0


class CredentialsError(ClientError):
    """No credentials can be had: a file or a plugin fails. The message says which. Retryable: it may come back."""


class Identity(Struct, frozen=True):
    """What goes with a request: the `Authorization` header, or a client certificate (PEM), or neither."""

    authorization: str = ""
    certificate: str = ""
    key: str = ""


class Credentials(Protocol):
    """Gives identities; keeps them as long as they are good."""

    async def identity(self) -> Identity:
        """The identity of the next request. Raises `CredentialsError`."""

    def refused(self) -> bool:
        """The server did not accept the last one (401). Whether another one may be had at once."""


def credentials_of(connection: Connection, clock: Clock) -> Credentials:
    """The credentials that a connection asks for, first that it has: exec, token, token file, user and password."""
    if connection.exec_plugin is not None:
        return PluginCredentials(connection.exec_plugin, clock, connection.source)
    if connection.token:
        return FixedCredentials(Identity(f"Bearer {connection.token}"))
    if connection.token_file:
        return FileCredentials(Path(connection.token_file), clock)
    if connection.username:
        pair = base64.b64encode(f"{connection.username}:{connection.password}".encode()).decode()
        return FixedCredentials(Identity(f"Basic {pair}"))
    return FixedCredentials(Identity())


class FixedCredentials(Struct, frozen=True):
    """The same for ever."""

    fixed: Identity

    async def identity(self) -> Identity:
        return self.fixed

    def refused(self) -> bool:
        return False


class FileCredentials:
    """A token in a file that somebody else keeps fresh."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._identity: Identity | None = None
        self._good_until_s = 0.0

    async def identity(self) -> Identity:
        now = self._clock.now()
        if self._identity is None or now >= self._good_until_s:
            try:
                token = self._path.read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                token = ""
                if self._identity is None:
                    raise CredentialsError(f"token file {self._path} cannot be read: {error}") from error
            if token:
                self._identity = Identity(f"Bearer {token}")
            elif self._identity is None:
                raise CredentialsError(f"token file {self._path} is empty")
            self._good_until_s = now + READ_AGAIN_S
        return self._identity

    def refused(self) -> bool:
        self._good_until_s = 0.0
        return True


class PluginCredentials:
    """What a command prints, kept until it expires or is refused; requests that come meanwhile wait for one run."""

    def __init__(self, plugin: ExecPlugin, clock: Clock, source: str = "") -> None:
        self._plugin = plugin
        self._clock = clock
        self._source = source
        self._identity: Identity | None = None
        self._good_until_s: float | None = None
        self._running = asyncio.Lock()

    async def identity(self) -> Identity:
        async with self._running:
            expired = self._good_until_s is not None and self._clock.now() >= self._good_until_s
            if self._identity is None or expired:
                self._identity, self._good_until_s = await self._run()
            return self._identity

    def refused(self) -> bool:
        self._identity = None
        return True

    async def _run(self) -> tuple[Identity, float | None]:
        try:
            process = await asyncio.create_subprocess_exec(
                self._plugin.command,
                *self._plugin.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environment(),
            )
        except OSError as error:
            hint = f" ({' '.join(self._plugin.install_hint.split())})" if self._plugin.install_hint else ""
            raise self._error(f"cannot be started: {error.strerror or error}{hint}") from error
        try:
            async with asyncio.timeout(PLUGIN_LIMIT_S):
                output, errors = await process.communicate()
        except TimeoutError as error:
            process.kill()
            await process.wait()
            raise self._error(f"gave no answer within {PLUGIN_LIMIT_S:.0f} s") from error
        if process.returncode:
            said = " ".join(errors.decode(errors="replace").split())[-300:]
            raise self._error(f"failed with exit code {process.returncode}: {said}")
        return self._read(output)

    def _environment(self) -> dict[str, str]:
        spec: JSON = {"interactive": False}
        if self._plugin.cluster is not None:
            spec["cluster"] = self._plugin.cluster
        info = {"kind": "ExecCredential", "apiVersion": self._plugin.api_version, "spec": spec}
        return {**os.environ, **dict(self._plugin.environment), "KUBERNETES_EXEC_INFO": dumps(info).decode()}

    def _read(self, output: bytes) -> tuple[Identity, float | None]:
        try:
            value = loads(output)
            status = value["status"]
            version = value["apiVersion"]
            expires = status.get("expirationTimestamp")
            until_s = parse_rfc3339(expires) - LEEWAY_S if expires else None
            token = status.get("token") or ""
            certificate, key = status.get("clientCertificateData") or "", status.get("clientKeyData") or ""
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._error(f"did not print an ExecCredential: {type(error).__name__}: {error}") from error
        if version != self._plugin.api_version:
            raise self._error(f"printed {version}, not {self._plugin.api_version}")
        if not token and not (certificate and key):
            raise self._error("printed neither status.token nor status.clientCertificateData with clientKeyData")
        return Identity(f"Bearer {token}" if token else "", certificate, key), until_s

    def _error(self, why: str) -> CredentialsError:
        where = f"{self._source}.exec: " if self._source else ""
        return CredentialsError(f"{where}{self._plugin.command} {why}")
