"""The file of lessons: what the README of its folder promises of its form."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind.layout import template_folder
from hivemind.lessons.lesson_file import Lesson, lessons_in, with_changes

WORDS = st.text(st.characters(blacklist_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=60)
SENTENCES = WORDS.map(lambda text: " ".join(text.split())).filter(lambda text: text and not text.endswith(")"))
PLACES = st.from_regex(r"[a-z./-]{1,12}", fullmatch=True)
LESSONS = st.builds(
    Lesson,
    SENTENCES,
    st.lists(PLACES, max_size=3).map(tuple),
    st.from_regex(r"(task `[a-z-]{1,9}`, m[0-9]{1,3})?", fullmatch=True),
)
LINES = st.sampled_from(
    [
        "# Title",
        "",
        "some text",
        "- an item",
        "* another (from me)",
        "  further",
        "\tmore",
        "```",
        "- ",
        "-x",
        "~~~",
        "+ plus",
    ]
)
FILES = st.one_of(st.lists(LINES).map("\n".join), st.text(max_size=200))


@given(FILES, LESSONS)
def test_a_lesson_that_is_added_is_read_again_and_all_else_stays(text: str, lesson: Lesson) -> None:
    added = with_changes(text, [lesson], (), "Lessons: app")
    assert lessons_in(added) == [*lessons_in(text), lesson]
    assert added.startswith(text.rstrip())


@given(FILES, LESSONS)
def test_a_lesson_that_is_removed_leaves_the_text_as_it_was(text: str, lesson: Lesson) -> None:
    known = [known for known in lessons_in(text) if known.digest != lesson.digest]
    removed = with_changes(with_changes(text, [lesson], (), "x"), (), {lesson.digest}, "x")
    assert lessons_in(removed) == known


@given(st.binary(max_size=300))
def test_any_bytes_can_be_read_and_are_kept(raw: bytes) -> None:
    text = raw.decode("utf-8", "surrogateescape")
    for lesson in lessons_in(text):
        lesson.line.encode()
    added = with_changes(text, [Lesson("Use make.")], (), "x").encode("utf-8", "surrogateescape")
    assert added.startswith(text.rstrip().encode("utf-8", "surrogateescape"))


def test_the_example_in_the_readme_is_a_lesson_with_its_places_and_evidence() -> None:
    readme = (template_folder() / "knowledge/lessons/README.md").read_text()
    [example] = re.findall(r"^    (- .*)$", readme, re.MULTILINE)
    [lesson] = lessons_in(example)
    assert lesson.text == "Run the tests with `PYTHONPATH=src pytest`: without it they import the installed copy."
    assert lesson.places == ("tests/", "pytest")
    assert lesson.evidence == "task `mend-sail`, m7 and m9, 2026-11-27"
    assert f"- {lesson.line}" == example


@pytest.mark.parametrize(
    ("item", "lesson"),
    [
        ("- Use make.", Lesson("Use make.")),
        ("* Use make\n  for all. (for `src/`)", Lesson("Use make for all.", ("src/",))),
        ("+ Use make. (from Jane)", Lesson("Use make.", (), "Jane")),
        ("- Use make (see the wiki)", Lesson("Use make (see the wiki)")),
        ("- (for `src/`)", Lesson("(for `src/`)")),
    ],
)
def test_a_person_may_write_an_item_as_lists_are_written(item: str, lesson: Lesson) -> None:
    assert lessons_in(item) == [lesson]


def test_what_is_no_item_is_none(tmp_path: Path) -> None:
    assert lessons_in("Text\n\n```\n- code\n```\n  - nested\n-no blank\n") == []
