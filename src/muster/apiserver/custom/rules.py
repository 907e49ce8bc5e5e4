"""`x-kubernetes-validations`: rules in CEL that a schema puts on its values.

Source of the walk, paths and texts: apiextensions-apiserver `pkg/apiserver/schema/cel/validation.go`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping

from msgspec import Struct

from muster.api.cel_macros import NewIds
from muster.api.cel_tree import Call, Ident, Node, Tree, mapped
from muster.api.cel_types import BOOL, STRING, Type, optional_of
from muster.api.codec import JSON, Object
from muster.api.expressions import (
    NO_OVERLOAD,
    EvaluationFailed,
    Expression,
    ExpressionError,
    NotSupported,
    compile_typed,
)
from muster.apiserver.custom.rule_types import escaped_name, type_of_schema, typed_value
from muster.apiserver.custom.structure import EMBEDDED, RULES, child_schema, item_schema
from muster.apiserver.custom.values import ROOT, correlated
from muster.apiserver.fields import FieldError

logger = logging.getLogger(__name__)

_OLD = re.compile(r"\boldSelf\b")
_BLOCKING = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
NOT_CHECKED = FieldError(
    "FieldValueInvalid",
    ROOT,
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation",
)
"""What is said where rules were not checked since the value has not even the right structure."""


def is_blocking(error: FieldError) -> bool:
    """Whether rules cannot be checked on a value with this error."""
    return error.reason in _BLOCKING


class Rule(Struct, frozen=True):
    """One rule. `program` None: it uses what is not supported here, and always holds."""

    text: str
    message: str
    reason: str
    field_path: str
    program: Expression | None
    message_program: Expression | None
    uses_old: bool
    optional_old: bool


class RuleTree(Struct, frozen=True):
    """The rules of a schema and of what is below it; parts without any rule are None."""

    schema: Object
    rules: tuple[Rule, ...]
    fields: Mapping[str, RuleTree]
    values: RuleTree | None
    items: RuleTree | None


def rule_tree(schema: Object, *, is_root: bool = True) -> RuleTree | None:
    """The rules of a schema, None if there are none; what does not compile counts as absent.

    `is_root`: the schema is that of whole objects.
    """
    named = schema.get("properties") or {}
    fields = {name: tree for name, part in named.items() if (tree := rule_tree(part, is_root=bool(part.get(EMBEDDED))))}
    values = schema.get("additionalProperties")
    below = rule_tree(values, is_root=bool(values.get(EMBEDDED))) if isinstance(values, dict) else None
    items = item_schema(schema)
    of_items = rule_tree(items, is_root=bool(items.get(EMBEDDED))) if items is not None else None
    entries = schema.get(RULES) or ()
    type_ = type_of_schema(schema, is_root=is_root) if entries else None
    rules = tuple(_rule(entry, type_) for entry in entries) if type_ is not None else ()
    if not rules and not fields and below is None and of_items is None:
        return None
    return RuleTree(schema, rules, fields, below, of_items)


class WrongType(Exception):
    """The value of an expression is of another type than it must be; the message is a real server's."""


def compile_rule(entry: Object, type_: Type) -> Expression:
    """The program of a rule on values of a type. Raises `ExpressionError`, `WrongType`."""
    text = entry.get("rule") or ""
    if entry.get("optionalOldSelf"):
        variables = {"self": type_, "oldSelf": optional_of(type_)}
        found = compile_typed(text, variables, rewrite=_with_former_value)
    else:
        found = compile_typed(text, {"self": type_, "oldSelf": type_})
    if found.type != BOOL:
        raise WrongType("cel expression must evaluate to a bool")
    found.check_constants()
    return found


def _with_former_value(tree: Tree) -> Tree:
    """The tree with the optional value made in place, as none can be handed in."""
    new = NewIds(tree)

    def change(node: Node) -> Node:
        if not isinstance(node, Ident) or node.name != "oldSelf":
            return node

        def optional(name: str, *args: Node) -> Call:
            return Call(new.at(node), Ident(new.at(node), "optional"), name, args)

        former = optional("of", Ident(new.at(node), "formerSelf"))
        return Call(node.id, None, "_?_:_", (Ident(new.at(node), "hadSelf"), former, optional("none")))

    return tree.with_root(mapped(tree.root, change))


def compile_message(entry: Object, type_: Type) -> Expression:
    """The program of a rule's message. Raises `ExpressionError`, `WrongType`."""
    found = compile_typed(entry.get("messageExpression") or "", {"self": type_, "oldSelf": type_})
    if found.type != STRING:
        raise WrongType("messageExpression must evaluate to a string")
    found.check_constants()
    return found


