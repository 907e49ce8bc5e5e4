"""One side of a recorded conversation: requests with present values for recorded ones, and what answers teach."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote

from muster.api.codec import JSON, Object, dumps, loads
from muster.apiserver.front import Front, Streamed
from muster.apiserver.request import ApiRequest
from muster.client.transport import Response

_WARNING = re.compile(r'299 - "((?:[^"\\]|\\.)*)"')
_VERSION = re.compile(r"(resourceVersion=)(\d+)")
_SUFFIX = 5
"""How many characters of a generated name are random."""


class Values:
    """Which present value stands for which recorded one: uids, versions, continue tokens, generated names."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._versions: dict[str, str] = {}

    def learn(self, want: JSON, got: JSON) -> None:
        """Take the values that the server made up from an answer and its recording."""
        if isinstance(want, list) and isinstance(got, list):
            for one, other in zip(want, got, strict=False):
                self.learn(one, other)
        if not (isinstance(want, dict) and isinstance(got, dict)):
            return
        for key in want.keys() & got.keys():
            one, other = want[key], got[key]
            if isinstance(one, str) and isinstance(other, str) and one != other:
                self._learn_text(key, one, other)
            self.learn(one, other)

    def _learn_text(self, key: str, want: str, got: str) -> None:
        if key == "resourceVersion":
            self._versions[want] = got
        elif (key in ("uid", "continue") and not want.startswith("0000")) or (
            key == "name" and len(want) > _SUFFIX and want[:-_SUFFIX] == got[:-_SUFFIX]
        ):
            self._texts[want] = got

    def text(self, text: str) -> str:
        """A text with present values in it."""
        for want, got in self._texts.items():
            text = text.replace(want, got)
        return text

    def path(self, text: str) -> str:
        """A path and query with present values in it."""
        return self.text(_VERSION.sub(lambda match: match[1] + self._versions.get(match[2], match[2]), text))

    def body(self, value: JSON, key: str = "") -> JSON:
        """A JSON value with present values in it."""
        if isinstance(value, dict):
            return {name: self.body(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self.body(item) for item in value]
        if not isinstance(value, str):
            return value
        return self._versions.get(value, value) if key == "resourceVersion" else self.text(value)


async def ask(front: Front, recorded: Object, values: Values) -> tuple[int, list[str], JSON]:
    """Send a recorded request; the code, the texts of the warnings, and the body as a client reads it."""
    answer = await front.answer(_request(recorded, values))
    if isinstance(answer, Streamed):
        return 200, [], await read_events(answer)
    body = read_answer(answer)
    if "watch=" in recorded["path"] and isinstance(body, dict):
        body = [body]  # what should have been a stream was recorded as one all the same
    return answer.status, _WARNING.findall(answer.headers.get("Warning", "")), body


def _request(recorded: Object, values: Values) -> ApiRequest:
    path, _, query = values.path(recorded["path"]).partition("?")
    headers = {"accept": recorded["accept"], "user-agent": "python-requests/2.32"}
    body: bytes | None = None
    if recorded["body"] is not None:
        raw = recorded["body"]
        body = raw.encode() if isinstance(raw, str) else dumps(values.body(raw))
        headers["content-type"] = recorded["content_type"]
    pairs = tuple(parse_qsl(query, keep_blank_values=True))
    return ApiRequest(recorded["method"], unquote(path), pairs, headers, body)


async def read_events(answer: Streamed) -> list[Object]:
    """All events of a watch, until it ends by itself."""
    try:
        return [
            {"type": event.type, "object": loads(dumps(event.object))}
            async for events in answer.events
            for event in events
        ]
    finally:
        await answer.events.aclose()


def read_answer(answer: Response) -> JSON:
    """The body of an answer as a client reads it: JSON, or a text."""
    data = answer.body if isinstance(answer.body, bytes) else dumps(answer.body)
    try:
        return loads(data)
    except ValueError:
        return data.decode()
