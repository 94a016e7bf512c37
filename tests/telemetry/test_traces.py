"""A swarm whose tasks are traces: what a collector gets of it, decoded from OTLP."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest

from hivemind.layout import Layout
from hivemind.presence.identity import holder_pid
from tests.agent.test_program import FINISH, PROFILE
from tests.coding.fake_agent import OWN_SPAN
from tests.minds.server import Request, model_server
from tests.swarm.conftest import Swarm
from tests.swarm.test_divided_work import BOAT, MIND
from tests.telemetry.collector import Collector, collector
from tests.waiting import until

FAST = {"OTEL_BSP_SCHEDULE_DELAY": "50"}
OUTER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SECRET = "the ferry leaves at nine"


def play(request: Request) -> None:
    said = json.dumps(request.messages)
    if "I plan." not in said:
        request.answer("I plan.", [("plan_steps", {"steps": [{"title": "Think about it"}]})])
    elif "I think." not in said:
        request.answer("I think.", [("read_file", {"path": "nowhere.md"}), ("finish_step", {})])
    else:
        request.answer("I end.", [("finish_task", {"result": SECRET})])


def only(agents: dict[str, dict], hive: Swarm) -> None:
    """Replace the hive's agents."""
    for path in (hive.root / "agents").glob("*.yaml"):
        path.unlink()
    for name, fields in agents.items():
        (hive.root / "agents" / f"{name}.yaml").write_text(json.dumps(fields))


def divided(hive: Swarm) -> None:
    """A lead with three workers and a reviewer, minds by rule."""
    (hive.root / "mind.py").write_text(MIND)
    roles = {"lead": "lead", "ann": "worker", "ben": "worker", "cas": "worker", "rex": "critic"}
    only(
        {
            name: {"role": role, "mind": {"command": [sys.executable, "mind.py", role, name]}}
            for name, role in roles.items()
        },
        hive,
    )
    hive.drop("boat.md", BOAT)


@pytest.mark.usefixtures("language_models")
def test_a_task_of_a_model_is_a_trace_by_the_conventions_within_the_trace_of_who_dropped_it(
    hive: Swarm, receiver: Collector
) -> None:
    with model_server(play) as server:
        mind = {"openai-compatible": {"url": server.url, "model": "played", "key_env": "PLAYED_KEY"}}
        only({"ada": {"mind": mind, "prices": {"in": 1, "out": 2}}}, hive)
        hive.configure(workspace="hive", telemetry={"endpoint": receiver.url})
        hive.drop("boats.md", f"---\ntraceparent: {OUTER}\n---\nWhen does {SECRET[4:9]} leave?\n")
        hive.run("up", "--until-idle", PLAYED_KEY="k")
    [task] = receiver.named("invoke_agent ada")
    assert (task.trace, task.parent) == (OUTER[3:35], OUTER[36:52])
    assert task.attributes["gen_ai.conversation.id"] == "boats"
    assert not task.is_error
    chats = receiver.named("chat played")
    assert len(chats) == 3
    assert {chat.kind for chat in chats} == {"SPAN_KIND_CLIENT"}
    assert {chat.attributes["gen_ai.request.model"] for chat in chats} == {"played"}
    assert (
        sum(chat.attributes["gen_ai.usage.input_tokens"] for chat in chats)
        == task.attributes["gen_ai.usage.input_tokens"]
    )
    calls = [span for span in receiver.spans.values() if span.name.startswith("execute_tool")]
    assert {span.attributes["gen_ai.tool.name"] for span in calls} == {
        "plan_steps", "read_file", "finish_step", "finish_task",
    }  # fmt: skip
    [failed] = receiver.named("execute_tool read_file")
    assert (failed.is_error, failed.events, failed.attributes["error.type"]) == (True, ["exception"], "tool_error")
    assert {span.parent for span in (*chats, *calls)} == {task.id}
    assert all(task.start <= span.start <= span.end for span in (*chats, *calls))
    assert {span.attributes["gen_ai.agent.name"] for span in receiver.sent} == {"ada"}
    assert receiver.resources[0]["service.name"] == "hivemind"
    assert receiver.resources[0]["hivemind.hive"] == "hive"
    assert SECRET not in str(receiver.sent)


