"""An editor and a real swarm."""

from __future__ import annotations

import asyncio
import json
import sys

ASKS = "---\nsteps: [{title: Which boat?, wait: {human: 'Which boat do you mean?'}}]\n---\nTell of the boat\n"


def test_a_question_is_answered_with_its_sources_as_links(hive, editor):
    hive.start("up")
    zed = editor(hive.root).start()
    assert zed.ask("What does a sailing boat need?") == "end_turn"
    assert "> A sailing boat needs wind and has a keel that keeps it upright." in zed.said
    assert f"<{(hive.root / 'knowledge/boats.md').as_uri()}#L10:10>" in zed.said
    assert zed.plan() == [("What does a sailing boat need?", "completed")]
    calls = [update for update in zed.updates if update["sessionUpdate"] == "tool_call"]
    assert {"plan_steps", "finish_step", "finish_task"} <= {call["title"].split()[0] for call in calls}
    assert all(call["status"] == "completed" for call in calls)
    [session] = zed.call("session/list", cwd=str(hive.root))["sessions"]
    assert (session["sessionId"], session["title"]) == (zed.session, "What does a sailing boat need?")
    zed.close()


def test_a_question_of_the_task_ends_the_turn_and_the_next_prompt_answers_it(hive, editor):
    hive.start("up")
    zed = editor(hive.root).start()
    assert zed.ask(ASKS) == "end_turn"
    assert zed.said.endswith("Which boat do you mean?\n\nYour next message answers it.\n\n")
    assert zed.ask("The sailing boat.") == "end_turn"
    assert hive.task("tell-of-the-boat") == "done"
    assert "The sailing boat." in hive.result("tell-of-the-boat")


def test_without_a_swarm_it_says_so_and_how_to_start_one_and_the_work_appears_once_it_runs(hive, editor):
    zed = editor(hive.root).start()
    turn = zed.prompt("What does a sailing boat need?")
    zed.until(lambda: "No swarm is running" in zed.said)
    assert f"`hivemind --hive {hive.root} up`" in zed.said
    hive.start("up")
    assert zed.stop_reason(turn) == "end_turn"
    assert "a keel that keeps it upright" in zed.said
    assert zed.said.count("No swarm is running") == 1


def test_a_stopped_turn_cancels_its_task_and_the_session_goes_on(hive, editor):
    hive.start("up")
    zed = editor(hive.root).start()
    turn = zed.prompt("---\nsteps: [{title: Rest, wait: {seconds: 600}}]\n---\nRest a while\n")
    zed.until(lambda: zed.plan() if "plan" in zed.kinds() else False)
    zed.send(method="session/cancel", params={"sessionId": zed.session})
    assert zed.stop_reason(turn) == "cancelled"
    assert hive.task("rest-a-while") == "failed"
    assert "Stopped: the task is cancelled." in zed.said
    assert zed.ask("What does a sailing boat need?") == "end_turn"
    task = (hive.root / "tasks/done/what-does-a-sailing-boat-need/task.md").read_text()
    assert "> Earlier in this conversation: `tasks/failed/rest-a-while/error.md`" in task


def test_a_task_outlives_its_editor_and_another_loads_it(hive, editor):
    hive.start("up")
    killed = editor(hive.root).start()
    killed.ask(ASKS)
    killed.kill()
    zed = editor(hive.root).load(killed.session)
    assert zed.texts("user_message_chunk") == "Tell of the boat\n\n"
    zed.until(lambda: "Your next message answers it." in zed.said)
    assert zed.ask("The rowing boat.") == "end_turn"
    assert "The rowing boat." in hive.result("tell-of-the-boat")
    again = editor(hive.root).load(killed.session)
    assert again.said.endswith(hive.result("tell-of-the-boat").rstrip() + "\n\n")
    silent = editor(hive.root).load(killed.session, "session/resume")
    assert silent.updates == []


def test_two_editors_show_the_same_task_and_each_others_words(hive, editor):
    hive.start("up")
    zed = editor(hive.root).start()
    turn = zed.prompt("---\nsteps: [{title: Rest, wait: {seconds: 600}}]\n---\nRest a while\n")
    zed.until(lambda: "plan" in zed.kinds())
    neovim = editor(hive.root).load(zed.session)
    other_turn = neovim.prompt("Take your time.")
    zed.until(lambda: "Take your time." in zed.texts("user_message_chunk"))
    hive.run("task", "cancel", "rest-a-while")
    assert (zed.stop_reason(turn), neovim.stop_reason(other_turn)) == ("end_turn", "end_turn")
    assert "Take your time." not in neovim.texts("user_message_chunk")
    assert "`hivemind task retry rest-a-while` tries it again" in zed.said


class _Client:
    """The package's own client."""

    def __init__(self) -> None:
        self.text = ""

    async def session_update(self, session_id: str, update, **_) -> None:
        from acp import schema

        if isinstance(update, schema.AgentMessageChunk) and isinstance(update.content, schema.TextContentBlock):
            self.text += update.content.text

    def on_connect(self, _) -> None:
        pass


def test_the_packages_own_client_gets_an_answer(hive):
    import acp  # late, as in conftest.py

    hive.start("up")

    async def run() -> str:
        client, words = _Client(), ["-m", "hivemind", "--hive", str(hive.root), "acp"]
        async with acp.spawn_agent_process(client, sys.executable, *words) as (agent, _):
            greeting = await agent.initialize(protocol_version=1)
            assert greeting.protocol_version == acp.PROTOCOL_VERSION
            session = await agent.new_session(cwd=str(hive.root), mcp_servers=[])
            prompt = [acp.text_block("What does a sailing boat need?")]
            response = await agent.prompt(session_id=session.session_id, prompt=prompt)
            assert response.stop_reason == "end_turn"
        return client.text

    assert "a keel that keeps it upright" in asyncio.run(run())


def test_a_retried_task_stays_in_its_session(hive, editor):
    hive.start("up")
    zed = editor(hive.root).start()
    zed.ask("What does a sailing boat need?")
    hive.run("task", "retry", "what-does-a-sailing-boat-need")
    hive.wait(lambda: hive.task("what-does-a-sailing-boat-need") == "done")
    record = json.loads((hive.root / "tasks/done/what-does-a-sailing-boat-need/task.json").read_text())
    assert record["kept"]["session"]["id"] == zed.session
