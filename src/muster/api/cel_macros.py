"""What expressions of CEL are rewritten to before they are checked or evaluated.

The library that evaluates lacks some functions, and functions of ours can neither return nor take optional values:
these become expressions that it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

from muster.api.cel_checker import Checked
from muster.api.cel_tree import Call, Const, Fold, Ident, ListOf, Node, Select, Tree, mapped, walk
from muster.api.cel_types import DURATION, TIMESTAMP, Type, list_of

_RESULT = "@result"
MAP_INSERT = "@inserted"
FORMATS = "@formats"
VALIDATED = "@validated"
FORMAT_TEXT = "@formatText"
AS_TEXT = "@asText"
IN_TEXT = {"sum": "@sumText", "min": "@minText", "max": "@maxText"}
"""Functions of lists of times and durations that answer with texts, by the name of the method."""
MILLISECONDS = "@milliseconds"
HAS_FIELD = "@hasField"


class NewIds:
    """Ids for new nodes, beyond those of a tree."""

    def __init__(self, tree: Tree) -> None:
        self._ids = count(1 + max(node.id for node in walk(tree.root)))
        self._positions = tree.positions

    def at(self, node: Node) -> int:
        """An id for a node at the place of another."""
        id_ = next(self._ids)
        self._positions[id_] = self._positions.get(node.id, 0)
        return id_


def expanded(tree: Tree) -> Tree:
    """The tree with `exists_one` of two variables, which the parser knows by its other name only."""
    new = NewIds(tree)
    return tree.with_root(mapped(tree.root, lambda node: _exists_one(node, new)))


def _exists_one(node: Node, new: NewIds) -> Node:
    if not isinstance(node, Call) or node.function != "exists_one" or node.target is None or len(node.args) != 3:
        return node
    first, second, holds = node.args
    if not isinstance(first, Ident) or not isinstance(second, Ident):
        return node

    def result() -> Ident:
        return Ident(new.at(node), _RESULT)

    def whole(value: int) -> Const:
        return Const(new.at(node), value)

    more = Call(new.at(node), None, "_+_", (result(), whole(1)))
    step = Call(new.at(node), None, "_?_:_", (holds, more, result()))
    is_one = Call(new.at(node), None, "_==_", (result(), whole(1)))
    always = Const(new.at(node), True)
    return Fold(node.id, first.name, second.name, node.target, _RESULT, whole(0), always, step, is_one)


def evaluable(tree: Tree) -> Tree:
    """The tree in functions that the library has."""
    new = NewIds(tree)
    return tree.with_root(mapped(tree.root, lambda node: _in_known_functions(node, new)))


def _in_known_functions(node: Node, new: NewIds) -> Node:
    if not isinstance(node, Call):
        return node
    rewrite = _REWRITTEN.get((node.function, node.target is not None, len(node.args)))
    return rewrite(node, new) if rewrite is not None else node


def _optional_index(of: Node, key: Node, new: NewIds) -> Call:
    return Call(new.at(of), None, "_[?_]", (of, key))


def _first(node: Call, new: NewIds) -> Node:
    assert node.target is not None
    return _optional_index(node.target, Const(new.at(node), 0), new)


def _last(node: Call, new: NewIds) -> Node:
    """`x.last()`: the element before the size of x, which is evaluated once."""
    assert node.target is not None

    def bound() -> Ident:
        return Ident(new.at(node), "@last")

    size = Call(new.at(node), None, "size", (bound(),))
    index = Call(new.at(node), None, "_-_", (size, Const(new.at(node), 1)))
    never = Const(new.at(node), False)
    nothing = ListOf(new.at(node), ())
    return Fold(
        node.id, "#unused", "", nothing, "@last", node.target, never, bound(), _optional_index(bound(), index, new)
    )


def _named_format(node: Call, new: NewIds) -> Node:
    if not isinstance(node.target, Ident) or node.target.name != "format":
        return node
    return _optional_index(Call(new.at(node), None, FORMATS, ()), node.args[0], new)


def _validated(node: Call, new: NewIds) -> Node:
    assert node.target is not None
    problems = Call(new.at(node), None, VALIDATED, (node.target, node.args[0]))
    return _optional_index(problems, Const(new.at(node), "errors"), new)


def _formatted(node: Call, new: NewIds) -> Node:
    """A format, whose values of types that are no JSON become texts before."""
    assert node.target is not None
    return Call(node.id, None, FORMAT_TEXT, (node.target, node.args[0]))


def _inserted(node: Call, new: NewIds) -> Node:
    return replace(node, function=MAP_INSERT)


_REWRITTEN: dict[tuple[str, bool, int], Callable[[Call, NewIds], Node]] = {
    ("first", True, 0): _first,
    ("last", True, 0): _last,
    ("named", True, 1): _named_format,
    ("validate", True, 1): _validated,
    ("format", True, 1): _formatted,
    ("cel.@mapInsert", False, 2): _inserted,
    ("cel.@mapInsert", False, 3): _inserted,
}
"""Rewriting by a function's name, whether it is a method, and the count of its arguments."""


def with_known_types(tree: Tree, checked: Checked) -> Tree:
    """The tree with what depends on types: times and durations are read from the texts that they are in variables."""
    new = NewIds(tree)

    def change(node: Node) -> Node:
        match node:
            case Ident() | Select() | Call(function="_[_]"):
                type_ = checked.type_of(node)
                if type_ in (DURATION, TIMESTAMP):
                    return Call(node.id, None, type_.name, (replace(node, id=new.at(node)),))
                if type_ in (list_of(DURATION), list_of(TIMESTAMP)):
                    return _each_read(node, type_.params[0].name, new)
            case Call(function="sum" | "min" | "max" as name, target=target, args=()) if target is not None:
                type_ = checked.type_of(target)
                if type_ in (list_of(DURATION), list_of(TIMESTAMP)):
                    text = Call(new.at(node), None, IN_TEXT[name], (target,))
                    return Call(node.id, None, type_.params[0].name, (text,))
            case Call(function="string", target=None, args=(value,)):
                if checked.type_of(value) in _WITH_TEXT:
                    return Call(node.id, None, AS_TEXT, node.args)
            case Call(function="getMilliseconds", target=target, args=()) if target is not None:
                if checked.type_of(target) == DURATION:
                    return Call(node.id, None, MILLISECONDS, (target,))
        return node

    return tree.with_root(mapped(tree.root, change))


def _each_read(node: Node, function: str, new: NewIds) -> Node:
    """`node.map(x, function(x))`."""

    def result() -> Ident:
        return Ident(new.at(node), _RESULT)

    read = Call(new.at(node), None, function, (Ident(new.at(node), "@text"),))
    step = Call(new.at(node), None, "_+_", (result(), ListOf(new.at(node), (read,))))
    over, always = replace(node, id=new.at(node)), Const(new.at(node), True)
    return Fold(node.id, "@text", "", over, _RESULT, ListOf(new.at(node), ()), always, step, result())


_WITH_TEXT = (DURATION, TIMESTAMP, Type("net.IP"), Type("net.CIDR"))


def with_tested_fields(tree: Tree) -> Tree:
    """The tree in which `has(x.f)` is false where x is no map."""
    new = NewIds(tree)

    def change(node: Node) -> Node:
        if not isinstance(node, Select) or not node.is_test:
            return node
        return Call(node.id, None, HAS_FIELD, (node.operand, Const(new.at(node), node.field)))

    return tree.with_root(mapped(tree.root, change))
