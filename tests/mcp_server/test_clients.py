from __future__ import annotations

import asyncio
import json

import pytest
from mcp.shared.exceptions import MCPError

from hivemind.tokens import TokenCounter
from tests.mcp_server.conftest import run
from tests.messages import calls_of


def test_two_clients_of_one_hive_mail_each_other(hive):
    async def scenario():
        async with hive.joined("claude") as claude, hive.joined("codex") as codex:
            sent = await claude.ask("send_mail", to=["codex"], subject="A question", body="Is the keel on?")
            assert sent["delivered"] == ["codex"]
            [heard] = (await codex.ask("check_mailbox", unread=True))["messages"]
            assert (heard["from"], heard["subject"]) == ("claude", "A question")
            assert (await codex.read("hive://inbox"))[0]["id"] == heard["id"]
            message = await codex.ask("read_mail", id=heard["id"])
            assert (message["body"].strip(), message["origin"]) == ("Is the keel on?", "agent")
            assert (await codex.ask("check_mailbox", unread=True))["messages"] == []
            await codex.ask("reply_mail", id=heard["id"], body="It is.")
            [answer] = (await claude.ask("check_mailbox"))["messages"]
            assert (answer["from"], answer["subject"]) == ("codex", "Re: A question")

    run(scenario)
    assert hive.lives("claude") == hive.lives("codex") == ["started", "exited"]


def test_of_two_clients_that_race_for_a_lease_one_wins_and_the_other_is_told_who(hive):
    hive.run("task", "add", "--id", "boat", "Build a boat")

    async def scenario():
        async with hive.joined("claude") as claude, hive.joined("codex") as codex:
            await claude.ask("claim_task", task="boat")
            await claude.ask("plan_steps", steps=[{"title": f"part {n}"} for n in range(1, 9)])
            winners = set()
            for number in range(1, 9):
                step = f"boat.s{number}"
                results = await asyncio.gather(
                    *(one.client.call_tool("claim_step", {"step": step}) for one in (claude, codex))
                )
                told = [json.loads(result.content[0].text) for result in results]
                won = [one for one, result in zip(told, results, strict=True) if not result.is_error]
                [lost] = [one for one, result in zip(told, results, strict=True) if result.is_error]
                assert len(won) == 1
                winners.add(won[0]["holder"])
                assert lost["code"] == "STEP_LEASE_HELD"
                assert lost["holder"] == won[0]["holder"]
                assert lost["suggestions"][-1]["tool"] == "send_mail"
            assert winners <= {"claude", "codex"}
            loser = claude if won[0]["holder"] == "codex" else codex
            assert (await loser.refused("finish_step", step=step))["code"] in ("STEP_LEASE_HELD", "REFUSED")
            await loser.ask("send_mail", **lost["suggestions"][-1]["arguments"])

    run(scenario)


def test_over_http_two_clients_mail_each_other_and_race_for_a_lease(hive):
    hive.run("task", "add", "--id", "boat", "Build a boat")

    async def scenario():
        async with hive.over_http("claude") as claude, hive.over_http("codex") as codex:
            await claude.ask("claim_task", task="boat")
            await claude.ask("plan_steps", steps=[{"title": "The keel"}])
            claim = {"step": "boat.s1"}
            results = await asyncio.gather(*(one.client.call_tool("claim_step", claim) for one in (claude, codex)))
            assert sorted(result.is_error for result in results) == [False, True]
            winner, loser = (claude, codex) if results[1].is_error else (codex, claude)
            name = "claude" if winner is claude else "codex"
            lost = json.loads(next(result for result in results if result.is_error).content[0].text)
            assert (lost["code"], lost["holder"]) == ("STEP_LEASE_HELD", name)
            await loser.ask("send_mail", to=[name], subject="May I?")
            [asked] = (await winner.ask("check_mailbox"))["messages"]
            await winner.ask("reply_mail", id=asked["id"], body="No.")
            assert (await loser.ask("check_mailbox"))["messages"][0]["subject"] == "Re: May I?"

    run(scenario)
    assert hive.lives("claude") == hive.lives("codex") == ["started", "exited"]


