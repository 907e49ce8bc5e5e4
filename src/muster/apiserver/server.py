"""The embedded API server's request path: from an `ApiRequest` to a `Response`, whatever transport brought it."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator
from itertools import chain, count
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from muster.api.codec import JSON
from muster.apiserver import bodies
from muster.apiserver.context import Context, Notes
from muster.apiserver.custom.keeper import DefinitionKeeper
from muster.apiserver.decoding import Types
from muster.apiserver.errors import StatusError, failure, internal, method_not_allowed
from muster.apiserver.options import ServerOptions
from muster.apiserver.registry.bootstrap import bootstrap_objects, policy_objects
from muster.apiserver.registry.table import resource_table
from muster.apiserver.request import ApiRequest
from muster.apiserver.resources import Route, Served
from muster.apiserver.store.protocol import Store, StoreFailed
from muster.apiserver.subresources import Call, handler_of
from muster.apiserver.verbs import Verbs
from muster.apiserver.watching import Watcher
from muster.client.transport import Response, WatchEvents
from muster.clock import Clock

if TYPE_CHECKING:
    from muster.apiserver.authentication.accounts import Accounts
    from muster.apiserver.authentication.chain import Authenticator, Verdict

logger = logging.getLogger(__name__)

_NOT_FOUND_TEXT = b"404 page not found\n"


class ApiServer:
    """Answers requests from a store. All requests of one server run in one event loop; each write is atomic."""

    def __init__(self, store: Store, clock: Clock, rng: random.Random, options: ServerOptions | None = None) -> None:
        self.store = store
        self.options = options or ServerOptions()
        self.resources = resource_table(self.options)
        self._clock = clock
        self._rng = rng
        self._types = Types(self.options.emulate or "")
        self._notes = Notes()
        self._verbs = Verbs(store)
        self._keeper = DefinitionKeeper(self._verbs, self.resources, self._types)
        self._custom_watches: WeakValueDictionary[int, Watcher] = WeakValueDictionary()
        self._numbers = count()
        self.accounts: Accounts | None = None
        """How tokens of service accounts are signed; None: they mean nothing."""
        self.authenticator: Authenticator | None = None
        """Who is asked about the tokens of TokenReviews; None: no token is good."""
        self._bootstrap()
        self._keeper.follow(self._own_context)

    def _bootstrap(self) -> None:
        """Create what every cluster has, where it is missing."""
        objects = bootstrap_objects(self.resources, self._clock.now())
        if "RBAC" in self.options.authorization_modes:
            objects = chain(objects, policy_objects(self.resources, self.options.emulate))
        for served, namespace, obj in objects:
            ctx = self._context(ApiRequest("POST", ""), served)
            if self.store.get(served.key(namespace, obj["metadata"]["name"])) is None:
                self._verbs.create(ctx, served, namespace, obj)

    async def handle(self, request: ApiRequest) -> Response:
        """The answer to one request that is not a watch. Never raises for what a client did."""
        route = self.resources.route(request.path)
        if route.served is None:
            return _unknown(route)
        ctx = self._context(request, route.served, route.subresource)
        try:
            if route.served.deprecation:
                ctx.warn(route.served.deprecation)
            if route.served.resource.kind == "TokenReview" and request.method == "POST":
                ctx.verdict = await self._verdict(ctx, request, route.served)
            body = self._dispatch(ctx, request, route, route.served)
            status = _success_code(ctx, request, body)
            if self._keeper.is_due(ctx):
                self._keeper.follow(self._own_context)
                self._end_watches_without_a_kind()
        except StatusError as error:
            return Response(error.code, error.status, _headers(ctx))
        except StoreFailed as error:
            return Response(500, internal(f"the data cannot be written: {error}").status)
        except Exception:
            logger.exception("request failed", extra={"method": request.method, "path": request.path})
            return Response(500, internal("the request could not be handled").status)
        # Answers to reads wait too, so that nobody sees what a crash could take back.
        await self.store.durable(self.store.revision)
        return Response(status, body, _headers(ctx))

    def stored_objects(self) -> dict[str, int]:
        """How many objects are stored, by `plural.group`."""
        found: dict[str, int] = {}
        for entry in self.resources.entries:
            resource = entry.resource
            name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
            if "list" in entry.verbs and name not in found:
                page = self.store.list(entry.prefix(), limit=1)
                found[name] = len(page.items) + page.remaining
        return found

    def is_watch(self, request: ApiRequest) -> bool:
        """Whether the request asks for a stream of events."""
        if request.method != "GET":
            return False
        if not bodies.go_bool(request.parameter("watch")):
            return "/watch/" in request.path and self.resources.route(request.path).is_watch
        route = self.resources.route(request.path)
        return route.is_watch or not route.name

    def watch(self, request: ApiRequest, *, bookmarks_by_time: bool = True) -> AsyncIterator[WatchEvents]:
        """The events that the request asks for, in batches. Raises StatusError at once if the request is refused.

        `bookmarks_by_time`: whether allowed bookmarks come by themselves (`ServerOptions.bookmark_interval_s`).
        """
        route = self.resources.route(request.path)
        if route.served is None:
            raise failure(404, "NotFound", "the server could not find the requested resource", {})
        watcher = Watcher(self.store, self._clock, self.options, route, request, by_time=bookmarks_by_time)
        if "." in watcher.storage:
            self._custom_watches[next(self._numbers)] = watcher
        return watcher.events()

    def _end_watches_without_a_kind(self) -> None:
        """Watches of custom kinds end with their definitions."""
        if self._custom_watches:
            served = {entry.storage for entry in self.resources.entries}
            for watcher in list(self._custom_watches.values()):
                if watcher.storage not in served:
                    watcher.stop()

    def _own_context(self, served: Served) -> Context:
        """The context of what the server does by itself."""
        return self._context(ApiRequest("", ""), served)

    def _context(self, request: ApiRequest, served: Served, subresource: str = "") -> Context:
        writes = request.method not in ("GET", "HEAD", "DELETE")
        return Context(
            self.store,
            self._clock.now(),
            self._rng,
            self.options,
            request.user,
            served.resource.version,
            self._types,
            self._notes,
            bodies.manager_of(request) if writes else "",
            subresource,
            writes and (isinstance(request.body, bytes) or bool(request.parameter("fieldManager"))),
            accounts=self.accounts,
        )

    async def _verdict(self, ctx: Context, request: ApiRequest, served: Served) -> Verdict | None:
        """What the token of a TokenReview is worth. Raises StatusError."""
        if self.authenticator is None:
            return None
        spec = bodies.read_object(ctx, request, served).get("spec") or {}
        token = spec.get("token")
        return await self.authenticator.review(token, spec.get("audiences") or ()) if token else None

    def _dispatch(self, ctx: Context, request: ApiRequest, route: Route, served: Served) -> JSON:
        if route.is_watch:
            raise method_not_allowed()  # a path of watches, for which the right to watch is enough
        if route.subresource:
            return self._subresource(ctx, request, route, served)
        if served.resource.kind == "Binding":
            return self._bind(ctx, request, route)
        verbs, namespace, name = self._verbs, route.namespace, route.name
        if not served.strategy.is_stored and request.method != "POST":
            raise method_not_allowed()
        if served.resource.namespaced and not namespace and (name or request.method not in ("GET", "HEAD")):
            raise method_not_allowed()
        match request.method, bool(name):
            case (("GET" | "HEAD"), True):
                return verbs.get(ctx, served, namespace, name)
            case (("GET" | "HEAD"), False):
                return verbs.list(ctx, served, namespace, request)
            case "POST", False if not served.strategy.is_stored:
                return verbs.answer(ctx, served, bodies.read_object(ctx, request, served))
            case "POST", False:
                bodies.read_write_options(ctx, request, "CreateOptions")
                return verbs.create(ctx, served, namespace, bodies.read_object(ctx, request, served))
            case "PUT", True:
                bodies.read_write_options(ctx, request, "UpdateOptions")
                return verbs.update(ctx, served, namespace, name, bodies.read_object(ctx, request, served))
            case "PATCH", True:
                bodies.read_write_options(ctx, request, "PatchOptions")
                return verbs.patch(ctx, served, namespace, name, bodies.read_patch(request, served.patch_types))
            case "DELETE", True:
                return verbs.delete(ctx, served, namespace, name, bodies.read_delete_options(ctx, request))
            case "DELETE", False if "deletecollection" in served.verbs:
                options = bodies.read_delete_options(ctx, request)
                return verbs.delete_collection(ctx, served, namespace, request, options)
        raise method_not_allowed()

    def _bind(self, ctx: Context, request: ApiRequest, route: Route) -> JSON:
        """POST to the collection of bindings: the old way to bind a pod."""
        if request.method != "POST" or route.name:
            raise method_not_allowed()
        pods = self.resources.find("", "v1", "pods")
        assert pods is not None
        name = bodies.read_any(request, "Binding")["metadata"].get("name", "")
        handler = handler_of(pods, "binding")
        assert handler is not None
        return handler(Call(ctx, self._verbs, pods, route.namespace, name, request))

    def _subresource(self, ctx: Context, request: ApiRequest, route: Route, served: Served) -> JSON:
        handler = handler_of(served, route.subresource)
        if handler is None:
            raise failure(404, "NotFound", "the server could not find the requested resource", {})
        return handler(Call(ctx, self._verbs, served, route.namespace, route.name, request))


def _unknown(route: Route) -> Response:
    if route.group_version_known:
        error = failure(404, "NotFound", "the server could not find the requested resource", {})
        return Response(404, error.status)
    return Response(404, _NOT_FOUND_TEXT, {"Content-Type": "text/plain; charset=utf-8"})


def _headers(ctx: Context) -> dict[str, str]:
    if not ctx.warnings:
        return {}
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in ctx.warnings)
    return {"Warning": ", ".join(f'299 - "{text}"' for text in quoted)}


def _success_code(ctx: Context, request: ApiRequest, body: JSON) -> int:
    if request.method == "POST" or ctx.is_new:
        return 201
    return 200
