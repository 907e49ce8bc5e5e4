"""The configuration file while the server runs: changes are taken over, or refused with the last good one kept.

A valid change takes effect when all its issuers have been looked up; one that is not valid is not tried again until the
text changes. Source: kube-apiserver `pkg/controlplane/apiserver/options` and apiserver
`pkg/server/options/authenticationconfig/metrics`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from muster.apiserver.authentication.chain import Authenticator
from muster.apiserver.authentication.configuration import Anonymous, ConfigurationError, decode_configuration
from muster.apiserver.authentication.issuers import Fetch, IssuerSet
from muster.apiserver.authentication.validation import check_usable, checked_at_reload
from muster.clock import Clock

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

logger = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often the file is read."""
RETRY_S = 60.0
"""How long after a failed update, or a file that cannot be read, the same is tried again."""
HEALTHY_WITHIN_S = 60.0
"""How long the issuers of a change may take to be looked up."""
KEEP_OLD_S = 60.0
"""For how long what was replaced goes on, for requests that are under way."""
Told = Callable[[str, str], None]
"""Called after each try with the stage that failed (read, load, validate, update), or "reloaded", and the error."""


class ConfigurationKeeper:
    """Follows one file. `look` once, or `run` until cancelled."""

    def __init__(
        self,
        read: Callable[[], str],
        text: str,
        authenticator: Authenticator,
        clock: Clock,
        fetch: Fetch,
        *,
        own_issuers: Sequence[str],
        anonymous: Anonymous | None,
        told: Told = lambda stage, error: None,
    ) -> None:
        """`text`: the file's when the server started, whose `anonymous` may not change."""
        self._read = read
        self._tried = self._in_use = text
        self._retry_at = 0.0
        self._authenticator = authenticator
        self._clock = clock
        self._fetch = fetch
        self._own_issuers = own_issuers
        self._anonymous = anonymous
        self._told = told
        self._outcomes: dict[str, tuple[int, float]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Look at the file again and again."""
        while True:
            await self._clock.sleep(LOOK_S, periodic=True)
            await self.look()

    async def look(self) -> None:
        """Take over what the file says, if that is new and good."""
        retries = 0.0 < self._retry_at <= self._clock.now()
        try:
            text = self._read()
        except OSError as error:
            if retries or not self._retry_at:
                self._failed("read", f"open {error.filename}: {(error.strerror or str(error)).lower()}", retry=True)
            return
        except UnicodeDecodeError as error:
            text, problem = "\0", str(error)
            if self._tried != text:
                self._tried = text
                self._failed("load", problem)
            return
        if text == self._tried and not retries:
            return
        is_new, self._tried, self._retry_at = text != self._tried, text, 0.0
        if is_new or text != self._in_use:
            await self._update(text)

    async def _update(self, text: str) -> None:
        try:
            config = decode_configuration(text)
        except ConfigurationError as error:
            self._failed("load", str(error))
            return
        try:
            checked = checked_at_reload(config, self._own_issuers, self._anonymous)
        except ConfigurationError as error:
            self._failed("validate", str(error))
            return
        try:
            check_usable(config)
        except ConfigurationError as error:
            self._failed("update", str(error), retry=True)
            return
        issuers = IssuerSet(checked, self._clock, self._fetch)
        issuers.start()
        problems = await self._problems_of(issuers)
        if problems:
            issuers.stop()
            self._failed("update", f"[{', '.join([*problems, 'context deadline exceeded'])}]", retry=True)
            return
        old = self._authenticator.replace_issuers(issuers)
        if old is not None:
            task = asyncio.get_running_loop().create_task(self._end(old))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        self._in_use = text
        self._note("success")
        logger.info("reloaded authentication config")
        self._told("reloaded", "")

    async def _problems_of(self, issuers: IssuerSet) -> list[str]:
        """Wait until all issuers are usable; why some are not, if that takes too long."""
        until = self._clock.now() + HEALTHY_WITHIN_S
        await asyncio.sleep(0)
        while (problems := issuers.problems()) and self._clock.now() < until:
            await self._clock.sleep(LOOK_S, periodic=True)
        return problems

    async def _end(self, old: IssuerSet) -> None:
        await self._clock.sleep(KEEP_OLD_S, periodic=True)
        old.stop()

    def _failed(self, stage: str, error: str, *, retry: bool = False) -> None:
        self._retry_at = self._clock.now() + RETRY_S if retry else 0.0
        self._note("failure")
        logger.error("failed to reload authentication config", extra={"stage": stage, "error": error})
        self._told(stage, error)

    def _note(self, status: str) -> None:
        self._outcomes[status] = (self._outcomes.get(status, (0, 0.0))[0] + 1, self._clock.now())

    def metrics(self) -> Iterator[Metric]:
        """Upstream's metrics of reloads, for Prometheus."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        prefix, server = "apiserver_authentication_config_controller", hashed(self._own_issuers[0])
        labels = ("status", "apiserver_id_hash")
        total = CounterMetricFamily(f"{prefix}_automatic_reloads", "Reloads by outcome.", labels=labels)
        last = GaugeMetricFamily(
            f"{prefix}_automatic_reload_last_timestamp_seconds", "When the last reload was.", labels=labels
        )
        for status, (count, when) in sorted(self._outcomes.items()):
            total.add_metric((status, server), count)
            last.add_metric((status, server), when)
        yield total
        yield last
        info = GaugeMetricFamily(f"{prefix}_last_config_info", "The file in use.", labels=("apiserver_id_hash", "hash"))
        info.add_metric((server, hashed(self._in_use)), 1)
        yield info


def hashed(text: str) -> str:
    """A text as upstream's metrics name it."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
