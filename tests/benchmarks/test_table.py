"""A row knows how it compares, and whether its target is met; a table is Markdown."""

from __future__ import annotations

import json

from benchmarks.table import Row, as_json, lines


def test_a_ratio_is_value_by_baseline_and_there_is_none_without_a_baseline():
    assert Row("a", 1.0, "s", "b", 4.0).ratio == 0.25
    assert Row("a", 1.0, "s").ratio is None
    assert Row("a", 1.0, "s", "b", 0.0).ratio is None


def test_a_target_is_met_on_the_better_side_of_it():
    assert Row("a", 1.0, "s", target=2.0).met
    assert not Row("a", 3.0, "s", target=2.0).met
    assert Row("a", 3.0, "1/s", better="more", target=2.0).met
    assert Row("a", 2.0, "s", target=2.0).met
    assert Row("a", 1.0, "s").met is None


def test_a_table_has_a_line_for_each_row_with_equally_many_cells():
    found = list(lines("Title", [Row("a | b", 1234.5, "s", "c", 2.0, target=1.0), Row("d", 0.01234, "s")]))
    assert found[0] == "## Title"
    assert {line.replace("\\|", "").count("|") for line in found[2:]} == {10}
    assert "1,234" in found[4]
    assert " missed " in found[4]
    assert "0.0123" in found[5]


def test_rows_come_back_from_json():
    row = Row("a", 1.0, "s", "b", 4.0, "more", "a note", 3.0)
    assert [Row(**fields) for fields in json.loads(as_json([row]))] == [row]
