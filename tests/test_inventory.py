"""Nothing that users rest on disappears in silence, and nothing comes without a test that uses it."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.inventory import ROOT, inventory, listed_tests, removed_names, shown_by

SINCE = "518b98c"  # before that, kinds of entries were named anew
AGAIN = "python -m tests.inventory brings tests/inventory.txt in line"


def test_what_there_is_stands_in_the_inventory_and_nothing_else() -> None:
    there, written = {f"{item.kind}: {item.name}" for item in inventory()}, set(listed_tests())
    assert sorted(there - written) == [], f"new: {AGAIN}"
    assert sorted(written - there) == [], f"it is gone: {AGAIN}, and CHANGELOG.md says why"


@pytest.mark.slow
def test_everything_is_used_by_a_test() -> None:
    unused = [f"{item.kind}: {item.name}" for item in inventory() if shown_by(item) is None]
    assert unused == [], "write a test that uses it"


def test_the_tests_that_the_inventory_names_are_there() -> None:
    for name, test in listed_tests().items():
        path, _, function = test.partition("::")
        assert function, f"{name} has no test: {AGAIN}"
        assert re.search(rf"^(async )?def {function}\b", (ROOT / path).read_text("utf-8"), re.MULTILINE), (
            f"{name}: {test} is not there any more: {AGAIN}"
        )


def test_what_is_gone_has_its_line_in_the_changelog() -> None:
    changes = "".join(path.read_text("utf-8") for path in (ROOT / "CHANGELOG.md", *ROOT.glob("changes/*.md")))
    for name in removed_names():
        assert re.search(rf"(?<!\w){re.escape(name.partition(': ')[2].split()[-1].split(' (')[0])}(?!\w)", changes), (
            f"{name} is gone, silently"
        )


def test_what_stood_in_the_inventory_once_stands_there_or_is_listed_as_gone() -> None:
    """Nobody takes a line away by hand: git knows what was there."""
    documents = ["tests/inventory.txt", "docs/inventory.md"]  # it was Markdown once
    asked = ["git", "log", "--format=", "--patch", f"{SINCE}..HEAD", "--", *documents]
    said = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    if said.returncode:
        pytest.skip("no git here, or not the whole history")
    taken = re.findall(r"^-(?:\| )?(\w+)(?: \| `|\t)(.+?)(?:` \||\t)", said.stdout, re.MULTILINE)
    assert sorted({f"{kind}: {name}" for kind, name in taken} - {*listed_tests(), *removed_names()}) == []
