"""Leader election by a Lease on the embedded server, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import pytest

from muster.api.resource import LEASES
from muster.apiserver.inprocess import InProcessTransport
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.client.client import Client
from muster.client.transport import Body, Query, Response, Transport, TransportError, WatchEvents
from muster.clock import VirtualClock, run_virtual
from muster.scheduler.election import Election, LeaseTerms, may_take
from muster.scheduler.fence import DryTransport, FencedTransport, deed_of


class Cut:
    """A transport that can be cut off."""

    def __init__(self, transport: Transport) -> None:
        self.is_cut = False
        self.sent: list[str] = []
        self._transport = transport

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: Body = None
    ) -> Response:
        if self.is_cut:
            raise TransportError("cut")
        self.sent.append(method)
        return await self._transport.request(method, path, query=query, headers=headers, body=body)

    def watch(self, path: str, *, query: Query = ()) -> AsyncIterator[WatchEvents]:
        return self._transport.watch(path, query=query)


@dataclass
class Candidates:
    """Candidates for one lease, who note when they lead."""

    clock: VirtualClock
    server: ApiServer
    leading: dict[str, Election] = field(default_factory=dict)
    history: list[tuple[str, str, float]] = field(default_factory=list)
    cuts: dict[str, Cut] = field(default_factory=dict)
    elections: dict[str, Election] = field(default_factory=dict)

    def enter(self, name: str) -> asyncio.Task[None]:
        cut = self.cuts[name] = Cut(InProcessTransport(self.server))
        rng = random.Random(name)
        election = Election(Client(cut), self.clock, rng, LeaseTerms(), name)
        self.elections[name] = election

        async def run() -> None:
            while True:
                await election.acquire()
                assert not any(other.is_leading for other in self.leading.values()), "two lead at once"
                self.leading[name] = election
                self.history.append(("leads", name, self.clock.elapsed_s))
                await election.keep()
                del self.leading[name]
                self.history.append(("lost", name, self.clock.elapsed_s))

        return asyncio.get_running_loop().create_task(run())

    async def spec(self) -> Mapping[str, object]:
        lease = await Client(InProcessTransport(self.server)).get(LEASES, "kube-system", "muster-scheduler")
        found: Mapping[str, object] = lease["spec"]
        return found


def story(tell: Callable[[Candidates], Awaitable[None]]) -> Candidates:
    async def main(clock: VirtualClock) -> Candidates:
        candidates = Candidates(clock, ApiServer(MemoryStore(), clock, random.Random(1)))
        await tell(candidates)
        return candidates

    return run_virtual(main)


def test_one_leads_and_goes_on_leading() -> None:
    async def tell(candidates: Candidates) -> None:
        for name in ("a", "b", "c"):
            candidates.enter(name)
        await candidates.clock.sleep(300)

    assert [entry[:2] for entry in story(tell).history] == [("leads", "a")]


def test_one_that_is_cut_off_stops_before_the_next_one_begins() -> None:
    async def tell(candidates: Candidates) -> None:
        candidates.enter("a")
        await candidates.clock.sleep(1)
        candidates.enter("b")
        await candidates.clock.sleep(30)
        candidates.cuts["a"].is_cut = True
        await candidates.clock.sleep(60)
        candidates.cuts["a"].is_cut = False
        await candidates.clock.sleep(60)

    history = story(tell).history
    assert [entry[:2] for entry in history] == [("leads", "a"), ("lost", "a"), ("leads", "b")]
    lost_s, next_s = history[1][2], history[2][2]
    assert lost_s <= 31 + 10 and lost_s + 4 <= next_s <= 31 + 15 + 2 * 2.2 + 1


def test_one_that_gives_the_lease_back_is_followed_at_once() -> None:
    async def tell(candidates: Candidates) -> None:
        first = candidates.enter("a")
        await candidates.clock.sleep(1)
        candidates.enter("b")
        await candidates.clock.sleep(20)
        first.cancel()
        await candidates.elections["a"].release()
        assert not candidates.elections["a"].is_leading
        assert (await candidates.spec())["holderIdentity"] == ""
        candidates.leading.clear()
        await candidates.clock.sleep(5)
        spec = await candidates.spec()
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("b", 1)
        assert spec["leaseDurationSeconds"] == 15

    assert story(tell).history[-1][:2] == ("leads", "b")


@pytest.mark.parametrize(
    ("holder", "age_s", "want"),
    [("", 0.0, True), ("me", 0.0, True), ("other", 14.9, False), ("other", 15.0, True)],
)
def test_lease_is_taken_only_when_its_holder_was_silent(holder: str, age_s: float, want: bool) -> None:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
    assert may_take(spec, "me", observed_s=100.0, now_s=100.0 + age_s) is want


def test_fence_lets_reads_pass_and_no_writes() -> None:
    async def tell(candidates: Candidates) -> None:
        inner = Cut(InProcessTransport(candidates.server))
        fenced = FencedTransport(inner, lambda: False)
        await fenced.request("GET", "/api/v1/nodes")
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            with pytest.raises(TransportError, match="does not lead"):
                await fenced.request(method, "/api/v1/nodes")
        assert inner.sent == ["GET"]

    story(tell)


def test_dry_run_sends_reads_only_and_says_what_it_would_do() -> None:
    async def tell(candidates: Candidates) -> None:
        inner, said = Cut(InProcessTransport(candidates.server)), []
        dry = DryTransport(inner, lambda deed: said.append((deed.action, deed.object)))
        await dry.request("GET", "/api/v1/nodes")
        await dry.request("POST", "/api/v1/namespaces/n/pods/p/binding", body={"target": {"name": "node-1"}})
        await dry.request("DELETE", "/api/v1/namespaces/n/pods/p")
        assert inner.sent == ["GET"]
        assert said == [("bind", "pods n/p"), ("delete", "pods n/p")]

    story(tell)


def test_what_would_be_written_is_said_in_the_schedulers_words() -> None:
    conditions = {"status": {"conditions": [{"type": "T", "status": "False", "reason": "R", "message": "m"}]}}
    deed = deed_of("PATCH", "/apis/scheduling.k8s.io/v1alpha2/namespaces/n/podgroups/g/status", conditions)
    assert (deed.action, deed.object, deed.details["reason"]) == ("condition", "podgroups n/g", "R")
    deed = deed_of("PATCH", "/api/v1/namespaces/n/pods/p/status", {"status": {"nominatedNodeName": "x"}})
    assert (deed.action, deed.details) == ("nominate", {"node": "x"})
