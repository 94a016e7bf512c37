"""The tools as one family: those that spec 7 names, each one definition, and the built-in mind acts by them alone."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from hivemind.config import AgentConfig
from hivemind.minds import extractive
from hivemind.tools import MEMBER_TOOLS, TOOLS, ToolProblem, allowed_tools
from tests.agent.conftest import Crew, hands, until_idle
from tests.messages import calls_of

NAMED = """read_file, write_file, edit_file, list_files, search_files, run_command, send_mail, check_mailbox, reply_mail,
plan_steps, claim_step, note_step, verify_step, finish_step, block_step, add_evidence, add_card, link_cards,
publish, branch, merge, remember, search_memory, doc_find, doc_expand, doc_append, doc_update, doc_note,
doc_summarize, hand_over, ask_human, finish_task, fail_task, reserve"""


def test_every_tool_of_the_spec_is_there_with_a_schema_and_words() -> None:
    for name in NAMED.replace("\n", " ").split(","):
        schema = TOOLS[name.strip()].schema()
        assert schema["name"] == name.strip()
        assert len(schema["description"]) > 20
        assert schema["parameters"]["additionalProperties"] is False
    assert not set(TOOLS) & set(MEMBER_TOOLS)


def test_the_extractive_mind_asks_for_tools_that_there_are_with_arguments_that_they_take(crew: Crew) -> None:
    (crew.root / "knowledge/boats.md").write_text("# Boats\n\nThe oldest boat is made of oak.\n")
    crew.agent_file("{}\n", "bob")
    steps = ["{run: echo x}", "{ask: What is the oldest boat made of?}", "{write: {path: artifacts/a.md}}",
             "{mail: {to: [bob], subject: s, body: b}}", "{wait: {seconds: 0}}"]  # fmt: skip
    crew.drop(f"---\nsteps: [{', '.join(steps)}]\n---\nx\n")
    crew.drop("What is the oldest boat made of?\n", "plan.md")
    crew.drop("---\nsteps: [{run: exit 1}]\n---\nx\n", "fails.md")
    crew.write("From: human@hive\n\nWhat is the oldest boat made of?\n")
    agent = crew.start()
    until_idle(agent)
    acted = [call for folder in crew.root.glob("tasks/*/*") for call in calls_of(folder)]
    for action in acted:
        TOOLS[action["tool"]].arguments.model_validate(action["arguments"])
    known = {
        "plan_steps",
        "run_command",
        "add_card",
        "write_file",
        "send_mail",
        "wait",
        "finish_step",
        "finish_task",
        "fail_task",
    }
    assert {action["tool"] for action in acted} == known


def test_the_extractive_mind_names_no_tool_that_there_is_not() -> None:
    named = set()
    for path in Path(extractive.__file__).parent.glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "ToolCall":
                assert isinstance(call.args[0], ast.Constant)
                named.add(call.args[0].value)
    assert named
    assert named <= set(TOOLS)


def test_the_tags_of_a_card_stand_in_the_graph(crew: Crew) -> None:
    assert "result" in hands(crew)("add_card", kind="note", text="The keel is of oak.", tags=["boats"])
    assert '"boats"' in (crew.root / "tasks/active/t/graph.jsonl").read_text()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"toolset": ["painter"]}, "toolsets: coder"),
        ({"tools": ["paint"]}, "tools: "),
        ({"tools": ["claim_task"]}, "tools: "),
    ],
)
def test_a_name_under_tools_that_cannot_be_given_is_refused_with_those_that_can(
    given: dict[str, Any], told: str
) -> None:
    with pytest.raises(ToolProblem, match=told):
        allowed_tools(AgentConfig(**given))
    assert len(allowed_tools(AgentConfig(toolset=["coder"]))) <= 16
