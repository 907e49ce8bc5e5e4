"""Selectors of devices as expressions over `device`. Source: `dynamic-resource-allocation/cel/compile.go` (1.36)."""

from __future__ import annotations

from dataclasses import replace

from muster.api.cel_macros import NewIds
from muster.api.cel_tree import Call, Ident, Node, Select, Struct, Tree, mapped
from muster.api.cel_types import ANY, BOOL, STRING, Type, map_of
from muster.api.expressions import Expression, compile_typed

DEVICE = Type(
    "kubernetes.DRADevice",
    fields={
        "driver": STRING,
        "attributes": map_of(STRING, map_of(STRING, ANY)),
        "capacity": map_of(STRING, map_of(STRING, Type("kubernetes.Quantity"))),
        "allowMultipleAllocations": BOOL,
    },
)
"""The type of a device."""


def compile_selector(text: str, device: Type = DEVICE) -> Expression:
    """The expression over `device`. Raises `NotAnExpression` and `NotSupported`."""
    return compile_typed(text, {"device": device}, binds=True, includes=True, rewrite=_with_empty_domains)


def _with_empty_domains(tree: Tree) -> Tree:
    """The tree in which a domain without attributes or capacities is an empty map, not a missing key."""
    new = NewIds(tree)

    def change(node: Node) -> Node:
        match node:
            case Call(function="_[_]" | "_[?_]", args=(Select(operand=Ident(name="device"), field=field), _)):
                if field not in ("attributes", "capacity"):
                    return node
                found = replace(node, id=new.at(node), function="_[?_]")
                domain = Call(node.id, found, "orValue", (Struct(new.at(node), "", ()),))
                if node.function == "_[_]":
                    return domain
                return Call(new.at(node), Ident(new.at(node), "optional"), "of", (domain,))
        return node

    return tree.with_root(mapped(tree.root, change))
