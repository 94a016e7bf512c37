"""Any finished task can be run again from its log, and only what would truly go another way is shown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from hivemind import Hive
from hivemind.minds import MindError, Thought, ToolCall
from hivemind.reasoning import TaskGraph
from hivemind.replay import Difference, replay
from hivemind.tools import TOOLS, ToolProblem
from tests.agent.conftest import Crew, until_idle
from tests.messages import lines_of, turns_of

Wish = tuple[str, dict[str, Any]]


def by_turn(*turns: Iterable[Wish] | str) -> Callable[[Any], Thought]:
    """A mind that has its thoughts ready, one for each turn; a text is a thought that fails."""
    left = iter(turns)

    def think(turn: Any) -> Thought:
        wanted = next(left)
        if isinstance(wanted, str):
            raise MindError(wanted)
        return Thought("so", tuple(ToolCall(tool, arguments) for tool, arguments in wanted))

    return think


def names(crew: Crew) -> set[str]:
    """All files of the hive, but for SQLite's own."""
    found = {str(path.relative_to(crew.root)) for path in crew.root.rglob("*")}
    return {name for name in found if not name.endswith(("-shm", "-wal"))}


def again(crew: Crew, task: str = "t") -> list[Difference]:
    """The differences of a replay, turn by turn, with the number of turns seen to be all of them."""
    crew.close()
    hive = Hive.open(crew.root)
    before = names(crew)
    found = replay(hive, task, Hive)
    assert names(crew) == before
    assert len(found.turns) == len(turns_of(hive.tasks.get(task).path))
    return [difference for turn in found.turns for difference in turn.differences]


def done(crew: Crew, task: str = "t") -> None:
    assert (crew.root / "tasks/done" / task / "result.md").exists()


CARD: Wish = ("add_card", {"kind": "note", "text": "The keel is of oak."})
FINISH: Wish = ("finish_step", {})
END: Wish = ("finish_task", {"result": "Built."})
STEPS = "---\nsteps: [{title: The keel}, {title: The mast}]\n---\nBuild a boat.\n"


MODEL = "role: analyst\nmind: {scripted: none.jsonl}\n"  # what the log then names; the test thinks in its place


@pytest.fixture
def models(crew):
    """Two agents that do not think by rule."""
    (crew.root / "none.jsonl").touch()
    crew.agent_file(MODEL)
    crew.agent_file(MODEL.replace("analyst", "builder"), "bob")
    return crew


def test_a_task_with_calls_that_failed_and_a_mind_that_erred(models):
    models.drop(STEPS)
    agent = models.start(
        by_turn(
            [("read_file", {"path": "knowledge/none.md"})],
            "no answer of the model could be used",
            [("add_card", {"kind": "evidence", "text": "x"}), FINISH],
            [CARD, FINISH, ("teleport", {})],
            [END],
        )
    )
    until_idle(agent)
    done(models)
    assert again(models) == []


def test_a_task_that_several_agents_took_turns_in(models):
    models.drop(STEPS)
    give = {"reason": "he knows masts", "to": "bob"}
    ada = models.start(by_turn([CARD, FINISH], [("branch", {"name": "other"})], [("hand_over", give)]))
    bob = models.start(by_turn([CARD], [("hand_over", {"role": "analyst", "reason": "done"})]), "bob")
    until_idle(ada)
    until_idle(bob)
    ada.mind = type(ada.mind)(
        by_turn(
            [
                ("merge", {"source": "other", "dry_run": True}),
                ("merge", {"source": "other", "into": "main", "resolve": "use_from"}),
            ],
            [FINISH, END],
        )
    )
    until_idle(ada)
    done(models)
    assert [one["agent"] for one in turns_of(models.root / "tasks/done/t")] == ["ada"] * 3 + ["bob"] * 2 + ["ada"] * 2
    assert again(models) == []


def test_a_task_that_reserves_files_and_gives_them_back_by_their_number(models):
    models.end(models.start(name="bob"))  # what else was in the hive's journal counts in the number
    models.drop(STEPS)

    def think(turn: Any) -> Thought:
        step = next(turns)
        return Thought("so", tuple(ToolCall(tool, arguments) for tool, arguments in step()))

    def reserved() -> int:
        [event] = models.events("paths.reserved")
        return int(event.seq)

    turns = iter([
        lambda: [CARD, ("reserve", {"paths": ["knowledge/boats/**"]})],
        lambda: [("release", {"reservation": reserved()}), FINISH],
        lambda: [FINISH],
        lambda: [END],
    ])  # fmt: skip
    until_idle(models.start(think))
    done(models)
    assert again(models) == []


