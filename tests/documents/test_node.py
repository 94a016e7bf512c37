"""Numbers as the hash prints them, and the checks of ids, texts and contexts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind.documents import DocmemError
from hivemind.documents.node import check_context, check_id, check_text, js_number


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (0.0, "0"), (-0.0, "0"), (1.0, "1"), (-3.0, "-3"), (1.2, "1.2"), (0.00001, "0.00001"), (0.000001, "0.000001"),
        (1e-7, "1e-7"), (1.5e-7, "1.5e-7"), (-2.5e-9, "-2.5e-9"), (123456789.125, "123456789.125"), (1e21, "1e+21"),
        (1.5e21, "1.5e+21"), (123456789012345680000.0, "123456789012345680000"), (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"), (0.1, "0.1"), (100.0, "100"), (1e20, "100000000000000000000"),
        (4.000000000000262, "4.000000000000262"), (0.000123, "0.000123"), (1 / 3, "0.3333333333333333"),
    ],
)  # fmt: skip
def test_orders_are_printed_as_javascript_prints_numbers(value: float, printed: str) -> None:
    assert js_number(value) == printed


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_printed_order_is_the_order(value: float) -> None:
    printed = js_number(value)
    assert float(printed) == value
    assert not printed.endswith(".0")
    assert "e0" not in printed
    assert ("e" in printed) == (value != 0 and not 1e-6 <= abs(value) < 1e21)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_order_is_finite(value: float) -> None:
    with pytest.raises(DocmemError):
        js_number(value)


@pytest.mark.parametrize("bad", ["", "a\nb", "x" * 129, "\ud800", None, 7])
def test_an_id_is_short_and_printable(bad: object) -> None:
    with pytest.raises(DocmemError):
        check_id(bad)  # type: ignore[arg-type]


def test_half_characters_are_refused_where_utf8_could_not_hold_them() -> None:
    with pytest.raises(DocmemError, match="lone surrogate"):
        check_text("a\ud800b")


def test_a_context_is_text() -> None:
    with pytest.raises(DocmemError, match="context_name"):
        check_context("a", None, "c")  # type: ignore[arg-type]
