"""Leases and reservations, asked for by several programs at once: one lock explains all answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from .checkers import GENERAL
from .hives import make_hive
from .ledger import Request
from .linear import Call, lease, linearizable, reservations
from .scenario import Checker, Scenario
from .subject import Running, Subject
from .tasks import drop_task, with_steps

__all__ = ["LEASES", "RESERVATIONS"]

STEPS = ("boat.s1", "boat.s2")
PATTERNS = ("knowledge/a.md", "knowledge/*.md", "knowledge/b.md", "knowledge/a*")


def prepare_leases(subject: Subject) -> None:
    """A task of two steps that waits for a person: its steps are open, and nobody's."""
    make_hive(subject, {"ada": {}, "bob": {}})
    drop_task(subject, "boat", with_steps({"wait": {"human": "Go?"}}, {"title": "The mast"}), end="parked")
    subject.work()
    for step in STEPS:  # the agent that met the step has held it: the numbers go on from there
        subject.ask("before", step, "lease", "claim", step, "--agent", "human", "--json")
        subject.run("lease", "release", step, "--agent", "human")


def prepare_reservations(subject: Subject) -> None:
    make_hive(subject, {"ada": {}, "bob": {}})


def lease_commands(agent: str, random: Random) -> Iterator[dict[str, Any]]:
    for _ in range(14):
        step = random.choice(STEPS)
        name = random.choice(
            ("claim", "claim", "release", "renew", "renew", "list", "force" if agent == "human" else "claim")
        )
        words = ["lease", "list"] if name == "list" else ["lease", "claim" if name == "force" else name, step]
        has_generation = False
        if name != "list":
            words += ["--agent", agent]
        if name in ("claim", "force", "renew"):
            words += ["--ttl", "10000"]
        if name == "force":
            words.append("--force")
        elif name in ("renew", "release") and random.random() < 0.5:
            words += ["--generation", "{generation}"]
            has_generation = True
        yield {"kind": "lease", "key": step, "words": [*words, "--json"],
               "asked": {"agent": agent, "name": name, "shown": has_generation}}  # fmt: skip


def reserve_commands(agent: str, random: Random) -> Iterator[dict[str, Any]]:
    for _ in range(12):
        name = random.choice(("reserve", "reserve", "release", "list"))
        pattern, is_shared = random.choice(PATTERNS), random.random() < 0.3
        words = {
            "reserve": ["reserve", "paths", pattern, "--agent", agent, *(["--shared"] if is_shared else [])],
            "release": ["reserve", "release", "--agent", agent],
            "list": ["reserve", "list"],
        }[name]
        yield {"kind": "reservation", "key": agent, "words": [*words, "--json"],
               "asked": {"agent": agent, "name": name, "pattern": pattern, "shared": is_shared}}  # fmt: skip


LATE = (("ada", "claim", 0), ("human", "force", 0), ("human", "release", 0), ("ada", "claim", 0), ("ada", "note", 0),
        ("ada", "note", -1), ("ada", "release", 0))  # fmt: skip
"""A holder that has lost its step and got it again shows the generation that it had first."""


def held_by_programs(subject: Subject, doings: Sequence[tuple[str, str, str, int]]) -> Running:
    path = subject.scratch / f"holder-{len(subject.commands)}.json"
    path.write_text(json.dumps(doings))
    return subject.client("holder", str(path))


def some_doings(random: Random) -> list[tuple[str, str, str, int]]:
    names = ("claim", "claim", "note", "note", "note", "release")
    return [
        (random.choice(STEPS), random.choice(("ada", "bob")), random.choice(names), random.randrange(9))
        for _ in range(12)
    ]


def play_leases(subject: Subject) -> None:
    program = held_by_programs(subject, some_doings(Random(subject.random.random())))
    run_scripts(subject, lease_commands, program)


def play_reservations(subject: Subject) -> None:
    run_scripts(subject, reserve_commands)


def run_scripts(subject: Subject, commands: Any, *more: Running) -> None:
    clients = [*more]
    for agent in ("ada", "bob", "human"):
        path = subject.scratch / f"script-{agent}.json"
        path.write_text(json.dumps(list(commands(agent, Random(subject.random.random())))))
        clients.append(subject.client("script", str(path)))
    subject.collect(clients)


def again_leases(subject: Subject) -> None:
    """Claim each step again: a dead holder does not keep it, and a former holder cannot change it."""
    for step in STEPS:
        subject.ask("lease", step, "lease", "claim", step, "--agent", "human", "--force", "--ttl", "10000", "--json",
                    agent="human", name="force", shown=False)  # fmt: skip
        subject.ask("lease", step, "lease", "release", step, "--agent", "human", "--json",
                    agent="human", name="release", shown=False)  # fmt: skip
        subject.collect([held_by_programs(subject, [(step, *doing) for doing in LATE])])


