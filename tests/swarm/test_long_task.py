"""Long tasks: 300 steps (120 in the sample) by rule, whoever dies, at one cost each turn; and a conversation of many epochs."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from hivemind import Hive
from hivemind.agent.agent import Agent
from hivemind.minds import ChatMessage, Thought, ToolCall, Turn
from hivemind.presence.identity import journal_start
from hivemind.reasoning import TaskGraph
from hivemind.taskrun.conversation_fold import LAST_TURNS
from hivemind.tasks import TaskState
from tests.agent.conftest import Mind, until_idle
from tests.messages import Record, lines_of, turns_of
from tests.sample import IS_WHOLE, sampled

STEPS = 300 if IS_WHOLE else 120
BUDGET = 8_000
QUESTION = "What do the engines weigh?"
ENGINES = "# Engines\n\n" + "\n\n".join(
    f"## Engine {number}\nThe engine number {number} weighs {number * 7} kilograms." for number in range(STEPS)
)
EARLY, LATE = range(STEPS // 4, STEPS // 4 + 40), range(STEPS - 40, STEPS)


def long_task(steps: int) -> str:
    """Questions, and every third step a command, in one task. Every tenth waits, and a turn that waited led to nothing."""
    rows = [f"  - {_step(number)}\n" for number in range(steps)]
    return f"---\ntitle: Weigh the engines\nmax_tokens: {BUDGET}\nsteps:\n{''.join(rows)}---\n{QUESTION}\n"


def _step(number: int) -> str:
    if number % 10 == 9:
        return "wait: 0.02s"
    if number % 3 == 2:
        return f"run: echo engine {number} was cleaned"
    return f"ask: What does engine number {number} weigh?"


def closed_by(turn: Record) -> list[str]:
    """The steps that a turn closed."""
    return [one["result"]["step"] for one in turn["calls"] if one["tool"] == "finish_step" and one.get("ok")]


def check_task(folder: Path, *, unsaid: int) -> None:
    """The promises for the folder of a finished task: each step stands in the conversation once, and each answer in the result.

    Of up to `unsaid` steps it does not say how they ended: their agent was killed between the deed and its message.
    """
    closed = [step for turn in turns_of(folder) for step in closed_by(turn)]
    assert len(closed) == len(set(closed)) >= STEPS - unsaid
    graph = TaskGraph(folder).graph
    assert len([node for node in graph.by_kind("subtask") if node.status == "closed"]) == STEPS
    result = (folder / "result.md").read_text()
    asked = [number for number in range(STEPS) if _step(number).startswith("ask")]
    assert all(f"> The engine number {number} weighs {number * 7} kilograms." in result for number in asked)


def swarm_with(hive: Any) -> None:
    hive.configure(durability="relaxed", settle_ms=0)
    (hive.root / "knowledge" / "boats.md").unlink()
    (hive.root / "knowledge" / "engines.md").write_text(ENGINES)
    hive.drop("long.md", long_task(STEPS))


@sampled
def test_hundreds_of_steps_in_a_swarm_that_is_killed_on_the_way(hive: Any) -> None:
    """Killed by us while it works, and again and again in the middle of a turn's record."""
    swarm_with(hive)
    up = hive.start("up", "--until-idle", HIVEMIND_CRASH_AT=f"messages.append.written:{STEPS // 3}")
    folder = hive.root / "tasks" / "active" / "long"
    hive.wait(lambda: len(turns_of(folder)) > STEPS // 10, "a tenth of the task")
    owner = turns_of(folder)[0]["agent"]
    pid = hive.pid_of(owner)
    with suppress(
        ProcessLookupError
    ):  # it may have come to its crash point, before or after its process was looked for
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
    assert up.wait(600) == 0, hive.logs()
    exits = [event for event in hive.events() if event["kind"] == "agent.exited" and event["agent_id"] == owner]
    assert len(exits) >= 3
    check_task(hive.root / "tasks" / "done" / "long", unsaid=len(exits))
    done = [event["step_id"] for event in hive.events() if event["kind"] == "step.done"]
    assert len(done) == len(set(done)) == STEPS


class Counted:
    """A mind, and how often it was asked."""

    def __init__(self, mind: Any) -> None:
        self.mind = mind
        self.asked = 0

    def think(self, turn: Any, tools: Any) -> Any:
        self.asked += 1
        return self.mind.think(turn, tools)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.mind, name)


def an_agent(root: Path, steps: int, tools: str = "") -> Agent:
    """One agent in this process, with the long task before it and a bound for what a task may cost."""
    Hive.init(root)
    (root / "hive.yaml").write_text("durability: relaxed\nsettle_ms: 0\n")
    for path in [*(root / "agents").glob("*.yaml"), *(root / "knowledge").rglob("*.md")]:
        path.unlink()
    (root / "agents" / "analyst.yaml").write_text(f"budget: {{task: {{tokens: 1000000000}}}}\n{tools}")
    (root / "knowledge" / "engines.md").write_text(ENGINES)
    (root / "tasks" / "inbox" / "long.md").write_text(long_task(steps))
    hive = Hive.open(root)
    return Agent(hive, "analyst", journal_start(hive.journal, "analyst", os.getpid()))


