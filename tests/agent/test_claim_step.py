"""Taking a step, or a path, from another: never from an agent that lives, without force from one that has died."""

from __future__ import annotations

import json

import pytest

from hivemind import Hive
from hivemind.coordination import Reservations, StaleGeneration, StepLease, StepLeaseHeld, StepLeaseNotHeld
from hivemind.mcp_server.member import Member
from hivemind.presence.identity import journal_start
from hivemind.tools import TOOLS
from hivemind.tools.registry import use_by_hand
from hivemind.views import resume
from tests.agent.conftest import Crew, hands

LEASE = StepLease("t.s1", "claude", 1, 201, 1)


def test_a_step_of_a_living_agent_is_not_taken_by_force_and_force_is_not_offered(crew: Crew) -> None:
    crew.agent_file("mind: mcp\n", "claude")
    use = hands(crew)
    member = Member(Hive.open(crew.root), "claude", "full")
    try:
        member.hive.steps.plan("boat", [{"title": "The keel"}])
        member.hive.leases.claim("boat.s1", "claude")
        for more in ({}, {"force": True}):
            assert "error" in use("claim_step", step="boat.s1", **more)
        assert member.hive.leases.list("claude")
        assert "claude" in use("claim_step", step="boat.s1")["error"]
        assert "force=" not in use("claim_step", step="boat.s1")["error"]
        shown = resume(member.hive, agent_id="ada", task="boat")
        assert "force" not in json.dumps(shown["capsule"]["next"])
    finally:
        member.close()


def test_a_lease_that_ends_with_its_holders_process_lasts_as_long_as_there_may_be_and_a_claim_by_hand_does_not(
    crew: Crew,
) -> None:
    """Two hundred events are seconds among a hundred agents, and a client may be silent for longer."""
    crew.agent_file("mind: mcp\n", "claude")
    hive = Hive.open(crew.root)
    hive.steps.plan("boat", [{"title": title} for title in ("The keel", "The mast", "The sail")])
    crew.drop("Build it.\n")
    member = Member(hive, "claude", "full")
    try:
        member.call("claim_task", {"task": "t"})
        member.call("plan_steps", {"steps": [{"title": "The oars"}]})
        member.call("note_step", {"text": "ash"})
        member.call("claim_step", {"step": "boat.s1"})
        use_by_hand(hive, "human", "claim_step", {"step": "boat.s2"})
        hive.leases.claim("boat.s3", "codex")
        lasts = {one.step_id: one.expires_seq - one.acquired_seq for one in hive.leases.list()}
        assert lasts == {"t.s1": 10_000, "boat.s1": 10_000, "boat.s2": 200, "boat.s3": 200}
    finally:
        member.close()


@pytest.mark.parametrize(
    "refusal",
    [StepLeaseHeld(LEASE, "ada"), StepLeaseNotHeld("t.s1", "ada", LEASE), StaleGeneration("t.s1", "ada", 1, LEASE)],
)
def test_what_is_suggested_to_an_agent_has_no_force_in_it(refusal: StepLeaseHeld) -> None:
    assert "force" not in str(refusal)
    assert "force" not in json.dumps(refusal.suggestions)


def test_no_tool_of_an_agent_takes_anything_by_force() -> None:
    assert not [name for name, tool in TOOLS.items() if "force" in json.dumps(tool.schema())]


def test_what_a_dead_agent_held_is_taken_without_force(crew: Crew) -> None:
    crew.agent_file("{}\n", "bob")
    use = hands(crew)
    hive = Hive.open(crew.root)
    journal_start(hive.journal, "bob", 1)  # and no process holds its name
    hive.steps.plan("boat", [{"title": "The keel"}])
    hive.leases.claim("boat.s1", "bob")
    Reservations(hive.journal).reserve("bob", ["knowledge/**"])
    assert use("claim_step", step="boat.s1")["result"]["holder"] == "ada"
    journal_start(hive.journal, "bob", 1)
    Reservations(hive.journal).reserve("bob", ["knowledge/**"])
    assert "error" not in use("write_file", path="knowledge/boats.md", text="oak\n")
    assert [event.payload["by"] for event in crew.events("agent.exited")] == ["ada", "ada"]
