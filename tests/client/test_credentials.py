"""Tokens that change, plugins that expire, and what a 401 does."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from muster.api.codec import JSON, Object
from muster.client.connection import Connection, ExecPlugin
from muster.client.credentials import CredentialsError, FileCredentials, PluginCredentials, credentials_of
from muster.client.retrying import MAX_RETRIES, RetryingTransport
from muster.client.transport import Body, Query, Response, TransportError, WatchEvents
from muster.clock import VirtualClock, rfc3339, run_virtual

VERSION = "client.authentication.k8s.io/v1"


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.time_s = 1_000_000.0

    def now(self) -> float:
        return self.time_s

    async def sleep(self, seconds: float, *, periodic: bool = False) -> None:
        self.time_s += seconds


def plugin(folder: Path, status: JSON, *, version: str = VERSION, code: int = 0) -> ExecPlugin:
    """A plugin that prints this status, and counts its runs in `runs`."""
    script = folder / "plugin.py"
    script.write_text(
        "import json, os, sys\n"
        f"open({str(folder / 'runs')!r}, 'a').write('x')\n"
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "assert info['spec'] == {'interactive': False, 'cluster': {'server': 's'}}, info\n"
        f"status = {status!r}\n"
        "if 'token' in status: status['token'] += os.environ['SUFFIX']\n"
        f"print(json.dumps({{'kind': 'ExecCredential', 'apiVersion': {version!r}, 'status': status}}))\n"
        f"sys.exit({code})\n"
    )
    return ExecPlugin(VERSION, sys.executable, (str(script),), (("SUFFIX", "!"),), "get it at x", {"server": "s"})


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text())


def test_plugin_runs_once_until_its_credentials_expire(tmp_path: Path) -> None:
    async def main() -> None:
        clock = Hands()
        expires = rfc3339(clock.now() + 100)
        credentials = PluginCredentials(plugin(tmp_path, {"token": "t", "expirationTimestamp": expires}), clock)
        found = await asyncio.gather(*(credentials.identity() for _ in range(3)))
        assert {identity.authorization for identity in found} == {"Bearer t!"}
        assert runs(tmp_path) == 1
        clock.time_s += 95  # within the leeway
        await credentials.identity()
        assert runs(tmp_path) == 2

    asyncio.run(main())


def test_refused_plugin_credentials_are_asked_for_anew(tmp_path: Path) -> None:
    async def main() -> None:
        credentials = PluginCredentials(plugin(tmp_path, {"token": "t"}), Hands())
        await credentials.identity()
        await credentials.identity()
        assert runs(tmp_path) == 1
        assert credentials.refused()
        await credentials.identity()
        assert runs(tmp_path) == 2

    asyncio.run(main())


def test_plugin_may_give_a_certificate(tmp_path: Path) -> None:
    status = {"clientCertificateData": "C", "clientKeyData": "K"}
    found = asyncio.run(PluginCredentials(plugin(tmp_path, status), Hands()).identity())
    assert (found.authorization, found.certificate, found.key) == ("", "C", "K")


@pytest.mark.parametrize(
    ("status", "version", "code", "want"),
    [
        ({}, VERSION, 0, "printed neither status.token"),
        ({"token": "t"}, "client.authentication.k8s.io/v1beta1", 0, "printed client.authentication.k8s.io/v1beta1"),
        ({"token": "t"}, VERSION, 3, "failed with exit code 3"),
        ({"token": "t", "expirationTimestamp": "soon"}, VERSION, 0, "did not print an ExecCredential"),
    ],
)
def test_plugin_that_fails_says_how(tmp_path: Path, status: Object, version: str, code: int, want: str) -> None:
    credentials = PluginCredentials(plugin(tmp_path, status, version=version, code=code), Hands(), "config: users[0]")
    with pytest.raises(CredentialsError, match=want) as caught:
        asyncio.run(credentials.identity())
    assert str(caught.value).startswith("config: users[0].exec: ")


def test_plugin_that_is_not_there_says_how_to_get_it() -> None:
    credentials = PluginCredentials(ExecPlugin(VERSION, "/no/such", install_hint="get it at x"), Hands())
    with pytest.raises(CredentialsError, match=r"/no/such cannot be started: .*\(get it at x\)"):
        asyncio.run(credentials.identity())


def test_token_file_is_read_again_after_a_minute_or_a_refusal(tmp_path: Path) -> None:
    async def main() -> None:
        clock, path = Hands(), tmp_path / "token"
        path.write_text("one\n")
        credentials = FileCredentials(path, clock)
        assert (await credentials.identity()).authorization == "Bearer one"
        path.write_text("two")
        assert (await credentials.identity()).authorization == "Bearer one"
        clock.time_s += 61
        assert (await credentials.identity()).authorization == "Bearer two"
        path.write_text("three")
        assert credentials.refused()
        assert (await credentials.identity()).authorization == "Bearer three"
        path.unlink()
        clock.time_s += 61
        assert (await credentials.identity()).authorization == "Bearer three", "the last one is kept"

    asyncio.run(main())


def test_user_and_password_are_sent_as_basic() -> None:
    found = asyncio.run(credentials_of(Connection("https://s", username="n", password="p"), Hands()).identity())
    assert found.authorization == "Basic bjpw"


class Answers:
    """A server that gives these answers one after the other, the last one for ever. None: the connection breaks."""

    def __init__(self, *answers: tuple[int, dict[str, str]] | None) -> None:
        self.asked = 0
        self._answers = answers

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: Body = None
    ) -> Response:
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        if answer is None:
            raise TransportError("broken")
        return Response(answer[0], {}, answer[1])

    def watch(self, path: str, *, query: Query = ()) -> AsyncIterator[WatchEvents]:
        raise NotImplementedError


def ask(server: Answers, method: str) -> tuple[int, float]:
    """The status in the end (0: broken), and how many seconds it took."""

    async def main(clock: VirtualClock) -> tuple[int, float]:
        transport = RetryingTransport(server, clock, random.Random(1))
        try:
            status = (await transport.request(method, "/x")).status
        except TransportError:
            status = 0
        return status, clock.elapsed_s

    return run_virtual(main)


def test_server_that_asks_to_wait_is_asked_again_after_that() -> None:
    server = Answers((429, {"Retry-After": "2"}), (503, {"retry-after": "3"}), (200, {}))
    status, took_s = ask(server, "POST")
    assert (status, server.asked) == (200, 3)
    assert 5 <= took_s <= 6.25


def test_what_the_server_does_not_ask_to_repeat_is_not_repeated() -> None:
    assert ask(server := Answers((500, {})), "POST")[0] == 500 and server.asked == 1
    assert ask(server := Answers(None), "POST")[0] == 0 and server.asked == 1


def test_broken_reads_are_repeated_a_few_times() -> None:
    assert ask(server := Answers(None, None, (200, {})), "GET")[0] == 200 and server.asked == 3
    assert ask(server := Answers(None), "GET")[0] == 0 and server.asked == 4


def test_repetition_ends() -> None:
    assert ask(server := Answers((429, {"Retry-After": "1"})), "GET")[0] == 429
    assert server.asked == MAX_RETRIES + 1
