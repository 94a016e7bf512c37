"""What replies mean: words that people write when they are asked."""

from __future__ import annotations

import pytest

from hivemind.taskrun.replies import is_acceptance, is_refusal, read_permission


@pytest.mark.parametrize(
    "reply", ["no", "Nope.", "deny it costs money", "*No*, not today", "Hi Ada,\nno.", "Please don't."]
)
def test_a_reply_that_begins_with_a_no_denies_a_call(reply: str) -> None:
    assert (read_permission(reply) or ("",))[0] == "deny"


@pytest.mark.parametrize(
    ("reply", "lasts"), [("once", "once"), ("`always`", "task"), ("OK, go on", "once"), ("yes\n\n> Shall I?", "once")]
)
def test_a_reply_that_begins_with_a_yes_allows_it_once_and_always_for_the_task(reply: str, lasts: str) -> None:
    assert read_permission(reply) == ("allow", lasts, "")


@pytest.mark.parametrize("reply", ["", "What does it do?", "No problem, it seems, but what is it for?"])
def test_a_reply_that_decides_nothing_is_asked_about_again(reply: str) -> None:
    assert read_permission(reply) is None


def test_only_at_a_gate_is_do_not_a_refusal() -> None:
    assert is_refusal("Do not paint it!", at_gate=True)
    assert not is_refusal("Do not paint it red.")
    assert not is_refusal("No problem, go on.", at_gate=True)


def test_done_alone_accepts_the_work() -> None:
    assert is_acceptance(" `Done.`\n")
    assert not is_acceptance("done, but add a test")
