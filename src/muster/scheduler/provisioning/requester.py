"""Makes, follows and removes ProvisioningRequests; what is to be done is decided in `planning`.

The service tells it which entities of its queue lack room and which do not; the requests themselves are watched.
Requests of an earlier process are found by their label and taken over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from muster.api.codec import Object, Objects
from muster.api.meta import condition, key_of, name_of, namespace_of, uid_of
from muster.api.resource import Resource
from muster.client.client import Client
from muster.client.events import EventRecorder
from muster.client.informer import Change, Informer
from muster.client.transport import ApiError, ClientError
from muster.clock import Clock, wait
from muster.scheduler.provisioning.objects import (
    MANAGED_BY,
    MOST_POD_SETS,
    POD_TEMPLATES,
    PROVISIONING_REQUESTS,
    SERVED_VERSIONS,
    PodSet,
    ProvisioningTerms,
    State,
    attempt_of,
    consumes_another,
    entity_of,
    pod_marks,
    request_name,
    request_objects,
    state_of,
    template_keys,
)
from muster.scheduler.provisioning.planning import LET_GO_S, Make, Remove, Want, next_steps
from muster.scheduler.served import served

logger = logging.getLogger(__name__)

LOOK_AGAIN_S = 60.0
"""How often the kind is looked for on a server that does not have it."""
RETRY_S = 10.0
"""The pause after the server refused something."""
CHECK_S = 10.0
"""How often it is checked that those that lacked room are still there."""


class ProvisioningReports(Protocol):
    """What the scheduler says about entities, and wants to know."""

    def is_waiting(self, entity: str) -> bool:
        """Whether the entity has pods that wait for a node."""

    def provisioned(self, entity: str) -> None:
        """What was asked for is there."""

    def requests_are(self, outcome: str) -> None:
        """A request was made, or came to a state (for metrics)."""


class Requester:
    """The requests of a scheduler."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        events: EventRecorder,
        terms: ProvisioningTerms,
        reports: ProvisioningReports,
    ) -> None:
        self._client = client
        self._clock = clock
        self._events = events
        self._terms = terms
        self._reports = reports
        self._resource: Resource | None = None
        self._wants: dict[str, Want] = {}
        self._idle_since_s: dict[str, float] = {}
        self._attempts: dict[str, int] = {}
        """How many requests there were for each entity that lacks room or has a request."""
        self._requests: dict[str, Object] = {}
        self._states: dict[str, State] = {}
        self._work = asyncio.Event()
        self._too_mixed: set[str] = set()

    def lacks_room(self, entity: str, owner: Object, pods: list[Object], sets: tuple[PodSet, ...]) -> None:
        """An entity's pods fit nowhere."""
        if self._resource is None:
            return
        name, namespace = request_name(entity, owner), namespace_of(pods[0])
        if consumes_another(pods, name):
            self.needs_none(entity)
            return
        if len(sets) > MOST_POD_SETS:
            self._refuse(entity, owner, namespace, len(sets))
            return
        want = Want(entity, namespace, owner, sets, self._clock.now())
        known = self._wants.get(entity)
        if known is None or replace(known, since_s=want.since_s) != want:
            self._wants[entity] = want
            self._work.set()
        self._idle_since_s.pop(entity, None)

    def marks_of(self, entity: str) -> Mapping[str, str]:
        """The annotations that pods of an entity need before anybody sees that they wait; none if it lacks no room."""
        want = self._wants.get(entity)
        return {} if want is None else pod_marks(want.name, self._terms)

    def needs_none(self, entity: str) -> None:
        """The entity was placed, is held, waits for victims, or is gone."""
        is_known = self._wants.pop(entity, None) is not None or entity in self._attempts
        if is_known and entity not in self._idle_since_s:
            self._idle_since_s[entity] = self._clock.now()
            self._work.set()

    async def run(self) -> None:
        """Work until cancelled; first wait until the server has the kind."""
        self._resource = await self._find()
        selector = "=".join(MANAGED_BY)
        informer = Informer(self._client, self._clock, self._resource, label_selector=selector)
        informer.add_handler(self._arrived)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informer.run())
            await informer.synced.wait()
            while True:
                self._judge_unwanted()
                steps = next_steps(
                    self._wants, self._idle_since_s, self._requests.values(), self._attempts, self._clock.now()
                )
                results = [await self._take(step) for step in steps.now]
                if not all(results):
                    await self._clock.sleep(RETRY_S)
                elif not steps.now:
                    self._work.clear()
                    await self._rest(steps.again_s)

    async def _rest(self, until_s: float | None) -> None:
        """Wait for news or a time, with a look at what may be gone now and then."""
        pause_s = None if until_s is None else max(0.0, until_s - self._clock.now())
        if self._wants and (pause_s is None or pause_s > CHECK_S):
            await wait(self._clock, self._work, CHECK_S, periodic=True)
        else:
            await wait(self._clock, self._work, pause_s)

    async def _find(self) -> Resource:
        warned = False
        while True:
            for version in SERVED_VERSIONS:
                resource = replace(PROVISIONING_REQUESTS, version=version)
                if await served(self._client, self._clock, resource, optional=True) is not None:
                    return resource
            if not warned:
                logger.warning("server has no ProvisioningRequests, or they may not be seen: looking again later")
                warned = True
            await self._clock.sleep(LOOK_AGAIN_S, periodic=True)

    def _arrived(self, changes: list[Change]) -> None:
        for change in changes:
            key, entity = key_of(change.object), entity_of(change.object)
            if change.new is None:
                self._requests.pop(key, None)
                self._states.pop(uid_of(change.object), None)
                if entity not in self._wants and all(entity_of(each) != entity for each in self._requests.values()):
                    self._idle_since_s.pop(entity, None)
                    self._attempts.pop(entity, None)
            else:
                self._requests[key] = change.new
                self._attempts[entity] = max(self._attempts.get(entity, 0), attempt_of(change.new))
                self._follow(change.new, is_news=change.old is not None)
        self._work.set()

    def _judge_unwanted(self) -> None:
        """Entities that are gone, and requests of those that nobody has spoken of: once they have no pending pods."""
        for entity in [each for each in self._wants if not self._reports.is_waiting(each)]:
            self.needs_none(entity)
        for request in self._requests.values():
            entity = entity_of(request)
            if entity not in self._wants and not self._reports.is_waiting(entity):
                self._idle_since_s.setdefault(entity, self._clock.now() - LET_GO_S)

    def _follow(self, request: Object, *, is_news: bool) -> None:
        state = state_of(request)
        before, self._states[uid_of(request)] = self._states.get(uid_of(request)), state
        if state == before or not is_news:
            return
        said = condition(request, state.value) or {}
        logger.info(
            "provisioning request",
            extra={"request": key_of(request), "state": state.value, "text": said.get("message") or ""},
        )
        self._reports.requests_are(state.value)
        if state == State.PROVISIONED or state.is_over:
            message = (
                f"ProvisioningRequest {name_of(request)}: {said.get('message') or said.get('reason') or state.value}"
            )
            self._say(request, "Warning" if state.is_over else "Normal", f"ProvisioningRequest{state.value}", message)
        if state == State.PROVISIONED:
            self._reports.provisioned(entity_of(request))

    # -- effects -----------------------------------------------------------------------------------------------------

    async def _take(self, step: Make | Remove) -> bool:
        """Do it; False if it is to be tried again after a pause."""
        if isinstance(step, Remove):
            return await self._remove(step.request)
        return await self._make(step.want, step.attempt)

    async def _make(self, want: Want, attempt: int) -> bool:
        assert self._resource is not None, "steps are only taken once the kind is known"
        templates, request = request_objects(
            want.entity,
            want.namespace,
            want.owner,
            want.sets,
            self._terms,
            attempt=attempt,
            version=self._resource.version,
        )
        for template in templates:
            if not await self._insist(partial(self._client.create, POD_TEMPLATES, want.namespace, template)):
                return False
        resource, made = self._resource, list[Object]()

        async def create() -> None:
            made.append(await self._client.create(resource, want.namespace, request))

        if not await self._insist(create) or not made:
            return False
        for each in made:
            self._requests[key_of(each)] = each  # until the watch brings it
            self._states[uid_of(each)] = State.ASKED
            self._attempts[want.entity] = attempt
            pods = sum(podset.count for podset in want.sets)
            self._reports.requests_are(State.ASKED.value)
            logger.info("provisioning request", extra={"request": key_of(each), "state": "Asked", "pods": pods})
            message = f"Created ProvisioningRequest {name_of(each)} for {pods} pods"
            self._say(each, "Normal", "ProvisioningRequestCreated", message)
        return True

    async def _remove(self, request: Object) -> bool:
        assert self._resource is not None, "requests are only known once the kind is"
        resource, namespace, name = self._resource, namespace_of(request), name_of(request)
        options = {"preconditions": {"uid": uid_of(request)}}
        if not await self._insist(partial(self._client.delete, resource, namespace, name, options)):
            return False
        self._requests.pop(key_of(request), None)
        if entity_of(request) not in self._wants:
            self._idle_since_s.pop(entity_of(request), None)
            self._attempts.pop(entity_of(request), None)
        for place, template in template_keys(request):
            await self._insist(partial(self._client.delete, POD_TEMPLATES, place, template))
        return True

    async def _insist(self, request: Callable[[], Awaitable[object]]) -> bool:
        """Send a request. What is there or gone already is as good; False if it was refused or not answered."""
        try:
            await request()
        except ApiError as error:
            if error.code in (404, 409):
                return True
            logger.warning("provisioning request refused", extra={"error": str(error)})
            return False
        except ClientError as error:
            logger.warning("provisioning request not answered", extra={"error": str(error)})
            return False
        return True

    def _say(self, request: Object, type_: str, reason: str, message: str) -> None:
        """An event about the object that the request is for."""
        owners: Objects = request["metadata"].get("ownerReferences") or []
        for owner in owners[:1]:
            metadata = {"name": owner["name"], "namespace": namespace_of(request), "uid": owner.get("uid")}
            about = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "metadata": metadata}
            self._events.record(about, type_, reason, message)

    def _refuse(self, entity: str, owner: Object, namespace: str, count: int) -> None:
        self.needs_none(entity)
        if entity not in self._too_mixed:
            self._too_mixed.add(entity)
            text = f"{count} kinds of pods: a ProvisioningRequest takes at most {MOST_POD_SETS}"
            logger.warning("no provisioning request", extra={"entity": entity, "why": text})
            self._say(
                {"metadata": {"namespace": namespace, "ownerReferences": [owner]}},
                "Warning",
                "ProvisioningRequestNotCreated",
                text,
            )
