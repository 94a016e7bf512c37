"""`hivemind help`: the manual answers, wherever the person is."""

from __future__ import annotations

from pathlib import Path

from hivemind.documents.manual import manual_folder
from tests.cli.conftest import Command


def test_a_question_is_answered_outside_of_a_hive(process: Command) -> None:
    ended = process("help", "How", "do", "I", "stop", "the", "swarm?", HIVEMIND_EMBEDDER="none")
    assert ended.status == 0
    assert ended.out.startswith("The swarm > Stopping the swarm")
    assert f"{manual_folder()}/06-the-swarm.md:" in ended.out


def test_without_a_question_the_chapters_are_listed(process: Command) -> None:
    assert [Path(line).name[:2] for line in process("help").out.splitlines()][:3] == ["01", "02", "03"]


def test_a_question_that_the_manual_does_not_answer_is_told_so(process: Command) -> None:
    for question, said in (
        ("Xyzzy plugh?", "No passage of the manual is about"),
        ("Who wrote Hamlet?", "No answer stands"),
    ):
        ended = process("help", question, HIVEMIND_EMBEDDER="none")
        assert (ended.status, ended.out.startswith(said)) == (0, True)