def test_a_client_works_on_a_task_from_the_claim_to_the_result(hive):
    hive.run("task", "add", "--id", "boat", "Build a boat")
    hive.run("task", "add", "--id", "oars", "--assignee", "codex", "Make oars")

    async def scenario():
        async with hive.member("claude") as claude:
            waiting = (await claude.ask("list_tasks"))["tasks"]
            assert [one["task"] for one in waiting] == ["boat", "oars"]
            assert "is for codex" in (await claude.refused("claim_task", task="oars"))["message"]
            assert (await claude.refused("claim_task", task="yacht"))["message"].startswith(
                "yacht: there is no such task"
            )
            task = await claude.ask("claim_task")
            assert (task["task"], task["maker"]) == ("boat", "human")
            assert "no task for you" in (await claude.refused("claim_task"))["message"]
            assert (await claude.ask("list_tasks", state="mine"))["tasks"][0]["task"] == "boat"
            await claude.ask("plan_steps", steps=[{"title": "The keel"}, {"title": "The mast"}])
            where = (await claude.ask("resume"))["capsule"]["where"]
            assert where["step_focus"]["title"] == "The keel"
            await claude.ask("add_card", kind="note", text="The keel is of oak.")
            receipt = {"kind": "CMD", "text": "make keel", "exit_status": 0}  # of its own making
            assert "evidence" in (await claude.refused("finish_step", evidence=[receipt]))["message"]
            assert (await claude.ask("finish_step"))["status"] == "done"
            assert "not done yet" in (await claude.refused("finish_task"))["message"]
            await claude.ask("finish_step")
            done = await claude.ask("finish_task", result="It floats.")
            assert done["state"] == "done"

    run(scenario)
    result = (hive.root / "tasks/done/boat/result.md").read_text()
    assert "It floats." in result
    assert "The keel is of oak." in result
    tools = [call["tool"] for call in calls_of(hive.root / "tasks/done/boat")]
    assert "plan_steps" in tools
    assert tools[-1] == "finish_task"


def test_only_tools_of_its_profile_are_proposed_to_a_client(hive):
    hive.run("task", "add", "--id", "boat", "Build a boat")

    async def scenario():
        async with hive.member("claude") as claude:
            tools = {tool.name for tool in (await claude.client.list_tools()).tools}
            await claude.ask("claim_task")
            await claude.ask("plan_steps", steps=[{"title": "The keel"}])
            await claude.ask("add_card", kind="decision", text="Oak it is.")
            capsules = [(await claude.ask("resume"))["capsule"], await claude.read("hive://capsule")]
            for view in (await claude.ask("resume", view="smart"), await claude.read("hive://view/smart")):
                capsules.append(view["capsule"])
                assert [one["action"] for one in view["signals"] if "PUBLISHED" in one["code"]] == [None]
            for capsule in capsules:
                assert capsule["next"]["primary"]["tool"] == "finish_step"
                assert {one["tool"] for one in capsule["next"].values() if one is not None} <= tools

    run(scenario)


def test_what_is_claimed_is_there_again_when_the_client_comes_back(hive):
    hive.run("task", "add", "--id", "boat", "Build a boat")

    async def first():
        async with hive.member("claude") as claude:
            await claude.ask("claim_task")
            await claude.ask("plan_steps", steps=[{"title": "The keel"}])
            await claude.ask("claim_step", step="boat.s1")

    async def second():
        async with hive.member("claude") as claude:
            assert json.loads(hive.run("lease", "list", "--json")) == []
            assert (await claude.ask("resume"))["capsule"]["where"]["target"]["id"] == "boat"
            await claude.ask("finish_step")
            await claude.ask("finish_task", result="Done.")

    run(first)
    run(second)
    assert hive.lives("claude") == ["started", "exited"] * 2


def test_paths_that_one_client_has_reserved_are_refused_to_the_other_until_it_goes(hive):
    async def scenario():
        async with hive.member("codex") as codex:
            async with hive.member("claude") as claude:
                await claude.ask("reserve", paths=["knowledge/boats/**"])
                lost = await codex.refused("reserve", paths=["knowledge/*/keel.md"])
                assert (lost["code"], lost["holder"]) == ("RESERVATION_HELD", "claude")
                assert lost["suggestions"][0]["tool"] == "send_mail"
            await codex.ask("reserve", paths=["knowledge/*/keel.md"])

    run(scenario)


def test_resources_are_rom_inbox_capsule_and_views(hive):
    async def scenario():
        async with hive.member("claude") as claude:
            listed = [one.uri for one in (await claude.client.list_resources()).resources]
            assert {"hive://rom/hive.md", "hive://inbox", "hive://capsule", "hive://view/smart"} <= set(listed)
            for uri in listed:
                assert await claude.read(uri) is not None
            assert (await claude.read("hive://capsule"))["where"]["lane"] == "agent/claude"
            for wrong in ("hive://rom/../hive.yaml", "hive://secrets", "file:///etc/passwd"):
                with pytest.raises(MCPError, match=r"no |does not exist"):
                    await claude.read(wrong)

    run(scenario)