def test_a_task_with_parts_is_a_workflow_whose_agents_spans_are_joined(hive: Swarm, receiver: Collector) -> None:
    divided(hive)
    hive.run("up", "--until-idle", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
    assert len({span.trace for span in receiver.sent}) == 1
    [workflow] = receiver.named("invoke_workflow lead")
    [lead] = receiver.named("invoke_agent lead")
    assert (workflow.parent, lead.parent) == ("", workflow.id)
    parts = [span for name in ("ann", "ben", "cas") for span in receiver.named(f"invoke_agent {name}")]
    assert sum(span.parent == lead.id for span in parts) == 3
    assert {span.parent for span in receiver.named("execute_tool delegate")} == {lead.id}
    assert receiver.named(f"chat {os.path.basename(sys.executable)}")  # the mind's program, without its folder
    assert len(receiver.sent) == len(receiver.spans)
    letters = [path.read_text() for path in (hive.root / "mailboxes/ann/cur").iterdir()]
    assert {
        line.split("-")[1] for text in letters for line in text.splitlines() if line.startswith("Traceparent:")
    } == {lead.trace}


def test_content_is_sent_if_the_hive_says_so(hive: Swarm, receiver: Collector) -> None:
    hive.configure(telemetry={"endpoint": receiver.url, "content": True})
    hive.drop("boats.md", "What moves a rowing boat?\n")
    hive.run("up", "--until-idle")
    [task] = [span for span in receiver.spans.values() if span.name.startswith("invoke_agent") and not span.parent]
    assert "What moves a rowing boat?" in task.attributes["gen_ai.input.messages"]
    [answer] = json.loads(task.attributes["gen_ai.output.messages"])
    assert "oars" in answer["parts"][0]["content"]
    assert answer["finish_reason"] == "stop"
    [check] = receiver.named("execute_tool check_citations")  # by a colleague, by rule
    assert check.trace == task.trace
    assert receiver.spans[check.parent].parent == task.id


@pytest.mark.usefixtures("language_models")
def test_the_message_of_a_model_has_its_calls_and_the_reason_why_it_ends(hive: Swarm, receiver: Collector) -> None:
    with model_server(play) as server:
        only({"ada": {"mind": {"openai-compatible": {"url": server.url, "model": "played", "key_env": "KEY"}}}}, hive)
        hive.configure(telemetry={"endpoint": receiver.url, "content": True})
        hive.drop("boats.md", "When?\n")
        hive.run("up", "--until-idle", KEY="k")
    [message] = json.loads(receiver.named("chat played")[0].attributes["gen_ai.output.messages"])
    text, call = message["parts"]
    assert (message["finish_reason"], text["content"], call["type"], call["name"]) == (
        "tool_call", "I plan.", "tool_call", "plan_steps",
    )  # fmt: skip


PATIENT = """
import json, sys, time
from pathlib import Path

said = sys.stdin.read()
calls = [("add_card", {"kind": "note", "text": "Seen."}), ("read_file", {"path": "nowhere.md"})]
if "Seen." in said:
    Path("waiting").touch()
    while not Path("go").exists():
        time.sleep(0.02)
    calls = [("finish_step", {}), ("finish_task", {"result": "It is done."})]
print(json.dumps({"calls": [{"tool": tool, "arguments": arguments} for tool, arguments in calls]}))
"""


def test_a_killed_exporter_and_a_killed_agent_leave_no_span_out_and_none_under_two_ids(
    hive: Swarm, receiver: Collector
) -> None:
    (hive.root / "mind.py").write_text(PATIENT)
    only({"ada": {"mind": {"command": [sys.executable, "mind.py"]}}}, hive)
    hive.drop("boats.md", "---\nsteps: [{title: Look}]\n---\nLook.\n")
    hive.start("up", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url, **FAST)
    until(lambda: (hive.root / "waiting").exists() and receiver.named("execute_tool read_file"))
    for name in ("telemetry", "ada"):
        os.kill(until(lambda name=name: holder_pid(Layout.at(hive.root), name)), signal.SIGKILL)
    (hive.root / "go").touch()
    until(lambda: receiver.named("invoke_agent ada"))
    assert hive.task("boats") == "done"
    [task] = [span for span in receiver.spans.values() if not span.parent]
    calls = [span for span in receiver.spans.values() if span.name.startswith("execute_tool")]
    recorded = [
        call["id"]
        for line in (hive.root / "tasks/done/boats/messages.jsonl").read_text().splitlines()
        for call in json.loads(line).get("calls", ())
    ]
    assert sorted(span.attributes["gen_ai.tool.call.id"] for span in calls) == sorted(recorded)
    assert {span.parent for span in calls} == {task.id}


def test_a_span_that_is_sent_again_after_a_kill_has_the_same_id(hive: Swarm, receiver: Collector) -> None:
    hive.drop("boats.md", "What moves a rowing boat?\n")
    hive.run("up", "--until-idle", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url, HIVEMIND_CRASH_AT="telemetry.sent", **FAST)
    assert receiver.sent
    hive.run("up", "--until-idle", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
    assert len(receiver.sent) > len(receiver.spans)
    calls = [
        (span.attributes["gen_ai.conversation.id"], span.attributes["gen_ai.tool.call.id"])
        for span in receiver.spans.values()
        if span.name.startswith("execute_tool")
    ]
    assert len(calls) == len(set(calls))
    assert len([span for span in receiver.spans.values() if not span.parent]) == 1


def test_a_dead_collector_is_named_once_costs_no_task_and_gets_all_of_it_when_it_lives(hive: Swarm) -> None:
    with collector() as first:
        port = first.server_port
    hive.start("up", OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}", **FAST)
    hive.drop("boats.md", "What moves a rowing boat?\n")
    hive.drop("sails.md", "What does a sailing boat need?\n")
    until(lambda: hive.task("boats") == hive.task("sails") == "done")
    until(lambda: "does not take them" in hive.run("status"))
    log = hive.root / ".hive/logs/telemetry.log"
    assert log.read_text().count("traces wait") == 1
    with collector(port) as again:
        until(
            lambda: (
                {span.attributes["gen_ai.conversation.id"] for span in again.sent if not span.parent}
                >= {"boats", "sails"}
            )
        )
    assert log.read_text().count("traces wait") == 1


def test_a_collector_that_never_answers_delays_no_task_and_no_end(hive: Swarm, receiver: Collector) -> None:
    receiver.may_answer.clear()
    hive.drop("boats.md", "What moves a rowing boat?\n")
    hive.run("up", "--until-idle", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url, **FAST)
    assert hive.task("boats") == "done"
    receiver.may_answer.set()
    hive.run("up", "--until-idle", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
    assert [span for span in receiver.spans.values() if not span.parent]


def test_a_coding_agents_calls_are_within_its_own_span_in_the_trace_of_its_task(
    hive: Swarm, receiver: Collector
) -> None:
    (hive.root / "agents/profiles").mkdir(parents=True)
    (hive.root / "agents/profiles/fake.yaml").write_text(PROFILE)
    only({"ada": {"mind": {"agent": "fake"}, "sandbox": "none"}}, hive)
    hive.drop("boats.md", f"Write a file.\n!write notes.txt five words\n!call check_mailbox {{}}\n{FINISH}\n")
    hive.run("up", "--until-idle", FAKE_KEY="its-own-key", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
    [task] = receiver.named("invoke_agent ada")
    [run] = receiver.named("invoke_agent fake")
    [own_call] = receiver.named("execute_tool write")
    calls = receiver.named("execute_tool check_mailbox") + receiver.named("execute_tool finish_task")
    assert (run.parent, own_call.parent) == (task.id, task.id)
    assert [call.parent for call in calls] == [OWN_SPAN, OWN_SPAN]
    assert {span.trace for span in receiver.sent} == {task.trace}


ASKING = """
import json, sys

said, name = sys.stdin.read(), sys.argv[1]
letter = json.loads(said)["turn"]["about"]
question = {"to": ["bob"], "subject": "Boats", "body": "How many boats?", "expects_reply": True}
if name == "bob":
    calls = [("reply_mail", {"id": letter["id"], "body": "Two."})]
else:
    calls = [("send_mail", question), ("finish_step", {}), ("finish_task", {"result": "Asked."})]
print(json.dumps({"calls": [{"tool": tool, "arguments": arguments} for tool, arguments in calls]}))
"""


def test_a_colleagues_turn_about_a_letter_is_in_the_trace_of_the_task_that_wrote_it(
    hive: Swarm, receiver: Collector
) -> None:
    (hive.root / "mind.py").write_text(ASKING)
    only({name: {"mind": {"command": [sys.executable, "mind.py", name]}} for name in ("ada", "bob")}, hive)
    hive.drop("boats.md", "---\nassignee: ada\nsteps: [{title: Ask}]\n---\nAsk bob.\n")
    hive.run("up", "--until-idle", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
    [task], [turn] = receiver.named("invoke_agent ada"), receiver.named("invoke_agent bob")
    assert (turn.trace, turn.parent) == (task.trace, task.id)
    [reply] = receiver.named("execute_tool reply_mail")
    assert (reply.parent, reply.attributes["gen_ai.agent.name"]) == (turn.id, "bob")
    assert turn.start <= reply.start <= reply.end <= turn.end
