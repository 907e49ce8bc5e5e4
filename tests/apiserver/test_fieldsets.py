"""Sets of fields: laws, and what two states differ in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muster.api.codec import JSON, Object
from muster.apiserver.fieldsets import FieldSet, changes, difference, fields_of, intersection, paths, union
from muster.apiserver.schema import schema_for

POD = schema_for("", "v1", "Pod")
OBJECTS: st.SearchStrategy[Object] = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(
        st.integers(0, 2), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=2), max_leaves=5
    ),
    max_size=3,
)
SETS = OBJECTS.map(lambda obj: fields_of(obj, None))


def named(fields: FieldSet) -> set[str]:
    return set(paths(fields))


@given(SETS, SETS)
def test_sets_of_fields_are_sets_of_paths(one: FieldSet, other: FieldSet) -> None:
    assert named(union(one, other)) == named(one) | named(other)
    assert named(difference(one, other)) == named(one) - named(other)
    assert named(intersection(one, other)) == named(one) & named(other)


@given(OBJECTS, OBJECTS)
def test_equal_states_differ_in_nothing_and_others_in_something(old: Object, new: Object) -> None:
    done = changes(old, new, None)
    assert bool(done.removed or done.changed) == (old != new)


def pod(**container: JSON) -> Object:
    return {"spec": {"containers": [{"name": "c", **container}]}}


def test_items_of_keyed_lists_have_owners_of_their_own() -> None:
    fields = fields_of(pod(ports=[{"containerPort": 80}]), POD)
    assert list(paths(fields)) == [
        '.spec.containers[name="c"]',
        '.spec.containers[name="c"].name',
        '.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"]',
        '.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"].containerPort',
    ]


def test_a_changed_field_of_an_item_is_that_field_alone() -> None:
    done = changes(pod(image="a"), pod(image="b"), POD)
    assert (list(paths(done.changed)), done.removed) == (['.spec.containers[name="c"].image'], {})


def test_an_atomic_list_is_one_field() -> None:
    done = changes(pod(args=["a"]), pod(args=["a", "b"]), POD)
    assert list(paths(done.changed)) == ['.spec.containers[name="c"].args']
