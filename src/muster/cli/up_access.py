"""Who may use the cluster of `muster up`: nobody is asked, unless one of the options of this module is given."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from muster.cli.errors import BadInput
from muster.cli.up_oidc import NO_ISSUER, OidcOptions, configuration_of

if TYPE_CHECKING:
    from muster.apiserver.authentication.accounts import SigningKey
    from muster.apiserver.authentication.certificates import Certificates
    from muster.apiserver.authentication.configuration import Anonymous
    from muster.apiserver.authentication.validation import CheckedConfiguration
    from muster.apiserver.front import Front
    from muster.apiserver.options import Mode
    from muster.clock import Clock
    from muster.simulator.embedded import EmbeddedCluster

ISSUER = "https://kubernetes.default.svc"
"""Who the tokens of service accounts say made them. Source: what kubeadm sets."""
KEY_FILE = "sa.key"
FIRST_LOOK_S = 5.0
"""How long the start waits for issuers of tokens, so that a token is accepted as soon as the cluster is ready."""
logger = logging.getLogger(__name__)


ACCESS = Group.create_ordered("Access")
IGNORED = "--anonymous-auth true is ignored: where everybody may do everything, requests need credentials"


@Parameter(name="*", group=ACCESS)
@dataclass(frozen=True)
class AccessOptions:
    """Who may do what."""

    authentication_config: Path | None = None
    """An AuthenticationConfiguration (YAML or JSON): whose tokens are accepted, and which users they make. Changes of
    the file take effect while the cluster runs."""

    authorization_mode: Literal["AlwaysAllow", "RBAC", "Node,RBAC"] = "AlwaysAllow"
    """Whether every user may do everything, or what roles and bindings give them. With Node, kubelets may read what
    the pods of their node need, and write only what is theirs (NodeRestriction)."""

    anonymous_auth: Annotated[Literal["true", "false"] | None, Parameter(show_default=False)] = None
    """Whether requests without credentials are let in, as user system:anonymous. Default: with RBAC, unless the
    authentication configuration says something else."""

    client_ca_file: Annotated[Path | None, Parameter(show_default=False)] = None
    """The CA of client certificates (PEM): the common name is the user, organizations are its groups."""

    requestheader_client_ca_file: Annotated[Path | None, Parameter(show_default=False)] = None
    """The CA of proxies (PEM) that say with headers for whom they speak: X-Remote-User, -Group, -Uid and -Extra-KEY."""

    requestheader_allowed_names: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    """Which common names such proxies may have. Default: any of their CA."""

    enable_bootstrap_token_auth: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Whether secrets of type bootstrap.kubernetes.io/token in kube-system let new nodes in."""

    oidc: Annotated[OidcOptions, Parameter(name="*", group=ACCESS)] = NO_ISSUER
    """One issuer of tokens without a file."""

    @property
    def asks(self) -> bool:
        """Whether anybody is asked who they are."""
        return self != AccessOptions()

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The authorizers, in their order."""
        modes: dict[str, tuple[Mode, ...]] = {"RBAC": ("RBAC",), "Node,RBAC": ("Node", "RBAC")}
        return modes.get(self.authorization_mode, ("AlwaysAllow",))


DEFAULT_ACCESS = AccessOptions()


@dataclass(frozen=True)
class Gate:
    """The gate of a cluster: the front that has it.

    Where somebody is asked who they are, `token` is the administrator's, and the server is asked over TLS: clients send
    tokens over nothing else.
    """

    front: Front
    token: str = ""
    ssl_context: ssl.SSLContext | None = None
    certificate: str = ""


@contextlib.asynccontextmanager
async def opened(
    options: AccessOptions, cluster: EmbeddedCluster, clock: Clock, data: Path | None
) -> AsyncIterator[Gate]:
    """A front for the cluster, with a gate if somebody is to be asked. Raises `BadInput`."""
    from muster.apiserver.authentication.accounts import Accounts
    from muster.apiserver.front import Front

    accounts = Accounts(cache(lambda: signing_key(data)), ISSUER)
    cluster.server.accounts = accounts
    if not options.asks:
        yield Gate(Front(cluster.server, clock))
        return
    from muster.apiserver.access import Access
    from muster.apiserver.authentication.chain import Authenticator
    from muster.apiserver.authentication.fetching import fetch
    from muster.apiserver.authentication.issuers import IssuerSet
    from muster.apiserver.authentication.reload import ConfigurationKeeper
    from muster.apiserver.authentication.validation import CheckedConfiguration
    from muster.apiserver.authorization.authorizer import authorizer
    from muster.apiserver.request import User
    from muster.cli.serving import serving_context

    text, config = configured(options)
    anonymous = anonymous_of(options, config)
    issuers = IssuerSet(config or CheckedConfiguration(), clock, fetch)
    token = secrets.token_urlsafe(32)
    static = {token: User("admin", ("system:masters",))}
    certificates = certificates_of(options)
    authenticator = Authenticator(
        cluster.server.store,
        clock,
        accounts=accounts,
        issuers=issuers,
        static=static,
        anonymous=anonymous,
        certificates=certificates,
        takes_bootstrap_tokens=options.enable_bootstrap_token_auth,
    )
    cluster.server.authenticator = authenticator
    is_constrained = cluster.options.emulate != "1.35"
    decide = authorizer(options.modes, cluster.server.store)
    front = Front(cluster.server, clock, Access(authenticator, decide, constrained_impersonation=is_constrained))
    try:
        context, certificate = serving_context(data, clock.now())
        for authority in (certificates.clients, certificates.proxies):
            if authority is not None:
                context.verify_mode = ssl.CERT_OPTIONAL
                context.load_verify_locations(cadata=authority.pem)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise BadInput(f"--data: the server's certificate cannot be used: {error}") from error
    issuers.start()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(issuers.tried(), FIRST_LOOK_S)
    following: asyncio.Task[None] | None = None
    path = options.authentication_config
    if path is not None and config is not None:
        keeper = ConfigurationKeeper(
            path.read_text,
            text,
            authenticator,
            clock,
            fetch,
            own_issuers=(ISSUER,),
            anonymous=config.anonymous,
        )
        front.more_metrics = keeper.metrics
        following = asyncio.create_task(keeper.run())
    try:
        yield Gate(front, token, context, certificate)
    finally:
        if following is not None:
            following.cancel()
        authenticator.stop()


def signing_key(data: Path | None) -> SigningKey:
    """The key that signs service accounts' tokens: the one kept with the data, or a new one."""
    from muster.apiserver.authentication.accounts import SigningKey

    if data is None:
        return SigningKey.generate()
    path = data / KEY_FILE
    with contextlib.suppress(FileNotFoundError):
        return SigningKey.load(path.read_bytes())
    key = SigningKey.generate()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(key.pem())
    return key


