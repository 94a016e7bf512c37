from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hivemind.minds import extractive


def plan_steps(title, text):
    return [question.text for question in extractive.plan_steps(title, text)]


def questions_in(subject, text):
    return [question.text for question in extractive.questions_in(subject, text)]


def context(text, at=0):
    return extractive.plan_steps("title", text)[at].context


def test_each_list_item_is_a_step_and_its_continuation_belongs_to_it():
    text = "Please:\n\n* find the\n  first thing\n* find the second\n1. and the third\n"
    assert plan_steps("title", text) == ["find the first thing", "find the second", "and the third"]


def test_each_question_of_running_text_is_a_step():
    text = "I wonder. What is a lease? It is short.\nAnd who holds\nit? Tell me!"
    assert plan_steps("t", text) == ["What is a lease?", "And who holds it?"]


def test_what_stands_in_fenced_code_or_is_quoted_is_no_question():
    assert len(plan_steps("the title", "```\n* what?\n```\n> Who?\nDo it.")) == 1


def test_a_text_with_neither_is_one_question_all_of_it_under_its_title():
    assert plan_steps("Mend the roof", "It leaks.\n\nSay how.") == ["Mend the roof. It leaks. Say how."]
    assert plan_steps("", "  It   leaks.  ") == ["It leaks."]
    assert plan_steps("", "") == ["(an empty task)"]
    [question] = extractive.plan_steps("It leaks", "It leaks\n\n" + "and drips " * 1000)
    assert (question.title, len(question.text), question.text[:20]) == ("It leaks", 2000, "It leaks and drips a")


def test_a_question_has_beside_it_the_other_sentences_of_its_paragraph_and_the_paragraph_above():
    text = "I use Git 2.39.\n\nI changed the default branch. Which setting does that? It is about clones.\n\nMore."
    assert plan_steps("t", text) == ["Which setting does that?"]
    assert context(text) == "I changed the default branch. It is about clones. I use Git 2.39."


def test_a_list_item_has_beside_it_the_line_above_the_list():
    text = "About git bisect:\n\n* how it begins\n* how it ends\n"
    assert [context(text, at) for at in (0, 1)] == ["About git bisect:"] * 2


def test_the_nearest_sixty_words_are_beside_a_question():
    text = " ".join(f"Word{number} is said." for number in range(100)) + " What now?"
    words = context(text).split()
    assert len(words) == 60
    assert words[0] == "Word99"
    assert "Word70" not in words


def test_greeting_and_signature_are_no_part_of_what_is_asked():
    text = "Dear Anna,\n\nWho paints it?\n\nKind regards\nBob Miller\nHarbour 7\n"
    assert (plan_steps("t", text), context(text)) == (["Who paints it?"], "")
    assert questions_in("", "Hello!\nTell me who paints it.\n-- \nBob\n") == ["Tell me who paints it."]
    assert plan_steps("", "Best practices for lanes.") == ["Best practices for lanes."]


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
    assert questions_in("hello", "Tell me about lanes. Thanks.") == ["Tell me about lanes. Thanks."]
    assert questions_in("", "") == []


def test_a_question_that_is_also_the_title_is_a_step_unless_it_is_a_heading_over_items():
    assert plan_steps("Who?", "Who?\nWhat?") == ["Who?", "What?"]
    assert plan_steps("Who sails?", "# Who sails?\n\n* Anna\n* Bert") == ["Anna", "Bert"]