def _rule(entry: Object, type_: Type) -> Rule:
    text = entry.get("rule") or ""
    message = entry.get("messageExpression")
    return Rule(
        text.strip(),
        (entry.get("message") or "").strip(),
        entry.get("reason") or "FieldValueInvalid",
        entry.get("fieldPath") or "",
        _compiled(lambda: compile_rule(entry, type_), text),
        _compiled(lambda: compile_message(entry, type_), message) if message else None,
        _OLD.search(text) is not None,
        bool(entry.get("optionalOldSelf")),
    )


def _compiled(make: Callable[[], Expression], text: str) -> Expression | None:
    try:
        return make()
    except (ExpressionError, WrongType) as error:
        logger.warning("rule is not checked", extra={"rule": text, "error": str(error)})
        return None


def validate_rules(value: JSON, tree: RuleTree, path: str = "", old: JSON = None) -> list[FieldError]:
    """Which rules a value breaks; `old` is what stood there before, None if nothing comparable did.

    What did not change is not judged again.
    """
    if value is None or (old is not None and value == old):
        return []
    errors = _broken(value, tree, path, old)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        named = tree.schema.get("properties") or {}
        for key in sorted(value):
            below = tree.fields.get(key) if key in named else tree.values
            if below is not None:
                here = (f"{path}.{key}" if path else key) if key in named else f"{path}[{key}]"
                errors += validate_rules(value[key], below, here, before.get(key))
    elif isinstance(value, list) and tree.items is not None:
        find = correlated(value, old if isinstance(old, list) else [], tree.schema)
        for index, item in enumerate(value):
            errors += validate_rules(item, tree.items, f"{path}[{index}]", find(index))
    return errors


def _broken(value: JSON, tree: RuleTree, path: str, old: JSON) -> list[FieldError]:
    if not tree.rules:
        return []
    seen = cel_value(value, tree.schema)
    before = cel_value(old, tree.schema) if old is not None else None
    errors: list[FieldError] = []
    for rule in tree.rules:
        if rule.program is None or (rule.uses_old and old is None and not rule.optional_old):
            continue
        try:
            holds = rule.program.evaluate(_variables(rule, seen, before, old is not None))
        except (EvaluationFailed, NotSupported) as error:
            why = _failure(error, rule.message or rule.text)
            if why:
                text = f'Invalid value: "{tree.schema.get("type") or ""}": {why}'
                errors.append(FieldError("FieldValueInvalid", path or ROOT, text))
            continue
        if holds is not True:
            errors.append(_error(rule, path, _message(rule, seen, before)))
    return errors


def _failure(error: ExpressionError, rule: str) -> str:
    """Why a rule has no value; "": only a real server knows."""
    if isinstance(error, EvaluationFailed):
        return f"{error} evaluating rule: {rule}"
    if str(error) == NO_OVERLOAD:
        why = "call arguments did not match a supported operator, function or macro signature"
        return f"'{NO_OVERLOAD}': {why} for rule: {rule}"
    logger.warning("rule is not checked", extra={"rule": rule, "error": str(error)})
    return ""


def _variables(rule: Rule, seen: JSON, before: JSON, had: bool) -> dict[str, JSON]:
    if rule.optional_old and rule.uses_old:
        return {"self": seen, "formerSelf": before, "hadSelf": had}
    return {"self": seen, "oldSelf": before}


def _message(rule: Rule, seen: JSON, before: JSON) -> str:
    if rule.message_program is not None:
        try:
            text = rule.message_program.evaluate({"self": seen, "oldSelf": before})
        except ExpressionError:
            text = None
        if isinstance(text, str) and text.strip() and "\n" not in text:
            return text.strip()
    return rule.message or f"failed rule: {rule.text}"


def _error(rule: Rule, path: str, message: str) -> FieldError:
    where = f"{path}{rule.field_path}" if path else rule.field_path.lstrip(".")
    word = {
        "FieldValueRequired": "Required value",
        "FieldValueForbidden": "Forbidden",
        "FieldValueDuplicate": "Duplicate value",
    }.get(rule.reason, "Invalid value")
    return FieldError(rule.reason, where or ROOT, f"{word}: {message}")


def cel_value(value: JSON, schema: Object | None) -> JSON:
    """A value as rules see it: names of fields that are no identifiers are escaped, numbers have the schema's type."""
    if schema is None:
        return value
    if isinstance(value, dict):
        named = schema.get("properties") or {}
        result: Object = {}
        for key, item in value.items():
            seen = cel_value(item, child_schema(schema, key))
            result[key] = seen
            if key in named and (escaped := escaped_name(key)) != key:
                result[escaped] = seen
        return result
    if isinstance(value, list):
        items = item_schema(schema)
        return [cel_value(item, items) for item in value]
    return typed_value(value, schema)
