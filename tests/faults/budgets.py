"""Budgets and handing over: minds that are programs, that count what they used, and give each other work."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from hivemind.tokens import count_tokens

from .checkers import GENERAL
from .hives import make_hive
from .scenario import Checker, Scenario
from .subject import Subject
from .tasks import TASK_CHECKERS, drop_task, missing_tasks, places_of

__all__ = ["BUDGETS", "HAND_OVER", "program", "thoughts"]

DAY = 1_900
JUMP_S = 1.0  # so long may pass between an agent's request and its program
CAP = 8_000  # tokens of a conversation
TASKS = 10  # each opening has about 365 tokens: a day allows five of them, and one more passes it


FINISH = [[{"tool": "finish_task", "arguments": {"result": "It floats."}}]]
PASS_ON = [[{"tool": "hand_over", "arguments": {"to": "bob", "reason": "bob knows boats"}}]]


def program(subject: Subject, name: str, script: list[list[dict[str, Any]]]) -> dict[str, list[str]]:
    """A program as a mind, which the agents run: `thinker.py`."""
    thinker = str(Path(__file__).with_name("thinker.py"))
    return {"command": [sys.executable, "-IS", thinker, str(subject.marks), name, json.dumps(script)]}


def prepare(subject: Subject) -> None:
    minds = {
        name: {"mind": program(subject, name, FINISH), "max_tokens": CAP, "tools": ["finish_task"], "role": "thinker"}
        for name in ("ada", "bob", "cyd")
    }
    dear = {
        "mind": program(subject, "dee", FINISH),
        "role": "worker",
        "budget": {"task": {"tokens": 100}},
    }  # no opening is so small
    minds["dee"] = {**minds["ada"], **dear}
    make_hive(subject, minds, budget={"day": {"tokens": DAY}})


def play(subject: Subject) -> None:
    for number in range(TASKS):
        think(subject, f"think-{number}")
    think(subject, "dear")
    subject.work()


def think(subject: Subject, key: str) -> None:
    whose = "assignee: dee" if key == "dear" else "role: thinker"
    drop_task(subject, key, f"---\n{whose}\n---\nThink of boats.\n", end="either")


def retry(subject: Subject) -> None:
    for key in missing_tasks(subject, subject.ledger.of("task")):
        think(subject, key)


def thoughts(subject: Subject) -> list[dict[str, Any]]:
    path = subject.marks / "thoughts"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@cache
def tokens_of(text: str) -> int:
    return count_tokens(text)


def daily_tokens(subject: Subject) -> list[int]:
    """The tokens that were given to minds, day by day. A clock that is a day behind at most begins no other day. Where a clock
    jumped between an agent's request and its program, nobody knows which day that was booked to, and which that began."""
    days: list[int] = []
    now = 0
    for thought in thoughts(subject):
        day = (date.fromisoformat(thought["told"][-1]["at"][:10]) - date(1970, 1, 1)).days
        if day != thought["day"] and 0 <= thought["moment"] - subject.jumped <= JUMP_S:
            now = 0
            continue
        if not now - 1 <= thought["day"] <= now:
            now = thought["day"]
            days.append(0)
        days[-1] += sum(tokens_of(message["text"]) for message in thought["told"])
    return days


def day_kept(subject: Subject) -> Iterator[str]:
    if subject.clocks_differ:  # the earliest clock begins the next day, for all
        return
    for tokens in daily_tokens(subject):
        if tokens > DAY:
            yield f"the budget of a day is {DAY} tokens, and {tokens} were used"


def task_kept(subject: Subject) -> Iterator[str]:
    """A task for which the budget is too small is not thought about; it is parked, and `status` says why."""
    if any(thought["agent"] == "dee" for thought in thoughts(subject)):
        yield "the budget of a task is 100 tokens, and dee has thought about one"
    status = subject.run("status").output()
    parked = re.search(r"^ +dear: (the task's budget of 100|the hive's daily budget) ", status, re.MULTILINE)
    if places_of(subject, "dear") != [subject.root / "tasks" / "active" / "dear"] or parked is None:
        yield f"the task dear is in {places_of(subject, 'dear')}, and `status` says: {status[-1500:]}"


def one_place(subject: Subject) -> Iterator[str]:
    for key in subject.ledger.of("task"):
        places = places_of(subject, key)
        if len(places) != 1:
            yield f"the task {key} lies in {len(places)} places"
        elif places[0].parent.name == "failed":
            yield f"the task {key} failed: {(places[0] / 'error.md').read_text()[:400]}"


def prepare_hand_over(subject: Subject) -> None:
    scripts = {"ada": PASS_ON, "bob": FINISH}
    make_hive(subject, {name: {"mind": program(subject, name, script)} for name, script in scripts.items()})


def play_hand_over(subject: Subject) -> None:
    passing(subject)
    subject.work()


def passing(subject: Subject) -> None:
    drop_task(subject, "boat", "---\nassignee: ada\n---\nBuild this boat.\n", end="done", result="It floats.")


def again_hand_over(subject: Subject) -> None:
    if missing_tasks(subject, ["boat"]):
        passing(subject)


def handed(subject: Subject) -> Iterator[str]:
    """Check that the receiver did the task, under its own name, once."""
    owners = [event["agent_id"] for event in subject.read("log") if event["kind"] == "task.done"]
    if owners and owners != ["bob"]:
        yield f"the task was handed to bob, and ended by {owners}"


BUDGETS = Scenario(
    "budgets", "A day's budget for all, and more to think than it allows.", prepare, play, retry,
    (Checker("day kept", ("P36",), day_kept), Checker("task kept", ("P37",), task_kept),
     Checker("one place", ("P1", "P3"), one_place), *GENERAL),
    ("fs.", "tasks.", "journal.", "messages."),
)  # fmt: skip
HAND_OVER = Scenario(
    "hand-over", "A task that one agent hands to another.", prepare_hand_over, play_hand_over, again_hand_over,
    (Checker("handed", ("P9",), handed), *TASK_CHECKERS, *GENERAL), ("fs.", "tasks.", "journal.", "messages."),
)  # fmt: skip
