"""Trees of CEL expressions: read from, and written to, the form in which the library gives them.

The form is the protocol buffer `cel.expr.ParsedExpr` of `cel/expr/syntax.proto` in an Any; only what is needed of it is
here. Nothing is interpreted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

Value: TypeAlias = bool | int | float | str | bytes | None


@dataclass(frozen=True, slots=True)
class Uint:
    """An unsigned number, which is another type than a signed one."""

    value: int


@dataclass(frozen=True, slots=True)
class Const:
    """A literal."""

    id: int
    value: Value | Uint


@dataclass(frozen=True, slots=True)
class Ident:
    """A name."""

    id: int
    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """`operand.field`, or with `is_test` `has(operand.field)`."""

    id: int
    operand: Node
    field: str
    is_test: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function, of a method if there is a target; operators are functions such as `_+_`."""

    id: int
    target: Node | None
    function: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list; `optional`: the places of elements that may be absent."""

    id: int
    items: tuple[Node, ...]
    optional: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a map or a field of a message, whose name is a text."""

    id: int
    key: Node | str
    value: Node
    is_optional: bool


@dataclass(frozen=True, slots=True)
class Struct:
    """A map, or a message if it has a name."""

    id: int
    name: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Fold:
    """What macros over lists and maps become. Source: `Comprehension` of syntax.proto."""

    id: int
    variable: str
    second: str
    over: Node
    result_variable: str
    start: Node
    condition: Node
    step: Node
    result: Node


Node: TypeAlias = Const | Ident | Select | Call | ListOf | Struct | Fold


@dataclass(frozen=True, slots=True)
class Tree:
    """A parsed expression. `positions`: where nodes are in the text, in characters, by their id."""

    root: Node
    positions: dict[int, int] = field(default_factory=dict)
    info: bytes = b""

    def with_root(self, root: Node) -> Tree:
        """The same with another root."""
        return replace(self, root=root)


# --- reading -------------------------------------------------------------------------------------------------------

_URL = b"type.googleapis.com/cel.expr.ParsedExpr"


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: number, and a number or the bytes of what it holds."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
        elif kind == 1:
            yield number, data[at : at + 8]
            at += 8
        elif kind == 2:
            size, at = _varint(data, at)
            yield number, data[at : at + size]
            at += size
        else:
            raise ValueError(f"wire type {kind}")


def _message(data: bytes) -> dict[int, list[int | bytes]]:
    found: dict[int, list[int | bytes]] = {}
    for number, value in _fields(data):
        found.setdefault(number, []).append(value)
    return found


def _one(message: dict[int, list[int | bytes]], number: int) -> bytes:
    value = message.get(number, [b""])[-1]
    assert isinstance(value, bytes)
    return value


def _number(message: dict[int, list[int | bytes]], number: int) -> int:
    value = message.get(number, [0])[-1]
    assert isinstance(value, int)
    return value


def _all(message: dict[int, list[int | bytes]], number: int) -> list[bytes]:
    return [each for each in message.get(number, []) if isinstance(each, bytes)]


def read_tree(data: bytes) -> Tree:
    """The tree in an Any of a ParsedExpr."""
    parsed = _message(_one(_message(data), 2))
    info = _one(parsed, 3)
    positions = {}
    for entry in _all(_message(info), 4):
        pair = _message(entry)
        positions[_number(pair, 1)] = _number(pair, 2)
    return Tree(_node(_one(parsed, 2)), positions, info)


def _node(data: bytes) -> Node:
    message = _message(data)
    id_ = _number(message, 2)
    kind = next(number for number in (3, 4, 5, 6, 7, 8, 9) if number in message)
    return _READERS[kind](id_, _one(message, kind))


def _const(id_: int, data: bytes) -> Const:
    number, value = next(_fields(data))
    if number == 1:
        return Const(id_, None)
    if isinstance(value, int):
        if number == 2:
            return Const(id_, bool(value))
        return Const(id_, Uint(value) if number == 4 else value - (1 << 64) if value >> 63 else value)
    if number == 5:
        return Const(id_, struct.unpack("<d", value)[0])
    return Const(id_, value.decode() if number == 6 else value)


def _select(id_: int, data: bytes) -> Select:
    message = _message(data)
    return Select(id_, _node(_one(message, 1)), _one(message, 2).decode(), bool(_number(message, 3)))


def _call(id_: int, data: bytes) -> Call:
    message = _message(data)
    target = _node(_one(message, 1)) if 1 in message else None
    return Call(id_, target, _one(message, 2).decode(), tuple(map(_node, _all(message, 3))))


def _list(id_: int, data: bytes) -> ListOf:
    message = _message(data)
    packed, optional, at = _one(message, 2) if 2 in message else b"", [], 0
    while at < len(packed):
        index, at = _varint(packed, at)
        optional.append(index)
    return ListOf(id_, tuple(map(_node, _all(message, 1))), tuple(optional))


def _struct(id_: int, data: bytes) -> Struct:
    message = _message(data)
    return Struct(id_, _one(message, 1).decode(), tuple(map(_entry, _all(message, 2))))


def _entry(data: bytes) -> Entry:
    message = _message(data)
    key: Node | str = _node(_one(message, 3)) if 3 in message else _one(message, 2).decode()
    return Entry(_number(message, 1), key, _node(_one(message, 4)), bool(_number(message, 5)))


