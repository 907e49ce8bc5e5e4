"""`/healthz`, `/livez` and `/readyz`: each check by itself, all together, and in words with `?verbose`.

Source of the form: apiserver `pkg/server/healthz`.
"""

from __future__ import annotations

from muster.apiserver.request import ApiRequest
from muster.client.transport import Response

HEALTH_PATHS = ("/healthz", "/livez", "/readyz")
CHECKS = ("ping", "store")
"""A server that answers at all is well: a store that takes no more writes ends the process."""

_TEXT = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}


def health(request: ApiRequest, path: str) -> Response | None:
    """The answer to a health request; None if the path is something else."""
    root, _, check = path.lstrip("/").partition("/")
    if f"/{root}" not in HEALTH_PATHS:
        return None
    if check:
        known = check in CHECKS
        return Response(200 if known else 404, b"ok" if known else b"404 page not found\n", _TEXT)
    if not any(name == "verbose" for name, _ in request.query):
        return Response(200, b"ok", _TEXT)
    excluded = {value for name, value in request.query if name == "exclude"}
    lines = [f"[+]{name} {'excluded: ' if name in excluded else ''}ok" for name in CHECKS]
    return Response(200, "\n".join([*lines, f"{root} check passed", ""]).encode(), _TEXT)
