"""Budgets are kept whatever a mind asks and whatever it costs; what is used up is counted once."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind.agent.spending import Budget
from hivemind.config import BudgetConfig, TokenBudget
from hivemind.layout import Layout
from hivemind.minds import MindUnavailable, Thought, ToolCall, Usage
from hivemind.swarm.overview import agents_now
from hivemind.taskrun.report import Account
from hivemind.taskrun.transcript import Transcript
from hivemind.taskrun.waits import Parking
from tests.agent.conftest import Crew, Mind, until_idle
from tests.messages import lines_of

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
NEXT = datetime(2026, 11, 23, 0, 0, 1, tzinfo=UTC)


def budget_of(root: Path, name: str = "ada", **limits: dict[str, float]) -> Budget:
    """The budget of one agent of a hive, whose agents together have no other bound."""
    layout = Layout(root)
    for folder in (layout.agent_state(name), layout.locks):
        folder.mkdir(parents=True, exist_ok=True)
    return Budget(BudgetConfig.model_validate(limits), layout, name, TokenBudget())


requests = st.lists(
    st.tuples(
        st.integers(0, 400),  # what it may use at most
        st.integers(0, 100),  # the share of it that it uses, in percent
        st.sampled_from(["ends", "is killed", "overlaps"]),
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(requests, st.integers(0, 1500), st.floats(0, 1.5))
def test_no_sequence_of_requests_passes_the_budget_of_the_day(asked, tokens, money):
    """Each request uses at most what was held for it; some overlap, some processes are killed in the middle."""
    limits = {"tokens": tokens, "money": money}
    used, cost, overlapping = 0, 0.0, []
    with TemporaryDirectory() as folder:
        budget = budget_of(Path(folder), day=limits)
        for most, share, end in asked:
            price = most / 1000
            try:
                settle = budget.hold(most, price, None, NOON)
            except Parking:
                continue
            real, paid = most * share // 100, price * share / 100
            used, cost = used + real, cost + paid
            assert used <= tokens
            assert cost <= money + 1e-9
            if end == "ends":
                settle(real, paid, NOON)
            elif end == "overlaps":
                overlapping.append((settle, real, paid))
            else:  # the next process finds what was held booked as used
                budget, overlapping = budget_of(Path(folder), day=limits), []
        for settle, real, paid in overlapping:
            settle(real, paid, NOON)


def test_a_request_that_goes_on_past_midnight_belongs_to_the_new_day(tmp_path):
    budget = budget_of(tmp_path, day={"tokens": 100})
    settle = budget.hold(100, 0, None, NOON)
    settle(80, 0, NEXT)
    with pytest.raises(Parking, match="day's budget"):
        budget.hold(21, 0, None, NEXT)
    budget.hold(20, 0, None, NEXT)
    assert json.loads((tmp_path / ".hive/agents/ada/budget.json").read_text())["tokens"] == 100


def test_money_is_held_before_it_is_spent(crew: Crew):
    crew.drop("Do it.")
    work = crew.start().scheduler.active_tasks.claim()
    budget = budget_of(crew.root, day={"money": 1}, task={"money": 0.5})
    with pytest.raises(Parking, match="no room for another question"):
        budget.hold(1, 1.1, None, NOON)
    budget.hold(1, 0.3, work, NOON)
    with pytest.raises(Parking, match=r"task's budget of 0\.5"):
        budget.hold(1, 0.3, work, NOON)


def test_a_task_and_its_subtasks_share_one_account(crew: Crew):
    crew.drop("Do it.")
    agent = crew.start()
    whole = agent.scheduler.active_tasks.claim()
    agent.hive.tasks.add("A part of it.", by="ada", parent="t")
    part = agent.scheduler.active_tasks.claim()
    budget = budget_of(crew.root, task={"tokens": 100})
    budget.hold(80, 0, part, NOON)
    with pytest.raises(Parking, match="task's budget of 100"):
        budget.hold(30, 0, whole, NOON)


def test_a_clock_that_is_set_back_gives_no_second_budget(tmp_path):
    budget = budget_of(tmp_path, day={"tokens": 100})
    budget.hold(90, 0, None, NEXT)
    with pytest.raises(Parking, match="day's budget"):
        budget.hold(20, 0, None, NOON)


FOUR = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from hivemind.config import BudgetConfig, TokenBudget
from hivemind.layout import Layout
from hivemind.agent.spending import Budget
from hivemind.taskrun.waits import Parking

root, noon = Path(sys.argv[1]), datetime(2026, 11, 22, 12, tzinfo=UTC)
for at in range(4):
    if os.fork():
        continue
    layout, name = Layout(root), f"agent-{at}"
    layout.agent_state(name).mkdir(parents=True)
    budget = Budget(BudgetConfig(), layout, name, TokenBudget(tokens=10_000))
    spent = os.open(root / "spent", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in range(1_000):
        try:
            settle = budget.hold(30, 0.0, None, noon)
        except Parking:
            os._exit(0)
        os.write(spent, b"x" * (number % 31))  # a byte for each token
        if number == 3 and at == 0:
            os.kill(os.getpid(), signal.SIGKILL)  # what it held stays used
        settle(number % 31, 0.0, noon)
    os._exit(1)
print(*(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(4)))
"""


