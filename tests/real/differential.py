"""Ask a real API server and ours the same things in bulk, and print what they answer differently.

`python tests/real/differential.py --kubeconfig FILE [--kind KIND]… [--how create,replace]`: neighbours of one object of
each kind are created and replaced, all of them dry, so that the real server keeps nothing but the objects themselves.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "conformance")]

import yaml
from mutations import LEFT_OUT, changed, changes, patch_of
from two_servers import Answer, Case, Found, TwoServers, two_servers

from muster.api.codec import JSON, Object, dumps
from muster.apiserver.options import Release, ServerOptions
from muster.apiserver.registry.table import resource_table
from muster.apiserver.schema import schema_for
from muster.client.transport import MERGE_PATCH

OBJECTS = Path(__file__).parent / "objects.yaml"
NAMESPACE = "default"
LEFT = LEFT_OUT | {"metadata"} if "--metadata" not in sys.argv else LEFT_OUT | {"spec", "data", "binaryData"}


def examples() -> list[Object]:
    """The objects, under names of this run."""
    text = re.sub(r"name: subject\b(?!s)", f"name: s{os.getpid()}-subject", OBJECTS.read_text())
    return list(yaml.load_all(text, Loader=yaml.CSafeLoader))


def collection(obj: Object, release: Release) -> str:
    """The path that objects of this kind are created at."""
    group, _, version = obj["apiVersion"].rpartition("/")
    table = resource_table(ServerOptions(emulate=release))
    entry = next(
        entry
        for entry in table.entries
        if entry.resource.kind == obj["kind"]
        and entry.resource.group == group
        and entry.resource.version == version
        and "create" in entry.verbs
    )
    return entry.resource.path(NAMESPACE if entry.resource.namespaced else None)


def note(path: Iterable[str | int]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def creations(base: Object, release: Release) -> list[Case]:
    """Dry creations of the base and its neighbours."""
    path = f"{collection(base, release)}?dryRun=All"
    return [Case("POST", path, base, "as it is")] + [
        Case("POST", path, changed(base, where, value), f"{note(where)}={_brief_value(value)}", tried=value)
        for where, value in changes(base, _schema(base, release), left_out=LEFT)
    ]


def patches(base: Object, release: Release) -> list[Case]:
    """Dry merge patches of the base, which is there, each of one field."""
    path = f"{collection(base, release)}/{base['metadata']['name']}?dryRun=All"
    return [
        Case(
            "PATCH",
            path,
            patch_of(base, where, value),
            f"{note(where)}={_brief_value(value)}",
            content_type=MERGE_PATCH,
            tried=value,
        )
        for where, value in changes(base, _schema(base, release), left_out=LEFT)
    ]


def _brief_value(value: JSON) -> str:
    return dumps(value).decode()[:25]


def _schema(base: Object, release: Release):  # type: ignore[no-untyped-def]
    group, _, version = base["apiVersion"].rpartition("/")
    found = schema_for(group, version, base["kind"], release)
    assert found is not None
    return found


HOW = {"create": creations, "patch": patches}


async def run(servers: TwoServers, base: Object, how: Sequence[str], release: Release) -> list[Found]:
    found: list[Found] = []
    if "create" in how:
        found += await servers.ask(creations(base, release))
    if "patch" in how:
        path = collection(base, release)
        gone = Case("DELETE", f"{path}/{base['metadata']['name']}?gracePeriodSeconds=0&propagationPolicy=Background")
        await servers.ask([gone])
        found += await servers.ask([Case("POST", path, base, "creation")])
        found += await servers.ask(patches(base, release))
        await servers.ask([gone])
    return found


def signature(found: Found) -> str:
    """Differences that look alike have one."""
    real, ours = _told(found.real), _told(found.ours)
    parts = []
    if found.real.code != found.ours.code:
        parts.append(f"code {found.real.code} | {found.ours.code}")
    if real or ours:
        parts += [f"real {text}" for text in dict.fromkeys(real) if text not in ours]
        parts += [f"ours {text}" for text in dict.fromkeys(ours) if text not in real]
        if set(real) == set(ours) and real:
            parts.append(f"order or count: {len(real)} | {len(ours)} {sorted(set(real))[:1]}")
    if (not real and not ours) or found.real.warnings != found.ours.warnings:
        parts += [f"{one.path}: {one.want!r} | {one.got!r}" for one in found.differences]
    return (
        re.sub(r"\[\d+\]", "[]", "; ".join(parts)).replace(dumps(found.case.tried).decode(), "V")
        if found.case.tried not in (None, 0, 1, "", [], {})
        else re.sub(r"\[\d+\]", "[]", "; ".join(parts))
    )


def _told(answer: Answer) -> list[str]:
    """The causes of an error, else its message."""
    if not isinstance(answer.body, dict) or answer.body.get("kind") != "Status":
        return []
    causes = (answer.body.get("details") or {}).get("causes") or []
    texts = [f"{c.get('field')}: {_brief(c.get('message', ''))}" for c in causes]
    return texts or [str(answer.body.get("message"))]


def _brief(text: str) -> str:
    """A message without the example that explains a pattern."""
    return re.sub(r" \(e\.g\. .*regex used.*'\)$", "", text)


def show(all_found: Sequence[Found], examples_each: int, width: int = 420) -> None:
    by_signature: dict[str, list[Found]] = defaultdict(list)
    for found in all_found:
        by_signature[signature(found)].append(found)
    for text, alike in sorted(by_signature.items(), key=lambda item: -len(item[1])):
        tried = dict.fromkeys(f"{one.case.method[1]} {one.case.note}" for one in alike)
        print(f"{len(alike)}x {', '.join(list(tried)[:examples_each])}")
        print(f"    {text[:width]}")


async def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--kind", action="append")
    parser.add_argument("--release", choices=("1.35", "1.36", "1.37"), default="1.36")
    parser.add_argument("--how", default="create,patch")
    parser.add_argument("--metadata", action="store_true")
    parser.add_argument("--examples", type=int, default=3)
    options = parser.parse_args(arguments)
    total, release = 0, options.release
    async with two_servers(options.kubeconfig, release) as servers:
        for base in examples():
            if options.kind and base["kind"] not in options.kind:
                continue
            found = await run(servers, base, options.how.split(","), release)
            asked = sum(len(cases(base, release)) for how, cases in HOW.items() if how in options.how)
            print(f"=== {base['kind']}: {len(found)} of {asked} differ", flush=True)
            show(found, options.examples)
            total += len(found)
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
