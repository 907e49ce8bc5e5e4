"""Expressions in CEL mean the same to kube-apiserver and to ours: their types, their errors and their values."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from http.client import RemoteDisconnected
from pathlib import Path
from typing import cast

import expressions
import pytest
from control_planes import Plane, real

from muster.api.codec import JSON, Object, dumps
from muster.client.kubeconfig import read_kubeconfig

sys.path.append(str(Path(__file__).parents[1] / "apiserver"))

from serving import Api

pytestmark = pytest.mark.real

Ask = Callable[[str, str, JSON], Object]
"""Method, path and body; the body of the answer."""
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JUDGED = "/apis/cel.test/v1/judged"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
BATCH = 100
_TYPE_NAME = re.compile(r"selfType[\w.@]*")
_COST = re.compile(r"estimated rule cost|exceeds? budget")
ALL = ("1.35", "1.36", "1.37")
KNOWN: dict[str, tuple[str, ...]] = {
    "bool(dyn(1))": ALL,  # kube-apiserver converts constants at once, whatever they were made of
    "duration(1)": ("1.37",),  # which has no duration of a whole number
    "(duration(self.count)) == 1 || duration(self.count)": ("1.37",),
    "device.allowMultipleAllocations": ("1.35",),  # which does not know the field
}
"""Expressions with known differences, and in which releases."""


class Panicked(Exception):
    """kube-apiserver ended the connection without an answer."""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A real server; skips where there are no binaries."""
    folder = os.environ.get("KUBEBUILDER_ASSETS", "")
    if not folder or not (Path(folder) / "kube-apiserver").exists():
        pytest.skip("KUBEBUILDER_ASSETS has no kube-apiserver (see hack/build-kube)")
    with real(tmp_path_factory.mktemp("real"), Path(folder)) as running:
        yield running


def asking(kubeconfig: Path) -> Ask:
    """Requests to the server of a kubeconfig."""
    connection = read_kubeconfig(kubeconfig)
    context = connection.ssl_context()

    def ask(method: str, path: str, body: JSON) -> Object:
        headers = {"Authorization": f"Bearer {connection.token}", "Content-Type": "application/json"}
        data = dumps(body) if body is not None else None
        request = urllib.request.Request(connection.server + path, method=method, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, context=context or None) as answer:
                return cast(Object, json.loads(answer.read()))
        except urllib.error.HTTPError as error:
            text = error.read()
            return cast(Object, json.loads(text)) if text.startswith(b"{") else {}
        except RemoteDisconnected as error:
            raise Panicked from error

    return ask


def asking_ours(api: Api) -> Ask:
    """Requests to our server."""

    def ask(method: str, path: str, body: JSON) -> Object:
        path, _, query = path.partition("?")
        more = {"dryRun": "All"} if query else {}
        return cast(Object, api.call(method, path, body, **more).body)

    return ask


def messages(status: Object, place: re.Pattern[str]) -> dict[int, list[str]]:
    """The messages of the causes by the number that `place` finds in their fields."""
    found: dict[int, list[str]] = {}
    for cause in (status.get("details") or {}).get("causes") or []:
        at = place.search(cause["field"])
        if at and not _COST.search(cause["message"]):
            found.setdefault(int(at[1]), []).append(_TYPE_NAME.sub("selfType", cause["message"]))
    return found


def compared(
    texts: Sequence[str], make: Callable[[list[str]], Object], path: str, place: str, one: Ask, other: Ask
) -> list[tuple[str, list[str], list[str]]]:
    """The expressions with other messages: the text, and what each server says.

    Those at which kube-apiserver panics are left out.
    """
    found = []
    for start in range(0, len(texts), BATCH):
        batch = list(texts[start : start + BATCH])
        body = make(batch)
        try:
            reals = messages(one("POST", f"{path}?dryRun=All", body), re.compile(place))
        except Panicked:
            half = len(batch) // 2
            for part in (batch[:half], batch[half:]) if half else ():
                found += compared(part, make, path, place, one, other)
            continue
        ours = messages(other("POST", f"{path}?dryRun=All", body), re.compile(place))
        found += [
            (text, reals.get(at, []), ours.get(at, []))
            for at, text in enumerate(batch)
            if reals.get(at, []) != ours.get(at, [])
        ]
    return found


def unexpected(found: list[tuple[str, list[str], list[str]]], plane: Plane) -> list[tuple[str, list[str], list[str]]]:
    """The differences that are not known."""
    return [each for each in found if plane.release.minor not in KNOWN.get(each[0], ())]


def rules(texts: list[str]) -> Object:
    """A definition with these rules."""
    return expressions.definition([{"rule": text} for text in texts])


def test_rules_are_refused_in_the_same_words(plane: Plane) -> None:
    texts = [*expressions.for_types(), *expressions.SYNTAX]
    place = r"validations\[(\d+)\]\.rule"
    found = compared(texts, rules, DEFINITIONS, place, asking(plane.kubeconfig), asking_ours(Api()))
    assert unexpected(found, plane) == []


def test_selectors_are_refused_in_the_same_words(plane: Plane) -> None:
    one, other = asking(plane.kubeconfig), asking_ours(Api())
    found = []
    for start in range(0, len(expressions.SELECTORS), 16):
        part = expressions.SELECTORS[start : start + 16]
        found += compared(part, expressions.claim, CLAIMS, r"selectors\[(\d+)\]", one, other)
    assert unexpected(found, plane) == []


def judgements(ask: Ask, entries: Sequence[Object]) -> list[str]:
    """What an object is told by each of these rules, in their order; all fail or are told as something else."""
    name = f"{DEFINITIONS}/judged.cel.test"
    found: list[str] = []
    for start in range(0, len(entries), 40):
        ask("POST", DEFINITIONS, expressions.definition(list(entries[start : start + 40])))
        meta = {"name": f"n{start}"}
        judged: Object = {"apiVersion": "cel.test/v1", "kind": "Judged", "metadata": meta, "spec": expressions.SPEC}
        found += _judged(ask, judged)
        ask("DELETE", name, None)
        while ask("GET", name, None).get("kind") != "Status":
            time.sleep(0.05)
    return found


def _judged(ask: Ask, body: Object) -> list[str]:
    while True:
        answer = ask("POST", f"{JUDGED}?dryRun=All", body)
        causes = (answer.get("details") or {}).get("causes")
        if causes or answer.get("kind") == "Judged":
            return [cause["message"] for cause in causes or ()]
        time.sleep(0.05)  # the kind is not served yet


def test_values_are_the_same(plane: Plane) -> None:
    entries: list[Object] = [
        {"rule": "self.count == 0", "messageExpression": f"'{at}: %s'.format([{text}])"}
        for at, text in enumerate(expressions.VALUES)
    ]
    one, other = judgements(asking(plane.kubeconfig), entries), judgements(asking_ours(Api()), entries)
    assert _numbered(other) == _numbered(one)


def _numbered(told: Sequence[str]) -> dict[str, str]:
    """Expressions with what they are; those that say nothing are left out."""
    found = (re.fullmatch(r"Invalid value: (\d+): (.*)", text, re.DOTALL) for text in told)
    return {expressions.VALUES[int(each[1])]: each[2] for each in found if each}


def test_rules_fail_alike(plane: Plane) -> None:
    entries: list[Object] = [{"rule": text} for text in expressions.FAILING]
    one, other = judgements(asking(plane.kubeconfig), entries), judgements(asking_ours(Api()), entries)
    assert other == one