def read_configuration(path: Path | None, issuer: str = ISSUER) -> tuple[str, CheckedConfiguration | None]:
    """The text of a configuration file and what it says. Raises `BadInput` in a real server's words."""
    from muster.apiserver.authentication.configuration import ConfigurationError, decode_configuration
    from muster.apiserver.authentication.validation import checked_at_start

    if path is None:
        return "", None
    failed = f'failed to load authentication configuration from file "{path}"'
    try:
        text = path.read_text(encoding="utf-8")
        config = decode_configuration(text)
    except OSError as error:
        raise BadInput(f"{failed}: open {path}: {(error.strerror or str(error)).lower()}") from error
    except (ConfigurationError, UnicodeDecodeError) as error:
        raise BadInput(f"{failed}: {error}") from error
    try:
        return text, checked_at_start(config, (issuer,))
    except ConfigurationError as error:
        raise BadInput(str(error)) from error


def configured(options: AccessOptions, issuer: str = ISSUER) -> tuple[str, CheckedConfiguration | None]:
    """The text of the configuration file, "" without one, and which issuers are trusted. Raises `BadInput`."""
    from muster.apiserver.authentication.configuration import ConfigurationError
    from muster.apiserver.authentication.validation import checked_at_start

    if not options.oidc.is_set:
        return read_configuration(options.authentication_config, issuer)
    if options.authentication_config is not None:
        raise BadInput("authentication-config file and oidc-* flags are mutually exclusive")
    try:
        return "", checked_at_start(configuration_of(options.oidc), (issuer,), options.oidc.algorithms)
    except ConfigurationError as error:
        raise BadInput(str(error)) from error


def certificates_of(options: AccessOptions) -> Certificates:
    """Whose certificates mean something. Raises `BadInput`."""
    from muster.apiserver.authentication.certificates import Authority, Certificates, RequestHeaders

    def read(option: str, path: Path | None) -> Authority | None:
        if path is None:
            return None
        try:
            return Authority(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadInput(f"{option} {path}: cannot be used: {error}") from error

    return Certificates(
        read("--client-ca-file", options.client_ca_file),
        read("--requestheader-client-ca-file", options.requestheader_client_ca_file),
        RequestHeaders(allowed_names=options.requestheader_allowed_names),
    )


def anonymous_of(options: AccessOptions, config: CheckedConfiguration | None) -> Anonymous:
    """Who is let in without credentials. Raises `BadInput` if the option and the file both say it."""
    from muster.apiserver.authentication.configuration import Anonymous

    if config is not None and config.anonymous is not None:
        if options.anonymous_auth is not None:
            raise BadInput(
                "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in "
                "authentication configuration file"
            )
        return config.anonymous
    if options.authorization_mode == "AlwaysAllow":
        if options.anonymous_auth == "true":
            logger.warning(IGNORED)
        return Anonymous(False)  # as a real server: else everybody could do everything
    return Anonymous(options.anonymous_auth != "false")
