"""`hivemind lessons`: what agents have learned, and a person's decisions on it."""

from __future__ import annotations

import json

from tests.agent.conftest import Crew, crew
from tests.cli.conftest import Command
from tests.lessons.test_people import TEXT, learn, state

__all__ = ["crew"]


def test_the_command_lists_shows_adopts_and_forgets(crew: Crew, process: Command) -> None:
    def run(*words: str) -> str:
        ended = process("lessons", *words, HIVEMIND_HIVE=str(crew.root))
        return ended.out + ended.err

    assert "There are no lessons yet." in run()
    learn(crew.root)
    learn(crew.root, "Sew with waxed thread.", state="waiting")
    listed = run()
    assert TEXT in listed
    assert "general-2" in listed
    assert "Waiting lessons are shown to nobody" in listed
    assert "Sew" not in (crew.root / "knowledge/lessons/general.md").read_text()
    assert "hivemind task transcript t" in run("show", "general-1")
    assert "general-2 is shown to agents from now on" in run("adopt", "general-2")
    assert "Sew" in (crew.root / "knowledge/lessons/general.md").read_text()
    assert "general-1 is forgotten" in run("forget", "general-1")
    assert TEXT not in run("general")
    every_lesson = process("lessons", "general", "--all", HIVEMIND_HIVE=str(crew.root))
    assert TEXT in every_lesson.out
    assert (crew.root / ".hive/lessons/general.json").exists()
    assert [row["state"] for row in json.loads(run("--all", "--json"))] == ["retired", "live"]
    assert "there is no lesson general-9" in run("forget", "general-9")
    assert "there are no lessons of mast" in run("mast")
    assert "lessons show names nothing" in run("show")
    assert "no root is named 'mast'" in run("propose", "mast")
    kinds = [
        event.kind
        for kind in ("lesson.learned", "lesson.waits", "lesson.adopted", "lesson.retired")
        for event in crew.events(kind)
    ]
    assert kinds == ["lesson.learned", "lesson.waits", "lesson.adopted", "lesson.retired"]


def test_an_agent_may_not_decide(crew: Crew, process: Command) -> None:
    learn(crew.root, state="waiting")
    ended = process(
        "lessons", "adopt", "general-1", HIVEMIND_HIVE=str(crew.root), HIVEMIND_AUTHOR="ada", HIVEMIND_AGENT="ada"
    )
    assert ended.status != 0
    assert state(crew.root) == "waiting"
