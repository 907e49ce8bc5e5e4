"""The failures that the API server answers with, as Status objects in upstream's words.

Source of codes, reasons and texts: apimachinery `pkg/api/errors` and recordings of real servers.

StatusError   a request failed; `status` is the whole answer. Retryable: Conflict (after reading again), Expired
              (after listing again), TooManyRequests (later); the others not.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from muster.api.codec import Object, Objects
from muster.apiserver.fields import FieldError


class Qualified(Struct, frozen=True):
    """A plural or a kind with its group, as messages name it: `pods`, `podgroups.scheduling.k8s.io`."""

    group: str
    name: str

    def __str__(self) -> str:
        return f"{self.name}.{self.group}" if self.group else self.name


class StatusError(Exception):
    """A request failed; `status` is the Status object to answer with."""

    def __init__(self, status: Object) -> None:
        super().__init__(status.get("message", ""))
        self.status = status

    @property
    def code(self) -> int:
        code: int = self.status["code"]
        return code


def failure(code: int, reason: str, message: str, details: Object | None = None) -> StatusError:
    """A failure Status with these fields."""
    status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    if reason:
        status["reason"] = reason
    if details is not None:
        status["details"] = details
    status["code"] = code
    return StatusError(status)


def _details(of: Qualified, name: str, causes: Objects | None = None) -> Object:
    details: Object = {}
    if name:
        details["name"] = name
    if of.group:
        details["group"] = of.group
    if of.name:
        details["kind"] = of.name
    if causes:
        details["causes"] = causes
    return details


def not_found(of: Qualified, name: str) -> StatusError:
    return failure(404, "NotFound", f'{of} "{name}" not found', _details(of, name))


def already_exists(of: Qualified, name: str) -> StatusError:
    return failure(409, "AlreadyExists", f'{of} "{name}" already exists', _details(of, name))


def conflict(of: Qualified, name: str, why: str) -> StatusError:
    message = f'Operation cannot be fulfilled on {of} "{name}": {why}'
    return failure(409, "Conflict", message, _details(of, name))


def stale(of: Qualified, name: str) -> StatusError:
    """The object changed since the client read it."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(of, name, why)


def forbidden(of: Qualified, name: str, why: str, causes: Objects | None = None) -> StatusError:
    subject = f'{of} "{name}"' if name else str(of)
    return failure(403, "Forbidden", f"{subject} is forbidden: {why}", _details(of, name, causes))


def bad_request(message: str) -> StatusError:
    return failure(400, "BadRequest", message)


def expired(message: str) -> StatusError:
    return failure(410, "Expired", message)


def too_large(version: int, current: int) -> StatusError:
    """A resource version that the server has not reached yet."""
    text = "Too large resource version"
    details: Object = {"causes": [{"reason": "ResourceVersionTooLarge", "message": text}], "retryAfterSeconds": 1}
    return failure(504, "Timeout", f"Timeout: {text}: {version}, current: {current}", details)


def internal(message: str) -> StatusError:
    return failure(500, "InternalError", f"Internal error occurred: {message}", {"causes": [{"message": message}]})


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return failure(405, "MethodNotAllowed", message, {})


def unsupported_media_type(message: str) -> StatusError:
    return failure(415, "UnsupportedMediaType", message)


def too_many_requests(message: str, causes: Objects | None = None, *, retry_after_s: int = 0) -> StatusError:
    details: Object = {"causes": causes} if causes else {}
    if retry_after_s:
        details["retryAfterSeconds"] = retry_after_s
    return failure(429, "TooManyRequests", message, details)


def invalid(of: Qualified, name: str, errors: Sequence[FieldError]) -> StatusError:
    """A 422 that lists every field error; `of` is the kind."""
    causes: Objects = []
    texts: list[str] = []
    for error in errors:
        causes.append({"reason": error.reason, "message": error.body, "field": error.field})
        text = f"{error.field}: {error.body}"
        if text not in texts:
            texts.append(text)
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return failure(422, "Invalid", f'{of} "{name}" is invalid: {joined}', _details(of, name, causes))


def success(of: Qualified, name: str, uid: str) -> Object:
    """The Status that answers a completed deletion; `of` is the resource."""
    details = {**_details(of, name), "uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