def again_reservations(subject: Subject) -> None:
    for agent in ("ada", "bob", "human"):
        subject.ask("reservation", agent, "reserve", "release", "--agent", agent, "--json", agent=agent, name="release",
                    pattern="", shared=False)  # fmt: skip
    subject.ask("reservation", "ada", "reserve", "paths", "knowledge/*", "--agent", "ada", "--json", agent="ada",
                name="reserve", pattern="knowledge/*", shared=False)  # fmt: skip


# checks


def as_json(answer: str) -> Any:
    try:
        return json.loads(answer)
    except ValueError:
        return {}


def lease_call(request: Request, step: str) -> Call | None:
    """Return a request for the model; None if the machine refused it, without effect or in doubt."""
    name, answer = request.asked["name"], as_json(request.answer)
    words = request.asked.get("words", [])
    argument = (
        int(words[words.index("--generation") + 1]) if "--generation" in words else request.asked.get("generation")
    )
    result: Any = None
    if request.end is not None and request.status is not None:
        if name == "list":
            if request.status != 0:
                return None
            rows = [row for row in answer if row.get("step_id", row.get("step")) == step]
            result = (holder_of(rows[0]), rows[0]["generation"]) if rows else (None, 0)
        elif request.status == 0:
            result = ("mine", answer["generation"]) if name in ("claim", "force") else "done"
        else:
            result = {"STEP_LEASE_HELD": "held", "STEP_LEASE_NOT_HELD": "refused", "STALE_GENERATION": "refused"}.get(
                answer.get("code", "")
            )
            if name in ("note", "renew", "release") and result == "held":
                result = "refused"
    is_clear = result is not None
    return Call(request.begin, request.end if is_clear else None, request.asked["agent"],
                "get" if name == "list" else name, result, argument)  # fmt: skip


def holder_of(row: dict[str, Any]) -> str:
    return str(row.get("holder_agent_id", row.get("holder", row.get("agent_id"))))


def leases_linearizable(subject: Subject) -> Iterator[str]:
    requests = [request for request in subject.ledger.requests if request.kind == "lease"]
    for step in STEPS:
        step_requests = [request for request in requests if request.asked["name"] == "list" or request.key == step]
        calls = [call for request in step_requests if (call := lease_call(request, step)) is not None]
        before = as_json(subject.ledger.acknowledged("before")[step].answer)["generation"]
        if not linearizable(calls, (None, before), lease):
            yield f"no one lease explains what was answered of {step}: {describe(calls)}"


def reservation_call(request: Request) -> Call | None:
    name, answer = request.asked["name"], as_json(request.answer)
    result: Any = None
    if request.end is not None and request.status is not None:
        if request.status == 0:
            result = {
                "list": lambda: tuple(
                    sorted((row["agent_id"], pattern, row["shared"]) for row in answer for pattern in row["patterns"])
                ),
                "reserve": lambda: ("got", answer["reservation"]),
                "release": lambda: "done",
            }[name]()
        elif answer.get("code") == "RESERVATION_HELD":
            result = "held"
        elif name == "list":
            return None
    return Call(request.begin, request.end if result is not None else None, request.asked["agent"],
                name, result, (request.asked["pattern"], request.asked["shared"]) if name == "reserve" else None)  # fmt: skip


def reservations_linearizable(subject: Subject) -> Iterator[str]:
    calls = [
        call
        for request in subject.ledger.requests
        if request.kind == "reservation" and (call := reservation_call(request)) is not None
    ]
    if not linearizable(calls, frozenset(), reservations):
        yield f"no one table of reservations explains what was answered: {describe(calls)}"


def describe(calls: list[Call]) -> str:
    first = min((call.begin for call in calls), default=0)
    return "; ".join(
        f"{(call.begin - first) // 1000}-{'' if call.end is None else (call.end - first) // 1000} us {call.agent} "
        f"{call.name} {call.argument or ''} -> {call.result}"
        for call in sorted(calls, key=lambda call: call.begin)
    )


LEASES = Scenario(
    "leases", "Steps claimed, renewed and released by three programs at once.", prepare_leases, play_leases, again_leases,
    (Checker("leases linearizable", ("P22", "P23"), leases_linearizable), *GENERAL), ("journal.", "fs."),
)  # fmt: skip
RESERVATIONS = Scenario(
    "reservations", "Paths reserved and released by three programs at once.", prepare_reservations, play_reservations,
    again_reservations, (Checker("reservations linearizable", ("P25",), reservations_linearizable), *GENERAL),
    ("journal.", "fs."),
)  # fmt: skip
