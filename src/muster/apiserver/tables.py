"""Server-side printing: objects and lists as tables, the way kubectl shows them.

Columns are data (`Column`), one small function a cell; they are registered by (group, kind) in the modules beside this
one. Kinds without an entry get name and age. Source: kubernetes `pkg/printers/internalversion` and recordings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

from msgspec.structs import replace

from muster.api.codec import Object
from muster.apiserver import tables_core, tables_network, tables_workload
from muster.apiserver.column_texts import column_text
from muster.apiserver.columns import AGE, NAME, Column

IncludeObject = Literal["None", "Metadata", "Object"]

COLUMNS: Mapping[tuple[str, str], Sequence[Column]] = {
    **tables_core.COLUMNS,
    **tables_network.COLUMNS,
    **tables_workload.COLUMNS,
}
NOT_IN_ROWS = "deprecated.daemonset.template.generation"
"""An annotation that rows leave out, since it is a field of the kind within a real server."""
DEFAULT_COLUMNS: Sequence[Column] = (NAME, AGE)


def columns_of(group: str, kind: str) -> Sequence[Column]:
    """The columns of a kind."""
    return COLUMNS.get((group, kind), DEFAULT_COLUMNS)


@lru_cache(maxsize=256)
def described(columns: tuple[Column, ...], kind: str, release: str) -> tuple[Column, ...]:
    """The columns of a kind with what a release such as `1.37` says about them."""
    return tuple(
        column if column.description else replace(column, description=column_text(release, kind, column.name))
        for column in columns
    )


def table(
    body: Object,
    columns: Sequence[Column],
    *,
    now: float,
    include: IncludeObject = "Metadata",
    version: str = "v1",
) -> Object:
    """An object or a list as a Table. `now` is in seconds; `version` is that of meta.k8s.io."""
    metadata = body.get("metadata") or {}
    items = [body]
    if "items" in body:
        # Items of a list do not say what they are, but objects in rows must.
        type_ = {"kind": str(body["kind"]).removesuffix("List"), "apiVersion": body["apiVersion"]}
        items = [{**type_, **item} for item in body["items"] or ()] if include == "Object" else body["items"] or []
    kept = ("resourceVersion", "continue", "remainingItemCount")
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "columnDefinitions": [column.definition() for column in columns],
        "rows": [_row(item, columns, now, include, version) for item in items],
    }


def _row(item: Object, columns: Sequence[Column], now: float, include: IncludeObject, version: str) -> Object:
    shown: Object | None = None
    if include == "Object":
        shown = item
    elif include == "Metadata":
        shown = partial(item, version)
        annotations = shown["metadata"].get("annotations")
        if annotations and NOT_IN_ROWS in annotations:
            kept = {key: value for key, value in annotations.items() if key != NOT_IN_ROWS}
            shown["metadata"] = {**shown["metadata"], "annotations": kept}
    return {"cells": [column.cell(item, now) for column in columns], "object": shown}


def partial(item: Object, version: str = "v1") -> Object:
    """The metadata of an object alone, as PartialObjectMetadata."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": item.get("metadata") or {},
    }


def partial_list(body: Object, version: str = "v1") -> Object:
    """A list with the metadata of its items alone."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": body.get("metadata") or {},
        "items": [partial(item, version) for item in body.get("items") or ()],
    }
