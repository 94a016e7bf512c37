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

from hivemind.agent.budget import Budget
from hivemind.config import BudgetConfig
from hivemind.minds import MindUnavailable
from hivemind.presence.agent_log import AgentLog
from hivemind.taskrun.parking import Parking
from hivemind.taskrun.report import Account, Spent

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
NEXT = datetime(2026, 11, 23, 0, 0, 1, tzinfo=UTC)

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
    limits = BudgetConfig.model_validate({"day": {"tokens": tokens, "money": money}})
    used, cost, overlapping = 0, 0.0, []
    with TemporaryDirectory() as folder:
        budget = Budget(limits, Path(folder))
        for number, (most, share, end) in enumerate(asked):
            price = most / 1000
            try:
                budget.hold(str(number), most, price, None, NOON)
            except Parking:
                continue
            real, paid = most * share // 100, price * share / 100
            used, cost = used + real, cost + paid
            assert used <= tokens
            assert cost <= money + 1e-9
            if end == "ends":
                budget.release(str(number), real, paid, NOON)
            elif end == "overlaps":
                overlapping.append((str(number), real, paid))
            else:  # the next process finds what was held booked as used
                budget, overlapping = Budget(limits, Path(folder)), []
        for key, real, paid in overlapping:
            budget.release(key, real, paid, NOON)


def test_a_request_that_goes_on_past_midnight_belongs_to_the_new_day(tmp_path):
    budget = Budget(BudgetConfig.model_validate({"day": {"tokens": 100}}), tmp_path)
    budget.hold("a", 100, 0, None, NOON)
    budget.release("a", 80, 0, NEXT)
    with pytest.raises(Parking, match="day's budget"):
        budget.hold("b", 21, 0, None, NEXT)
    budget.hold("b", 20, 0, None, NEXT)


def test_money_is_held_before_it_is_spent(tmp_path):
    budget = Budget(BudgetConfig.model_validate({"day": {"money": 1}, "task": {"money": 0.5}}), tmp_path)
    with pytest.raises(Parking, match="no room for another question"):
        budget.hold("a", 1, 1.1, None, NOON)
    with pytest.raises(Parking, match=r"task's budget of 0\.5"):
        budget.hold("a", 1, 0.3, Spent(money=0.3), NOON)


def test_a_clock_that_is_set_back_gives_no_second_budget(tmp_path):
    budget = Budget(BudgetConfig.model_validate({"day": {"tokens": 100}}), tmp_path)
    budget.use(90, 0, NEXT)
    with pytest.raises(Parking, match="day's budget"):
        budget.hold("a", 20, 0, None, NOON)


FOUR = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from hivemind.config import BudgetConfig, TokenBudget
from hivemind.layout import Layout
from hivemind.agent.budget import Budget, hives_account
from hivemind.taskrun.parking import Parking

root, noon = Path(sys.argv[1]), datetime(2026, 11, 22, 12, tzinfo=UTC)
for at in range(4):
    if os.fork():
        continue
    (root / str(at)).mkdir()
    budget = Budget(BudgetConfig(), root / str(at), hives_account(Layout(root), TokenBudget(tokens=10_000)))
    spent = os.open(root / "spent", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in range(1_000):
        try:
            budget.hold(str(number), 30, 0.0, None, noon)
        except Parking:
            os._exit(0)
        os.write(spent, b"x" * (number % 31))  # a byte for each token
        if number == 60 and at == 3:
            os.kill(os.getpid(), signal.SIGKILL)  # what it held stays used
        budget.release(str(number), number % 31, 0.0, noon)
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
    from hivemind.agent.usage import Usages
    from hivemind.minds import Prices, open_mind
    from tests.minds.server import model_server

    with model_server(lambda request: request.answer("well", tokens_out=300)) as server:
        told = {"url": server.url, "model": "played", "max_output": 100}
        mind = open_mind({"openai-compatible": told}, prices=Prices(0, 10_000))
        budget = Budget(BudgetConfig.model_validate({"day": {"money": 10}}), tmp_path)
        usages = Usages(mind, budget, len, AgentLog(tmp_path))
        try:
            for _ in range(3):
                usages.mind_of(None).complete("hello")
            with pytest.raises(MindUnavailable, match="no room for another question"):
                usages.mind_of(None).complete("hello")
        finally:
            usages.close()
    assert usages.total.money == 9
    assert len(server.requests) == 3


ASKING = {"kind": "asking", "id": "a", "tokens": 500, "money": 0.5}
EXCHANGE = {"kind": "exchange", "id": "a", "tokens": 120, "money": 0.1, "unpriced": 20}


def test_a_request_under_way_counts_as_what_it_may_come_to_and_then_as_what_it_was():
    account = Account([ASKING])
    assert (account.spent().tokens, account.spent().money) == (500, 0.5)
    account.book(EXCHANGE)
    assert (account.spent().tokens, account.spent().money, account.spent().unpriced) == (120, 0.1, 20)


def test_what_was_booked_request_by_request_is_not_booked_again_with_its_turn():
    turn = {"kind": "cycle", "tokens": 120, "money": 0.1, "metered": True, "time": 1.0}
    spent = Account([ASKING, EXCHANGE, turn]).spent()
    assert (spent.cycles, spent.tokens) == (1, 120)
    assert spent.cost == "cost 0.1000, 20 tokens at an unknown price"


@given(st.lists(st.sampled_from(["asking", "exchange", "cycle"])), st.integers(0, 5))
def test_an_account_is_the_same_from_the_log_as_from_the_records_one_by_one(kinds, ids):
    records = [
        {"kind": kind, "id": str(at % (ids + 1)), "tokens": at, "money": 0.25 * at, "time": float(at)}
        for at, kind in enumerate(kinds)
    ]
    account = Account()
    for record in records:
        account.book(record)
    assert account.spent() == Account(json.loads(json.dumps(records))).spent()
