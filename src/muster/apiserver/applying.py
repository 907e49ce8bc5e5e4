"""Server-side apply in its simple form: applied fields are merged by the lists' keys, and none is ever taken away."""

from __future__ import annotations

from muster.api.codec import JSON, Object
from muster.apiserver.bodies import Patch
from muster.apiserver.patching import merge_applied
from muster.apiserver.resources import Served


def apply(old: Object, patch: Patch, served: Served) -> JSON:
    """The object with the applied configuration merged into it; `old` is not changed."""
    return merge_applied(old, patch.value)
