"""A server for real clients in a thread, and kubectl as a function."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import threading
from dataclasses import dataclass

from muster.api.codec import JSON
from muster.apiserver.front import Front
from muster.apiserver.http import HttpServer
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.clock import RealClock


class ServerThread:
    """The API server alone, without scheduler and controllers, in a thread with its own event loop."""

    def __init__(self) -> None:
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._main(),))

    async def _main(self) -> None:
        clock = RealClock()
        server = HttpServer(Front(ApiServer(MemoryStore(), clock, random.Random(1)), clock))
        await server.start()
        self.url = server.url
        self._ready.set()
        await self._stop.wait()
        await server.stop()

    def __enter__(self) -> ServerThread:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()


@dataclass(frozen=True)
class Kubectl:
    """Runs kubectl on one server."""

    program: str
    environment: dict[str, str]

    def __call__(self, *arguments: str, stdin: str = "", want: int = 0) -> str:
        """What kubectl printed; stdout, and stderr too if `want` (the exit code) is not 0."""
        done = subprocess.run(
            [self.program, *arguments],
            input=stdin,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == want, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr if want else done.stdout

    def json(self, *arguments: str) -> JSON:
        return json.loads(self(*arguments, "-o", "json"))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.program, *arguments], env=self.environment, stdout=subprocess.PIPE, text=True, bufsize=1
        )