def test_four_processes_that_share_a_budget_never_pass_it_together(tmp_path):
    (tmp_path / ".hive/locks").mkdir(parents=True)
    ends = subprocess.run([sys.executable, "-c", FOUR, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert sorted(ends.stdout.split()) == ["-9", "0", "0", "0"], ends.stderr
    spent = (tmp_path / "spent").stat().st_size
    assert 10_000 - 2 * 30 <= spent <= 10_000
    assert json.loads((tmp_path / ".hive/budget.json").read_text())["tokens"] >= spent


def test_a_server_that_answers_more_than_it_was_asked_for_does_so_once(tmp_path):
    """Each answer costs three times what was held for the first; from the second on that is held."""
    pytest.importorskip("openai")
    pytest.importorskip("pydantic_ai")
    from hivemind.agent.metering import MeteredMind
    from hivemind.minds import Prices, open_mind
    from tests.minds.server import model_server

    with model_server(lambda request: request.answer("well", tokens_out=300)) as server:
        told = {"url": server.url, "model": "played", "max_output": 100}
        mind = open_mind({"openai-compatible": told})
        mind.prices = Prices(0, 10_000)
        usages = MeteredMind(mind, budget_of(tmp_path, day={"money": 10}), len)
        try:
            for _ in range(3):
                usages.mind_for(None, None).complete("hello")
            with pytest.raises(MindUnavailable, match="no room for another question"):
                usages.mind_for(None, None).complete("hello")
        finally:
            usages.close()
    assert usages.total.money == 9
    assert len(server.requests) == 3


@pytest.mark.parametrize("absurd", ["prompt_tokens", "completion_tokens"])
def test_a_count_that_no_request_can_have_had_is_replaced_by_an_estimate_and_said(tmp_path, caplog, absurd):
    pytest.importorskip("openai")
    pytest.importorskip("pydantic_ai")
    from hivemind.agent.metering import MeteredMind
    from hivemind.minds import open_mind
    from tests.minds.server import model_server

    def answer(request):
        completion = json.loads(request.completion("well", None))
        completion["usage"][absurd] = 10**12
        request.send(200, json.dumps(completion))

    with model_server(answer) as server:
        mind = open_mind({"openai-compatible": {"url": server.url, "model": "played", "max_output": 100}})
        usages = MeteredMind(mind, budget_of(tmp_path, day={"tokens": 10_000}), len)
        try:
            usages.mind_for(None, None).complete("hello")
        finally:
            usages.close()
    assert 0 < usages.total.tokens < 1_000
    assert "estimated instead" in caplog.text


REQUEST = {"request": "a", "cause": "turn", "reserved": {"tokens": 500, "money": 0.5}}
USAGE = {"tokens_in": 100, "tokens_out": 20, "money": 0.1, "unpriced": 20}
ANSWER = {"role": "assistant", "request": "a", "usage": USAGE, "at": "2026-11-22T12:00:00+00:00"}


@pytest.mark.parametrize("answer", [ANSWER, {"answered": "a", "usage": USAGE, "error": "it was no answer"}])
def test_a_request_under_way_counts_as_what_it_may_come_to_and_then_as_what_it_was(answer):
    account = Account([REQUEST])
    assert (account.usage().tokens, account.usage().money) == (500, 0.5)
    account.book(answer)
    spent = account.usage()
    assert (spent.tokens, spent.money, spent.unpriced) == (120, 0.1, 20)
    assert spent.cost == "cost 0.1000, 20 tokens at an unknown price"
    assert spent.cycles == ("role" in answer)


@given(st.lists(st.sampled_from(["request", "answered", "role"])), st.integers(0, 5))
def test_an_account_is_the_same_from_the_file_as_from_its_lines_one_by_one(kinds, ids):
    lines = {
        "request": lambda at, id_: {"request": id_, "reserved": {"tokens": at, "money": 0.25 * at}},
        "answered": lambda at, id_: {"answered": id_, "usage": {"tokens_out": at}},
        "role": lambda at, id_: {**ANSWER, "request": id_, "usage": {"tokens_in": at, "money": 0.25 * at}},
    }
    records = [lines[kind](at, str(at % (ids + 1))) for at, kind in enumerate(kinds)]
    account = Account()
    for record in records:
        account.book(record)
    assert account.usage() == Account(json.loads(json.dumps(records))).usage()


def test_how_much_of_it_a_cache_had_is_shown_with_the_agent_and_with_the_task(crew: Crew):
    crew.drop("Do it.")
    used = Usage(1_000, 200, cached=800)
    agent = crew.start()
    agent.mind = Mind(lambda turn: Thought("", (ToolCall("list_files", {"path": "knowledge"}),), used))
    agent.cycle()
    [shown] = agents_now(agent.hive)
    assert (shown.tokens, shown.cached) == (1_200, 800)
    [work] = agent.scheduler.active_tasks.runs
    assert work.total_usage().summary.startswith("1 turn, 1,200 tokens (800 cached), ")


def test_the_time_that_is_told_is_that_of_the_turns_with_their_commands_and_without_what_lay_between(
    crew: Crew,
) -> None:
    """`run: sleep 4` took 0.0 s, and a night in which the swarm was down was worked through."""
    night = [
        {"role": "assistant", "at": "2026-11-22T22:00:00.000+00:00", "seconds": 1.5},
        {"role": "tool", "at": "2026-11-23T06:00:00.000+00:00", "seconds": 2.0},
        {"role": "assistant", "at": "2026-11-23T06:00:01.000+00:00"},
    ]
    assert Account(night).usage().seconds == 3.5
    crew.drop("---\nsteps: [{run: sleep 1}]\n---\nx\n")
    until_idle(crew.start())
    spent = Account(lines_of(crew.root / "tasks/done/t")).usage()
    assert spent.seconds >= 1
    told = (crew.root / "tasks/done/t/result.md").read_text()
    assert f"Worked on by ada: {spent.cycles} turns, 0 tokens, " in told
    turns = Transcript(lines_of(crew.root / "tasks/done/t")).turns
    [command] = [one for one in turns if one.calls[0]["tool"] == "run_command"]
    assert command.seconds is not None
    assert command.seconds >= 1


def test_what_a_mind_does_not_report_of_its_answer_is_counted(crew: Crew) -> None:
    crew.drop("x\n")
    agent = crew.start(lambda turn: Thought("Saw the keel.", (ToolCall("finish_task"),), Usage(tokens_in=7)))
    until_idle(agent)
    assert agent.metered_mind.total.tokens_in == 7
    assert agent.metered_mind.total.tokens_out > 5