def test_skills_are_prompts(hive):
    folder = hive.root / "skills/rig"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: rig\ndescription: How to rig.\n---\nFirst the sail.\n")

    async def scenario():
        async with hive.member("claude") as claude:
            (prompt,) = (await claude.client.list_prompts()).prompts
            assert (prompt.name, prompt.description) == ("rig", "How to rig.")
            (message,) = (await claude.client.get_prompt("rig")).messages
            assert message.content.text == "First the sail."
            with pytest.raises(MCPError, match="there is no skill 'tar'"):
                await claude.client.get_prompt("tar")

    run(scenario)


def test_the_default_profile_costs_less_than_3000_tokens_of_schemas(hive):
    async def scenario():
        count = TokenCounter()
        sizes = {}
        for profile in ("core", "daily", "full"):
            async with hive.member("claude", profile) as claude:
                tools = (await claude.client.list_tools()).tools
                shown = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
                sizes[profile] = count(json.dumps(shown))
        assert sizes["core"] < 3000
        assert sizes["core"] < sizes["daily"] < sizes["full"]

    run(scenario)


def test_a_refusal_names_tools_that_the_client_has_and_what_is_for_a_person(hive):
    """It named commands of the command line, and Python."""
    hive.run("task", "add", "--id", "boat", "Build a boat")

    async def scenario():
        async with hive.member("claude") as claude:
            unknown = await claude.refused("claim_task", task="yacht")
            assert unknown["message"] == "yacht: there is no such task; see: list_tasks"
            assert unknown["suggestions"] == [{"tool": "list_tasks", "arguments": {}}]
            lost = await claude.refused("read_mail", id="none")
            assert lost["message"].endswith("; check_mailbox names them")
            nowhere = await claude.refused("claim_step", step="yacht.s1")
            assert nowhere["message"] == "step 'yacht.s1' does not exist; resume()"
            assert nowhere["suggestions"] == [{"tool": "resume", "arguments": {}}]
            command = await claude.refused("run_command", command=["make"])
            assert command["message"] == (
                "this profile does not include the tool 'run_command'; for a person: hivemind mcp --profile full includes it"
            )
            await claude.ask("claim_task", task="boat")
            await claude.ask("plan_steps", steps=[{"title": "The keel"}])
            early = await claude.refused("finish_task")
            assert early["suggestions"] == [{"tool": "finish_step", "arguments": {}}]
            hive.run("lease", "claim", "boat.s1", "--agent", "human", "--force")
            taken = await claude.refused("finish_step")
            assert "hive." not in taken["message"]
            assert taken["message"].split("; ")[1].startswith('resume(step="boat.s1"), or send_mail(to=["human"], ')

    run(scenario)


def test_an_agents_file_narrows_the_tools(hive):
    (hive.root / "agents/claude.yaml").write_text("mind: mcp\ntools: [send_mail, check_mailbox, list_tasks]\n")

    async def scenario():
        async with hive.member("claude", "full") as claude:
            assert {tool.name for tool in (await claude.client.list_tools()).tools} == {
                "send_mail", "check_mailbox", "list_tasks",
            }  # fmt: skip
            assert "the tool 'claim_task' does not exist" in (await claude.refused("claim_task"))["message"]

    run(scenario)


def test_the_span_that_a_call_brings_in_its_meta_is_recorded_with_the_call(hive):
    span = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    async def scenario():
        async with hive.member("claude") as claude:
            await claude.client.call_tool("check_mailbox", {}, meta={"traceparent": span})
            hive.run("task", "add", "Look at it.", "--id", "look", "--assignee", "claude")
            await claude.ask("claim_task")
            await claude.client.call_tool("check_mailbox", {}, meta={"traceparent": span})

    run(scenario)
    log = json.loads((hive.root / ".hive/agents/claude/log.jsonl").read_text().splitlines()[1])
    assert log["calls"][0]["traceparent"] == span
    lines = (hive.root / "tasks/active/look/messages.jsonl").read_text().splitlines()
    assert span in [call.get("traceparent") for line in map(json.loads, lines) for call in line.get("calls", ())]