def calls_made(work: Callable[[], object]) -> int:
    """How many functions a piece of work calls, in Python and below: the same on a slow machine."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def bytes_read() -> int:
    """What this process has read from files so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


@sampled
def test_a_turn_costs_the_same_at_the_end(tmp_path: Path) -> None:
    with closing(an_agent(tmp_path / "hive", STEPS)) as agent:
        agent.mind = mind = Counted(agent.mind)
        agent.scheduler.active_tasks.resume()
        early, late = (0, 0), (0, 0)
        while agent.hive.tasks.listing.counts()[TaskState.DONE] == 0:
            turn, before = mind.asked, bytes_read()
            calls = calls_made(agent.cycle) if turn in EARLY or turn in LATE else (agent.cycle() and 0)
            if mind.asked == turn:  # it may have nothing to do: a step waits
                continue
            cost = calls, bytes_read() - before
            early = (early[0] + cost[0], early[1] + cost[1]) if turn in EARLY else early
            late = (late[0] + cost[0], late[1] + cost[1]) if turn in LATE else late
        assert late[0] <= 1.2 * early[0]
        assert late[1] <= 1.2 * early[1]
        check_task(agent.hive.layout.done / "long", unsaid=0)


def test_a_conversation_of_many_epochs_keeps_to_its_tokens_and_loses_neither_task_nor_plan(tmp_path: Path) -> None:
    """A mind that reads is sent a request that begins with the one before it, until that is too long and is begun anew: with the
    task, the plan, and the last turns."""
    steps = 60
    sent: list[list[ChatMessage]] = []

    def think(turn: Turn) -> Thought:
        sent.append(list(turn.messages))
        todo = turn.focus.todo
        if not todo:
            return Thought("The end.", (ToolCall("finish_task", {"result": "Weighed."}),))
        note = ToolCall("note_step", {"text": f"The engine of {todo['id']} was weighed. " + "It is a heavy one. " * 20})
        return Thought(f"Weighing for {todo['id']}.", (note, ToolCall("finish_step")))

    with closing(an_agent(tmp_path / "hive", 0, tools="tools: [note_step, finish_step, finish_task]\n")) as agent:
        rows = "".join(f"  - Weigh engine {number}\n" for number in range(steps))
        (agent.hive.layout.inbox / "long.md").write_text(f"---\nmax_tokens: {BUDGET}\nsteps:\n{rows}---\n{QUESTION}\n")
        agent.mind = Mind(think)
        agent.scheduler.active_tasks.resume()
        until_idle(agent)
        folder = agent.hive.layout.done / "long"
        epochs = [line for line in lines_of(folder) if "opening" in line]
        assert len(epochs) > 3
        assert {line["cause"] for line in epochs[1:]} == {"full"}
        assert [step for turn in turns_of(folder) for step in closed_by(turn)] == [
            f"long.s{n + 1}" for n in range(steps)
        ]
        schema_tokens = agent.hive.count_tokens(json.dumps([tool.schema() for tool in agent.tools.values()]))
        for at, messages in enumerate(sent):
            assert schema_tokens + sum(agent.hive.count_tokens(one.text) for one in messages) <= BUDGET
            assert QUESTION in messages[1].text
            told = "\n".join(one.text for one in messages)
            assert all(f"Weighing for long.s{number + 1}." in told for number in range(max(0, at - LAST_TURNS), at))
            if at and len(messages) > 2:
                assert messages[: len(sent[at - 1])] == sent[at - 1]
            if at < steps and len(messages) == 2:
                assert (
                    f"{at}. [done] " in messages[1].text
                    or f"{at} of {steps} steps are done" in messages[1].text
                    or at == 0
                )
                assert f"{at + 1}. [open] Weigh engine {at} " in messages[1].text


def test_a_mind_that_comes_to_no_end_is_a_persons_to_judge(tmp_path: Path) -> None:
    with closing(an_agent(tmp_path / "hive", 0, tools="max_turns: 3\n")) as agent:
        (agent.hive.layout.inbox / "long.md").write_text(QUESTION)
        agent.mind = mind = Mind(lambda _: Thought("", (ToolCall("note_step", {"text": f"Look {mind.asked}."}),)))
        agent.scheduler.active_tasks.resume()
        until_idle(agent)
        assert mind.asked == 3
        parked = agent.hive.tasks.get("long").parked
        assert parked is not None
        assert "3 turns were taken" in parked.reason
        assert [message.sender for message in agent.hive.mail.list("human")] == ["analyst"]