def _fold(id_: int, data: bytes) -> Fold:
    message = _message(data)
    over, start, condition, step, result = (_node(_one(message, number)) for number in (2, 4, 5, 6, 7))
    variable, result_variable, second = (_one(message, number).decode() for number in (1, 3, 8))
    return Fold(id_, variable, second, over, result_variable, start, condition, step, result)


_READERS: dict[int, Callable[[int, bytes], Node]] = {
    3: _const,
    4: lambda id_, data: Ident(id_, _one(_message(data), 1).decode()),
    5: _select,
    6: _call,
    7: _list,
    8: _struct,
    9: _fold,
}

# --- writing -------------------------------------------------------------------------------------------------------


def _bare(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _of_number(number: int, value: int) -> bytes:
    return _bare(number << 3) + _bare(value)


def _of_bytes(number: int, value: bytes) -> bytes:
    return _bare(number << 3 | 2) + _bare(len(value)) + value


def write_tree(tree: Tree) -> bytes:
    """The Any of a ParsedExpr that `read_tree` reads."""
    parsed = _of_bytes(2, _written(tree.root)) + _of_bytes(3, tree.info)
    return _of_bytes(1, _URL) + _of_bytes(2, parsed)


def _written(node: Node) -> bytes:
    head = _of_number(2, node.id)
    match node:
        case Const(value=value):
            return head + _of_bytes(3, _written_value(value))
        case Ident(name=name):
            return head + _of_bytes(4, _of_bytes(1, name.encode()))
        case Select():
            test = _of_number(3, 1) if node.is_test else b""
            return head + _of_bytes(5, _of_bytes(1, _written(node.operand)) + _of_bytes(2, node.field.encode()) + test)
        case Call():
            target = _of_bytes(1, _written(node.target)) if node.target is not None else b""
            args = b"".join(_of_bytes(3, _written(each)) for each in node.args)
            return head + _of_bytes(6, target + _of_bytes(2, node.function.encode()) + args)
        case ListOf():
            items = b"".join(_of_bytes(1, _written(each)) for each in node.items)
            optional = _of_bytes(2, b"".join(map(_bare, node.optional))) if node.optional else b""
            return head + _of_bytes(7, items + optional)
        case Struct():
            entries = b"".join(_of_bytes(2, _written_entry(each)) for each in node.entries)
            return head + _of_bytes(8, (_of_bytes(1, node.name.encode()) if node.name else b"") + entries)
    parts: list[tuple[int, bytes]] = [(1, node.variable.encode()), (2, _written(node.over))]
    parts += [(3, node.result_variable.encode()), (4, _written(node.start)), (5, _written(node.condition))]
    parts += [(6, _written(node.step)), (7, _written(node.result))]
    parts += [(8, node.second.encode())] if node.second else []
    return head + _of_bytes(9, b"".join(_of_bytes(number, data) for number, data in parts))


def _written_value(value: Value | Uint) -> bytes:
    if value is None:
        return _of_number(1, 0)
    if isinstance(value, bool):
        return _of_number(2, value)
    if isinstance(value, int):
        return _of_number(3, value)
    if isinstance(value, Uint):
        return _of_number(4, value.value)
    if isinstance(value, float):
        return _bare(5 << 3 | 1) + struct.pack("<d", value)
    return _of_bytes(6, value.encode()) if isinstance(value, str) else _of_bytes(7, value)


def _written_entry(entry: Entry) -> bytes:
    key = _of_bytes(2, entry.key.encode()) if isinstance(entry.key, str) else _of_bytes(3, _written(entry.key))
    optional = _of_number(5, 1) if entry.is_optional else b""
    return _of_number(1, entry.id) + key + _of_bytes(4, _written(entry.value)) + optional


# --- walking -------------------------------------------------------------------------------------------------------


def children(node: Node) -> tuple[Node, ...]:
    """What is right below a node."""
    match node:
        case Select():
            return (node.operand,)
        case Call():
            return (*(() if node.target is None else (node.target,)), *node.args)
        case ListOf():
            return node.items
        case Struct():
            return tuple(
                part for entry in node.entries for part in (entry.key, entry.value) if not isinstance(part, str)
            )
        case Fold():
            return (node.over, node.start, node.condition, node.step, node.result)
    return ()


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it."""
    yield node
    for child in children(node):
        yield from walk(child)


def mapped(node: Node, change: Callable[[Node], Node]) -> Node:
    """The tree with each node replaced by what `change` makes of it, from below."""

    def go(part: Node) -> Node:
        return mapped(part, change)

    match node:
        case Select():
            return change(replace(node, operand=go(node.operand)))
        case Call():
            target = go(node.target) if node.target is not None else None
            return change(replace(node, target=target, args=tuple(map(go, node.args))))
        case ListOf():
            return change(replace(node, items=tuple(map(go, node.items))))
        case Struct():
            entries = tuple(
                replace(each, key=each.key if isinstance(each.key, str) else go(each.key), value=go(each.value))
                for each in node.entries
            )
            return change(replace(node, entries=entries))
        case Fold():
            return change(
                replace(
                    node,
                    over=go(node.over),
                    start=go(node.start),
                    condition=go(node.condition),
                    step=go(node.step),
                    result=go(node.result),
                )
            )
    return change(node)
