"""The topology annotation: what it says, and what is wrong with it, by field."""

from __future__ import annotations

import pytest

from muster.api.topology import (
    Distribution,
    Subgroups,
    TopologyError,
    TopologyTerms,
    kueue_terms,
    levels_of,
    parse_topology,
)

FULL = """
levels: [zone, block, rack]
required: zone
preferred: rack
subgroups: {size: 8, required: rack}
distribution: {policy: balanced, over: block}
replicas: {spreadOver: zone}
"""


def test_every_field_is_read_and_a_preferred_level_stands_for_the_wider_ones_too() -> None:
    terms = parse_topology(FULL)

    assert terms == TopologyTerms(
        required="zone",
        preferred=("rack", "block"),
        levels=("zone", "block", "rack"),
        subgroups=Subgroups(8, "rack"),
        distribution=Distribution("balanced", "block"),
        spread_over="zone",
    )


def test_a_list_of_preferred_labels_is_taken_as_it_stands() -> None:
    terms = parse_topology('{"preferred": ["rack", "zone"]}')

    assert terms is not None
    assert terms.preferred == ("rack", "zone")
    assert terms.tree == ("zone", "rack")


def test_on_a_workload_each_template_has_its_own_terms() -> None:
    text = "workers: {required: rack}\nparameter-servers: {preferred: zone}"

    assert parse_topology(text, "workers") == TopologyTerms(required="rack")
    assert parse_topology(text, "others") is None


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("required: [", "not YAML: "),
        ("rack", "the whole: a mapping is wanted, not 'rack'"),
        ("requires: rack", "requires: no such field; there are distribution, levels, "),
        ("required: 3", "required: a label key is wanted, not 3"),
        ("required: a b", "required: 'a b' is not a label key: "),
        ("preferred: [rack, rack]", "preferred: a label is named twice"),
        ("preferred: [rack, a//b]", "preferred[1]: 'a//b' is not a label key: "),
        ("levels: []", "levels: a label key or a list of them is wanted"),
        ("{levels: [zone], topology: gpu}", "topology: not beside levels"),
        ("{levels: [zone], required: rack}", "required: 'rack' is none of the levels zone"),
        ("subgroups: {size: 0, required: rack}", "subgroups.size: 0 is not a number of pods, 1 or more"),
        ("subgroups: {size: 2}", "subgroups.required is missing"),
        ("distribution: {policy: even, over: rack}", "distribution.policy: 'even' is neither packed nor balanced"),
        ("replicas: rack", "replicas: a mapping is wanted, not 'rack'"),
        (
            "{levels: [zone, rack], required: rack, subgroups: {size: 2, required: zone}}",
            "subgroups.required: 'zone' is wider than required, 'rack'",
        ),
    ],
)
def test_what_cannot_be_read_is_named_by_its_field(text: str, want: str) -> None:
    with pytest.raises(TopologyError) as caught:
        parse_topology(text)

    assert str(caught.value).startswith(want)


def test_a_template_is_a_part_of_the_field_name() -> None:
    with pytest.raises(TopologyError, match=r"^workers\.required: "):
        parse_topology("workers: {required: 1}", "workers")


def test_the_field_of_the_api_and_the_annotation_may_not_demand_different_labels() -> None:
    assert TopologyTerms().with_required("rack").required == "rack"
    assert TopologyTerms(required="rack").with_required("rack").required == "rack"
    with pytest.raises(TopologyError, match="required: 'zone' is not the label of schedulingConstraints, 'rack'"):
        TopologyTerms(required="zone").with_required("rack")


def test_annotations_of_kueue_mean_the_same() -> None:
    prefix = "kueue.x-k8s.io/podset-"
    sliced = {f"{prefix}slice-required-topology": "rack", f"{prefix}slice-size": "4"}

    assert kueue_terms({}) is None
    assert kueue_terms({f"{prefix}unconstrained-topology": "true"}) is None
    assert kueue_terms({f"{prefix}required-topology": "rack"}) == TopologyTerms(required="rack")
    preferred = kueue_terms({f"{prefix}preferred-topology": "rack"})
    assert preferred is not None
    assert preferred.with_levels(["zone", "block", "rack"]).preferred == ("rack", "block", "zone")
    assert kueue_terms(sliced) == TopologyTerms(subgroups=Subgroups(4, "rack"))
    with pytest.raises(TopologyError, match="podset-slice-size is missing"):
        kueue_terms({f"{prefix}slice-required-topology": "rack"})
    with pytest.raises(TopologyError, match="podset-slice-size: 'x' is not a number"):
        kueue_terms({**sliced, f"{prefix}slice-size": "x"})


def test_levels_of_a_topology_object() -> None:
    assert levels_of({"spec": {"levels": [{"nodeLabel": "block"}, {"nodeLabel": "rack"}]}}) == ("block", "rack")
    assert levels_of({}) == ()
