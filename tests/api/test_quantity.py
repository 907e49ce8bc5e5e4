"""Quantities are exact, round up, and are written back in the API server's form."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api.quantity import (
    WRONG_FORMAT,
    WRONG_SUFFIX,
    QuantityError,
    canonical_quantity,
    format_units,
    parse_quantity,
    resource_units,
)


@pytest.mark.parametrize(
    ("text", "want_text", "want_units", "want_milli"),
    [
        ("1", "1", 1, 1000),
        ("500m", "500m", 1, 500),
        ("1000m", "1", 1, 1000),
        ("1.5Gi", "1536Mi", 1536 * 2**20, 1536 * 2**20 * 1000),
        ("16e9", "16e9", 16 * 10**9, 16 * 10**12),
        ("1E", "1E", 10**18, 10**21),
        ("1E3", "1e3", 1000, 10**6),
        ("0.5Ki", "512", 512, 512_000),
        ("1023Ki", "1023Ki", 1023 * 1024, 1023 * 1024 * 1000),
        ("100u", "100u", 1, 1),
        (".5", "500m", 1, 500),
        ("5.", "5", 5, 5000),
        ("-1.5", "-1500m", -2, -1500),
        ("0Gi", "0", 0, 0),
        ("2500000000", "2500M", 2_500_000_000, 2_500_000_000_000),
        ("1e-12", "1e-9", 1, 1),
        ("1e-999999", "1e-9", 1, 1),
        ("9e999999", "9223372036854775807", 2**63 - 1, (2**63 - 1) * 1000),
        ("99Ei", "9223372036854775807", 2**63 - 1, (2**63 - 1) * 1000),
    ],
)
def test_quantity_is_read_exactly_and_written_canonically(
    text: str, want_text: str, want_units: int, want_milli: int
) -> None:
    quantity = parse_quantity(text)

    assert (str(quantity), quantity.units(), quantity.milli()) == (want_text, want_units, want_milli)


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "abc", "1.2.3", "1KiB", "k", "--1", "1\n", "１", "9" * 2000, None, True]
)
def test_malformed_quantity_is_refused_in_kubernetes_words(text: object) -> None:
    with pytest.raises(QuantityError, match="quantities must match") as caught:
        parse_quantity(text)
    assert str(caught.value) == WRONG_FORMAT


@pytest.mark.parametrize("text", ["1e", "1Gii", "1EE", "1mi", "1K"])
def test_unknown_suffix_is_refused(text: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_quantity(text)
    assert str(caught.value) == WRONG_SUFFIX


def test_numbers_are_quantities_too() -> None:
    assert resource_units("nvidia.com/gpu", 8) == 8
    assert resource_units("cpu", 1.5) == 1500


@given(st.integers(0, 2**62), st.sampled_from(["", "k", "M", "Ki", "Mi", "m", "u", "n"]))
def test_canonical_text_is_a_fixed_point_of_the_same_value(number: int, suffix: str) -> None:
    quantity = parse_quantity(f"{number}{suffix}")
    text = str(quantity)

    assert parse_quantity(text).nano == quantity.nano
    assert canonical_quantity(text) == text


@given(st.integers(0, 10**9), st.integers(0, 10**12), st.sampled_from([("", 1), ("Ki", 1024), ("M", 10**6)]))
def test_fractions_round_up(whole: int, fraction: int, suffix: tuple[str, int]) -> None:
    text = f"{whole}.{fraction:012d}{suffix[0]}"
    exact = Fraction(f"{whole}.{fraction:012d}") * suffix[1]

    units = parse_quantity(text).units()

    assert units - 1 < exact <= units


@given(st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "hugepages-2Mi"]), st.integers(0, 2**50))
def test_formatted_units_read_back(resource: str, units: int) -> None:
    assert resource_units(resource, format_units(resource, units)) == units
