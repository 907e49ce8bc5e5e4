"""What the rules of a kind may know about the request they work for."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from muster.api.codec import Object
from muster.apiserver.decoding import Types
from muster.apiserver.options import ServerOptions
from muster.apiserver.request import User
from muster.apiserver.store.protocol import Store
from muster.clock import rfc3339


@dataclass(slots=True)
class Context:
    """One request: the time, chance, options, who asks, and warnings to send along. `now` is in seconds."""

    store: Store
    now: float
    rng: random.Random
    options: ServerOptions
    user: User
    version: str
    types: Types
    field_validation: str = "Warn"
    dry_run: bool = False
    is_new: bool = False
    warnings: list[str] = field(default_factory=list)

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
