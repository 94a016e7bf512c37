from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hivemind.minds.extractive import plan_steps, questions_in


def test_each_list_item_is_a_step_and_its_continuation_belongs_to_it():
    text = "Please:\n\n* find the\n  first thing\n* find the second\n1. and the third\n"
    assert plan_steps("title", text) == ["find the first thing", "find the second", "and the third"]


def test_each_question_of_running_text_is_a_step():
    text = "I wonder. What is a lease? It is short.\nAnd who holds\nit? Tell me!"
    assert plan_steps("t", text) == ["What is a lease?", "And who holds it?"]


def test_what_stands_in_fenced_code_or_is_quoted_is_no_question():
    assert plan_steps("the title", "```\n* what?\n```\n> Who?\nDo it.") == ["the title"]


def test_a_text_with_neither_is_one_step_named_by_its_title():
    assert plan_steps("Mend the roof", "It leaks.") == ["Mend the roof"]
    assert plan_steps("", "  It   leaks.  ") == ["It leaks."]
    assert plan_steps("", "") == ["(an empty task)"]


def test_a_repeated_item_is_one_step_and_checkboxes_are_left_out():
    assert plan_steps("t", "- [ ] a\n- [x] b\n- a\n") == ["a", "b"]


@given(st.text(), st.text())
def test_every_text_gives_a_plan_without_empty_or_repeated_steps(title, text):
    steps = plan_steps(title, text)
    assert steps
    assert all(step.strip() for step in steps)
    assert len(set(steps)) == len(steps)
    assert steps == plan_steps(title, text)


def test_the_questions_of_a_mail_are_those_of_its_body_before_its_subject():
    assert questions_in("Re: help?", "Hello.\nWhat is a lane?") == ["What is a lane?"]
    assert questions_in("What is a lane?", "See above.") == ["What is a lane?"]
    assert questions_in("hello", "Tell me about lanes. Thanks.") == ["Tell me about lanes."]
    assert questions_in("", "") == []