def test_a_task_that_mails_the_very_agent_that_does_it(crew):
    crew.drop("---\nsteps: [{mail: {to: ada, subject: Note, body: Remember the oars.}}, {run: echo 1}]\n---\nGo.\n")
    agent = crew.start()
    until_idle(agent)
    done(crew)
    assert "Remember the oars." in "".join(path.read_text() for path in (crew.root / "mailboxes/ada/cur").iterdir())
    assert again(crew) == []


def complete(text: str, schema: Any = None) -> str:
    """A memory's model: it folds the oldest two of what it is offered, and notes an episode below the newest node."""
    offered = [int(number) for number in re.findall(r"^\s*(\d+) \[", text, re.MULTILINE)]
    notes = [{"role": "assistant", "content": "IT SAYS MUCH"}]
    if "fold_ops" in text:
        return json.dumps({"fold_ops": [{"ids": offered[:2], "notes": notes, "rationale": "done"}]})
    node = {"tmp_id": "tmp1", "kind": "evidence", "thought": [{"role": "assistant", "content": "a look"}]}
    return json.dumps({"add_nodes": [node], "add_edges": [{"src": "2", "dst": "tmp1", "rationale": "support"}]})


@pytest.fixture
def folded(models):
    """A long task whose conversation a model has folded."""
    models.agent_file(MODEL + "max_tokens: 12000\ngraph: model\n")
    models.drop("---\nsteps: [{title: Look}]\n---\nLook at boats.\n")
    (models.root / "knowledge/boats.md").write_text("# Boats\n\n" + "A rowing boat is moved with oars. " * 60)
    looks = [[("read_file", {"path": "knowledge/boats.md", "end_line": 3 + number})] for number in range(30)]
    agent = models.start(by_turn(*looks, [CARD, FINISH], [END]))
    agent.mind.complete = complete
    until_idle(agent)
    done(models)
    summaries = TaskGraph(models.root / "tasks/done/t").graph.by_kind("summary")
    assert any("IT SAYS MUCH" in node.text for node in summaries)
    assert len([line for line in lines_of(models.root / "tasks/done/t") if "opening" in line]) > 2
    return models


def test_a_long_conversation_that_a_model_folded(folded):
    assert again(folded) == []


@pytest.fixture
def simple(models):
    crew = models
    crew.drop(STEPS)
    agent = crew.start(by_turn([CARD, FINISH], [("read_file", {"path": "knowledge/boats.md"}), FINISH], [END]))
    (crew.root / "knowledge/boats.md").write_text("# Boats\n\nA rowing boat is moved with oars.\n")
    until_idle(agent)
    done(crew)
    return crew


def test_a_tool_that_answers_otherwise_by_now_is_shown(simple, monkeypatch):
    assert again(simple) == []
    tool = TOOLS["read_file"]

    def changed(session: Any, arguments: Any) -> dict[str, Any]:
        return {**tool.use(session, arguments), "text": "# Ships\n"}

    monkeypatch.setitem(TOOLS, "read_file", replace(tool, use=changed))
    [found] = again(simple)
    assert (found.what, found.where) == ("result", "1 read_file")
    assert found.now["result"]["text"] == "# Ships\n"


def test_a_tool_that_refuses_by_now_is_shown_with_what_follows(simple, monkeypatch):
    def refuses(session: Any, arguments: Any) -> dict[str, Any]:
        raise ToolProblem("not any more")

    monkeypatch.setitem(TOOLS, "finish_step", replace(TOOLS["finish_step"], use=refuses))
    found = again(simple)
    assert found[0].where == "2 finish_step"
    assert found[0].now["error"] == "not any more"
    assert found[-1].what == "result" or found[-1].what == "end"


def test_an_agent_that_is_gone_is_named(simple):
    path = simple.root / "tasks/done/t/messages.jsonl"
    path.write_text(path.read_text().replace('"agent":"ada"', '"agent":"carol"'))
    with pytest.raises(Exception, match="the agent 'carol', which did task t, no longer exists"):
        again(simple)


def test_a_second_attempt_is_taken_again_with_the_numbers_that_its_steps_had(crew):
    crew.drop(f"---\nsteps: [{{run: 'test -f {crew.root}/there'}}]\n---\nLook.\n")
    agent = crew.start()
    until_idle(agent)
    assert (crew.root / "tasks/failed/t/error.md").exists()
    (crew.root / "there").touch()
    agent.hive.tasks.retry("t")
    until_idle(agent)
    done(crew)
    assert again(crew) == []
