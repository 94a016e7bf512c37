"""What a tool is given: the obvious is accepted, the rest is refused with what to write instead, for every face alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.mcp_server.member import Member
from hivemind.tools import MEMBER_TOOLS, TOOLS, ToolProblem
from hivemind.tools import tool as definition
from hivemind.tools.registry import use_by_hand
from tests.agent.conftest import Crew, hands

ALL = {**TOOLS, **MEMBER_TOOLS}
MANUAL = Path(__file__).parents[2] / "knowledge/manual/05-agents.md"


def refusal(tool: str, **arguments: object) -> str:
    with pytest.raises(ToolProblem) as refused:
        ALL[tool].call(None, arguments)  # type: ignore[arg-type]
    return str(refused.value)


@pytest.mark.parametrize(
    ("tool", "given", "meant"),
    [
        ("write_file", {"file_path": "a.md", "content": "x"}, {"path": "a.md", "text": "x"}),
        ("edit_file", {"path": "a", "old_string": "x", "new_string": "y"}, {"path": "a", "old": "x", "new": "y"}),
        ("recall", {"query": "oak"}, {"question": "oak"}),
        ("remember", {"text": "oak"}, {"content": "oak"}),
        ("search_files", {"regex": "oak"}, {"pattern": "oak"}),
        ("claim_step", {"step_id": "t.s1"}, {"step": "t.s1"}),
        ("reply_mail", {"message_id": "<a@b>", "text": "yes"}, {"id": "<a@b>", "body": "yes"}),
        ("reserve", {"path": "knowledge/a.md"}, {"paths": ["knowledge/a.md"]}),
        ("reserve", {"paths": "knowledge/a.md"}, {"paths": ["knowledge/a.md"]}),
        ("send_mail", {"to": "bob", "content": "hello"}, {"to": ["bob"], "body": "hello"}),
        ("verify_step", {"checkpoints": "docs"}, {"checkpoints": ["docs"]}),
        ("add_evidence", {"evidence": "t.s1#1"}, {"evidence": ["t.s1#1"]}),
        ("plan_steps", {"steps": [{"name": "x", "run": "ls -l"}]}, {"steps": [{"title": "x", "run": ["ls", "-l"]}]}),
        ("plan_steps", {"steps": ["Sew it", "Who?"]}, {"steps": [{"title": "Sew it"}, {"title": "Who?", "ask": "Who?"}]}),
        ("cancel_task", {"task": "t.1"}, {"id": "t.1"}),
        ("finish_task", {"text": "Of oak."}, {"result": "Of oak."}),
        ("search_files", {"pattern": "oak", "path": None}, {"pattern": "oak"}),
    ],
)  # fmt: skip
def test_the_obvious_is_accepted(tool: str, given: dict[str, object], meant: dict[str, object]) -> None:
    model = ALL[tool].arguments
    assert model.model_validate(given) == model.model_validate(meant)


def test_a_misspelt_argument_is_answered_with_the_nearest_name_and_an_unlikely_one_with_all_names() -> None:
    assert "search_files: pattern is missing; patern: did you mean 'pattern'?" in refusal("search_files", patern="x")
    assert "zzz: known arguments: path, start_line, end_line" in refusal("read_file", path="a", zzz=1)
    assert "steps.0.titel: did you mean 'title'?" in refusal("plan_steps", steps=[{"titel": "x"}])


def test_two_names_for_one_argument_are_refused_not_chosen_from() -> None:
    assert "content: known arguments: path, text" in refusal("write_file", path="a", text="x", content="y")
    assert "contents" in refusal("write_file", path="a", content="x", contents="y")


def test_a_command_in_one_text_is_split_as_a_shell_does_and_one_whose_quotes_do_not_end_is_refused(crew: Crew) -> None:
    crew.agent_file("commands: [printf]\n")
    use = hands(crew)
    assert use("run_command", cmd="printf '%s|' 'old oak' '$HOME'")["result"]["output"] == "old oak|$HOME|"
    assert "No closing quotation" in use("run_command", command="printf 'oak")["error"]


@pytest.mark.parametrize("tool", sorted(ALL))
def test_no_other_name_is_an_argument_of_its_own_or_stands_for_two(tool: str) -> None:
    fields = set(ALL[tool].arguments.model_fields)
    others = [other for name in fields for other in definition.OTHER_NAMES.get(name, ()) if other not in fields]
    twice = {other for other in others if others.count(other) > 1}
    assert not twice


def test_minds_members_from_outside_and_the_command_line_are_understood_alike(crew: Crew) -> None:
    crew.agent_file("mind: mcp\n", "claude")
    wanted = {"file_path": "knowledge/boats.md", "content": "oak\n"}
    assert hands(crew)("write_file", **wanted)["result"]["bytes"] == 4
    hive = Hive.open(crew.root)
    assert use_by_hand(hive, "human", "write_file", wanted)["bytes"] == 4
    member = Member(hive, "claude", "full")
    try:
        assert member.call("write_file", wanted)["bytes"] == 4
        with pytest.raises(ToolProblem, match="did you mean 'path'"):
            member.call("read_file", {"pahtt": "x"})
    finally:
        member.close()


def test_every_other_name_stands_in_the_manual() -> None:
    told = MANUAL.read_text()
    for name, others in definition.OTHER_NAMES.items():
        for other in (name, *others):
            assert f"`{other}`" in told, other
