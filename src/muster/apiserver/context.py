"""What the rules of a kind may know about the request they work for."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct, field

from muster.api.codec import Object, Objects
from muster.apiserver.decoding import Types
from muster.apiserver.options import ServerOptions
from muster.apiserver.request import User
from muster.apiserver.store.protocol import Store
from muster.clock import rfc3339

if TYPE_CHECKING:
    from muster.apiserver.authentication.accounts import Accounts
    from muster.apiserver.authentication.chain import Verdict


class Notes(Struct):
    """What one server remembers between requests to save work. `writes`: how often each storage was written;
    `kept`: values with the number of writes that they were made at."""

    writes: dict[str, int] = field(default_factory=dict)
    kept: dict[str, tuple[int, Object | None]] = field(default_factory=dict)

    def wrote(self, storage: str) -> None:
        """Something under this storage changed."""
        self.writes[storage] = self.writes.get(storage, 0) + 1

    def remember(self, name: str, storage: str, make: Callable[[], Object | None]) -> Object | None:
        """The value of that name; made anew only after something under `storage` was written."""
        writes = self.writes.get(storage, 0)
        found = self.kept.get(name)
        if found is None or found[0] != writes:
            found = self.kept[name] = (writes, make())
        return found[1]


class Context(Struct):
    """One request: the time, chance, options, who asks, and warnings to send along. `now` is in seconds.

    `manager`: who is to own the fields that are written; `tracks`: whether new objects note it. `entries`: the
    managedFields that an apply has decided already. `accounts`: how tokens are signed, if they are; `verdict`: what
    the token that a TokenReview asks about is worth.
    """

    store: Store
    now: float
    rng: random.Random
    options: ServerOptions
    user: User
    version: str
    types: Types
    notes: Notes
    manager: str = ""
    subresource: str = ""
    tracks: bool = False
    entries: Objects | None = None
    field_validation: str = "Warn"
    dry_run: bool = False
    is_new: bool = False
    warnings: list[str] = field(default_factory=list)
    accounts: Accounts | None = None
    verdict: Verdict | None = None

    @property
    def timestamp(self) -> str:
        return rfc3339(self.now)

    def warn(self, text: str) -> None:
        """Send a warning along with the answer, once."""
        if text not in self.warnings:
            self.warnings.append(text)

    def read(self, storage: str, namespace: str, name: str) -> Object | None:
        """Another stored object, in its stored form; it must not be changed."""
        key = f"/{storage}/{namespace}/{name}" if namespace else f"/{storage}/{name}"
        return self.store.get(key)
