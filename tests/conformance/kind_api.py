"""Conversations with real API servers: the recorded requests go to ours, in virtual time, and the answers are compared.

Each scenario gets a cluster of its own at the recording's compatibility level. Requests pass the same front as over
HTTP (forms of answers, tables, discovery); there are no sockets. An exchange takes some milliseconds, and what
controllers do a little more, as when it was recorded. The unit is an exchange.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import groupby

from answers import compare
from conversation import Values, ask
from outcome import Difference, Kind, Outcome

from muster.api.codec import Object, dumps, loads
from muster.apiserver.front import Front
from muster.apiserver.options import Release
from muster.apiserver.store.memory import MemoryStore
from muster.client.transport import Body, Query, Response, Transport, WatchEvents
from muster.clock import Clock, VirtualClock, run_virtual
from muster.simulator.embedded import EmbeddedCluster
from muster.simulator.options import ClusterOptions

WITHOUT = frozenset(
    {
        "daemonset-controller",
        "deployment-controller",
        "node-lifecycle-controller",
        "nodes",
        "replicaset-controller",
        "root-ca-certificate-publisher-controller",
        "scheduler",
        "serviceaccount-controller",
        "statefulset-controller",
    }
)
"""What did not run when the conversations were recorded."""
CONTROLLER_S = 0.005
"""How long each request of the controllers takes."""
START_S = 1.0
"""How long the controllers have to find out what is served."""
PAUSE_S = 0.003
"""The time between two exchanges; recorded waits come on top."""
MARKS: dict[Release, str] = {"1.35": "v1alpha1", "1.36": "v1alpha2", "1.37": "v1alpha3"}
"""A version of the scheduling group that only that release served."""


class Slow:
    """A transport whose requests take `CONTROLLER_S`."""

    def __init__(self, inner: Transport, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: Body = None
    ) -> Response:
        await self._clock.sleep(CONTROLLER_S)
        return await self._inner.request(method, path, query=query, headers=headers, body=body)

    def watch(self, path: str, *, query: Query = ()) -> AsyncIterator[WatchEvents]:
        return self._inner.watch(path, query=query)


def recognise(line: Object) -> bool:
    """Whether a line is one exchange of an API conversation."""
    return {"scenario", "step", "request", "response", "wait_s"} <= line.keys()


def with_release(lines: Sequence[Object]) -> list[Object]:
    """The lines, each with the release that it was recorded with, and with the scenario as its id."""
    release = _release(lines)
    return [{**line, "id": line["scenario"], "release": release} for line in lines]


def _release(lines: Sequence[Object]) -> Release:
    """The release of a recording, by the version of the scheduling group in its paths."""
    for release, version in MARKS.items():
        mark = f"/scheduling.k8s.io/{version}"
        if any(mark in line["request"]["path"] and line["response"]["code"] < 300 for line in lines):
            return release
    return "1.37"


def run(lines: Sequence[Object], seed: int | None) -> Iterator[Outcome]:
    """Replay the scenarios one after the other."""
    for _, group in groupby(lines, key=lambda line: line["scenario"]):
        steps = list(group)
        yield from replay_scenario(steps if seed is None else varied(steps, seed), seed)


_LETTERS = "bcdfghklmnpqrstvwxz"


def varied(steps: Sequence[Object], seed: int) -> list[Object]:
    """The scenario with another namespace, another domain of custom resources, other names of what has no namespace.

    Requests and answers are renamed alike. The new names sort as the old ones, since lists are in the order of names.
    """
    scenario = steps[0]["scenario"]
    rng = random.Random(f"{seed} {scenario}")
    word = "".join(rng.choice(_LETTERS) for _ in range(rng.randint(4, 9)))
    renamed = {f"s-{scenario.replace('_', '-')}": f"s{word}", "rec.test": f"{word}.test", "rec-": f"r{word}-"}
    result: list[Object] = []
    for step in steps:
        text = dumps({key: step[key] for key in ("request", "response")}).decode()
        for old, new in renamed.items():
            text = re.sub(rf"(?<![a-z]){re.escape(old)}", new, text)
        result.append({**step, **loads(text)})
    return result


def replay_scenario(steps: Sequence[Object], seed: int | None) -> list[Outcome]:
    """Replay one scenario on a fresh cluster."""

    async def main(clock: VirtualClock) -> list[Outcome]:
        options = ClusterOptions(without=WITHOUT, emulate=steps[0]["release"])

        def slowly(component: str, transport: Transport, rng: random.Random) -> Transport:
            return Slow(transport, clock)

        cluster = EmbeddedCluster(MemoryStore(), clock, random.Random(seed or 0), options, connect=slowly)
        running = asyncio.get_running_loop().create_task(cluster.run())
        try:
            await clock.sleep(START_S)
            return await _converse(Front(cluster.server, clock), clock, steps)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    return run_virtual(main)


async def _converse(front: Front, clock: VirtualClock, steps: Sequence[Object]) -> list[Outcome]:
    values, outcomes = Values(), []
    for step in steps:
        await clock.sleep(PAUSE_S + step["wait_s"])
        code, warnings, body = await ask(front, step["request"], values)
        values.learn(step["response"]["body"], body)
        if step["setup"]:
            continue
        found = compare(step, code, warnings, body)
        path = f"step {step['step']}: "
        differences = tuple(Difference(path + one.path, one.want, one.got) for one in found)
        request = step["request"]
        unit = f"{step['scenario']} {step['step']} {request['method']} {request['path']} ({step['note']})"
        outcomes.append(Outcome(unit, step["scenario"], differences))
    return outcomes


KIND = Kind("API conversations", recognise, lambda line: str(line["scenario"]), run, with_release)
