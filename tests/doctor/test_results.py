"""Results of earlier versions whose citations name lines and pages that do not have the quote."""

from __future__ import annotations

import hashlib
import json

import pytest

from hivemind import Hive
from hivemind.doctor import DoctorContext, examine
from tests.cited import pdf

PAGE = b"<div>\n<p>The keel is\npainted.</p>\n<p>The mast\nis not.</p>\n</div>\n"
ONE_PAGE = pdf("The keel is\npainted in\nMarch and\nin June.")


@pytest.mark.parametrize(
    ("name", "raw", "text", "lines", "place"),
    [
        ("a.html", PAGE, "The mast is not.", (2, 5), "lines 4-5"),
        ("a.html", PAGE, "The mast is not.", (4, 5), None),
        ("a.pdf", ONE_PAGE, "The keel is\npainted in\nMarch and\nin June.", (1, 4), "pages 1-1"),
        ("a.pdf", ONE_PAGE, "The keel is\npainted in\nMarch and\nin June.", (1, 1), None),
        ("a.md", b"The keel\nis painted.\n", "The keel", (1, 2), None),
    ],
)
def test_a_result_with_a_place_that_its_quote_does_not_have_is_named_while_the_file_is_unchanged(
    hive: Hive, name: str, raw: bytes, text: str, lines: tuple[int, int], place: str | None
) -> None:
    path, folder = hive.layout.knowledge / name, hive.layout.done / "keel"
    path.write_bytes(raw)
    folder.mkdir(parents=True)
    citation = {
        "path": f"knowledge/{name}", "start_line": lines[0], "end_line": lines[1], "text": text,
        "digest": hashlib.sha256(raw).hexdigest(),
    }  # fmt: skip
    nodes = {"1": {"meta": {}}, "2": {"meta": {"citation": citation}}, "3": {"meta": {"citation": citation}}}
    (folder / "graph.json").write_text(json.dumps({"nodes": nodes}))

    def told() -> list[str]:
        return [finding.message for finding in examine(DoctorContext(hive.layout)) if finding.check == "results"]

    cites = f"cites knowledge/{name}:{lines[0]}-{lines[1]}, but the quote is at {place}"
    assert [one.split(", not at")[0] for one in told()] == ([cites] if place else [])
    path.write_bytes(raw + b"\n")
    assert told() == []
