"""What a controller's reconcile function answers: writes to make, as values, and when to look again.

`reconcile(key, state, now) -> Result` is pure; `runner.py` executes the actions in order through the client (neighbours
of one kind, creations or deletions, may run side by side). An action that fails ends the list: the key is reconciled
again with back-off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec import Struct

from muster.api.codec import Object
from muster.api.resource import Resource
from muster.client.transport import MERGE_PATCH


class Emit(Struct, frozen=True):
    """Record an event about `about`; never fails the reconcile.

    As the `done` or `failed` of another action, `{name}` in the message stands for the name of the object that was
    written, `{error}` for what the server said.
    """

    about: Object
    type_: str
    reason: str
    message: str


class Create(Struct, frozen=True):
    """POST `object`. `ignore_exists`: AlreadyExists counts as done."""

    resource: Resource
    object: Object
    ignore_exists: bool = False
    done: Emit | None = None
    failed: Emit | None = None


class Update(Struct, frozen=True):
    """PUT `object` (its resourceVersion must be current) on the main resource or a subresource such as `status`."""

    resource: Resource
    object: Object
    subresource: str = ""


class Patch(Struct, frozen=True):
    """PATCH. NotFound counts as done when `ignore_missing`."""

    resource: Resource
    namespace: str
    name: str
    patch: Object | list[Object]
    type_: str = MERGE_PATCH
    subresource: str = ""
    ignore_missing: bool = True
    done: Emit | None = None
    failed: Emit | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE with DeleteOptions; NotFound (and, with a uid precondition, Conflict) counts as done."""

    resource: Resource
    namespace: str
    name: str
    options: Object = field(default_factory=dict)
    done: Emit | None = None
    failed: Emit | None = None


Action: TypeAlias = Create | Update | Patch | Delete | Emit


class Result(Struct, frozen=True):
    """The actions to execute, and after how many seconds to reconcile this key again even if nothing changes.

    A later reconcile of the key replaces the timer. `periodic`: the timer recurs for ever by itself, so a simulation
    does not wait for it. `memory`: kept for the next reconcile of this key (`State.memory`) once all actions succeeded;
    None keeps nothing. `on_failure`: given the action that failed and what the server said, actions that tell of it;
    the key is reconciled again with back-off all the same.
    """

    actions: tuple[Action, ...] = ()
    requeue_after_s: float | None = None
    periodic: bool = False
    memory: object | None = None
    on_failure: Callable[[Action, str], tuple[Action, ...]] | None = None
