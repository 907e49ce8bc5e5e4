"""Whatever a client sends, the answer says what is wrong with it: no kind's rules fall over their input."""

from __future__ import annotations

import random

import pytest
from serving import Api

from muster.api.codec import JSON, Object
from muster.apiserver.options import ServerOptions
from muster.apiserver.registry.table import resource_table
from muster.apiserver.resources import Served
from muster.apiserver.schema import Schema, schema_for
from muster.client.transport import MERGE_PATCH, STRATEGIC_MERGE_PATCH

KINDS = [served for served in resource_table(ServerOptions()).entries if "update" in served.verbs]
WORDS = ("", "a", "Bad_Name", "x/y", "1", "Always", "All", "In", "Exists", "NoSchedule", "5%", "a" * 70)


class Generator:
    """Random values that fit a schema, sparse and shallow enough to be quick."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def value(self, schema: Schema | None, depth: int) -> JSON:
        if schema is None or depth <= 0:
            return None
        match schema.format or schema.type:
            case "quantity":
                return self.rng.choice(["1", "500m", "1Gi", "-1", "0", 2, "1e3"])
            case "int-or-string":
                return self.rng.choice([1, -1, "5%", "x"])
            case "date-time":
                return "2026-01-01T00:00:00Z"
            case "int32" | "int64" | "integer":
                return self.rng.choice([-1, 0, 1, 5, 2**31 - 1])
            case "boolean":
                return self.rng.random() < 0.5
            case "number" | "double":
                return 0.5
        if schema.type == "string":
            return self.rng.choice(WORDS)
        if schema.type == "array":
            return [self.value(schema.items, depth - 1) for _ in range(self.rng.choice((0, 1, 1, 2)))]
        if schema.values is not None:
            return {word: self.value(schema.values, depth - 1) for word in self.rng.sample(WORDS, 2)}
        return self.fields(schema, depth)

    def fields(self, schema: Schema, depth: int) -> Object:
        share = 0.5 if len(schema.fields) < 12 else 0.2
        kept = [name for name in sorted(schema.fields) if self.rng.random() < share or name in schema.required]
        return {name: self.value(schema.fields[name], depth - 1) for name in kept}

    def obj(self, served: Served, name: str) -> Object:
        resource = served.resource
        schema = schema_for(resource.group, resource.version, resource.kind)
        assert schema is not None
        body = {field: value for field, value in self.fields(schema, 9).items() if field not in ("apiVersion", "kind")}
        return {**body, "metadata": {"name": name, "labels": {"a": "b"}}}


@pytest.mark.parametrize("served", KINDS, ids=lambda served: f"{served.resource.version}-{served.resource.kind}")
def test_no_body_makes_the_server_fail(served: Served) -> None:
    api, generator = Api(), Generator(11)
    path = served.resource.path("default")
    for index in range(25):
        body = generator.obj(served, f"n{index}")
        responses = [api.call("POST", path, body)]
        for type_ in (MERGE_PATCH, STRATEGIC_MERGE_PATCH):
            change = {**generator.obj(served, f"n{index}"), "metadata": {"labels": {"c": "d"}}}
            responses.append(api.call("PATCH", f"{path}/n{index}", change, type_=type_))
            responses.append(api.call("PATCH", f"{path}/n{index}/status", change, type_=type_))
        responses.append(api.call("DELETE", f"{path}/n{index}"))
        bodies = [response.body for response in responses if isinstance(response.body, dict)]
        assert [body for body in bodies if body.get("reason") == "InternalError"] == []
    api.get(path)
