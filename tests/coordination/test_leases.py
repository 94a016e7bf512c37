from __future__ import annotations

import json
import pickle
import signal
from ast import literal_eval
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hivemind.coordination import (
    CoordinationError,
    Journal,
    StaleGeneration,
    StepLeaseHeld,
    StepLeaseNotHeld,
    StepLeases,
    Steps,
)
from hivemind.errors import UserError
from tests.durability import relaxed
from tests.faults.linear import Call, lease, linearizable
from tests.waiting import until

from .children import run, start


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(relaxed(tmp_path / "journal"))


@pytest.fixture
def leases(journal: Journal) -> StepLeases:
    return StepLeases(journal)


def age(journal: Journal, events: int) -> None:
    for _ in range(events):
        journal.append("tick")


def test_a_free_step_is_taken(journal: Journal, leases: StepLeases) -> None:
    age(journal, 3)
    lease = leases.claim("s", " Ada ", ttl_seq=10)
    assert (lease.holder_agent_id, lease.acquired_seq, lease.expires_seq, lease.generation) == ("ada", 4, 14, 1)
    assert leases.get("s") == lease
    assert leases.get("other") is None


def test_a_lease_is_active_until_its_seq_is_reached(journal: Journal, leases: StepLeases) -> None:
    lease = leases.claim("s", "ada", ttl_seq=5)
    age(journal, lease.expires_seq - 1 - journal.seq)
    assert leases.get("s") == lease
    age(journal, 1)
    assert leases.get("s") is None
    assert leases.claim("s", "bob").generation == 2


def test_what_is_mine_stays_as_it_is_without_an_event(journal: Journal, leases: StepLeases) -> None:
    lease = leases.claim("s", "ada")
    assert leases.claim("s", "ada", ttl_seq=9) == lease
    assert leases.claim("s", "ada", force=True) == lease
    assert journal.seq == 1


def test_renewing_moves_the_end_and_keeps_the_generation(journal: Journal, leases: StepLeases) -> None:
    leases.claim("s", "ada")
    assert leases.claim("s", "ada", ttl_seq=50, renew=True) == leases.get("s")
    renewed = leases.renew("s", "ada", generation=1, ttl_seq=70)
    assert (renewed.acquired_seq, renewed.expires_seq, renewed.generation) == (1, 73, 1)
    assert leases.get("s") == renewed
    assert [event.kind for event in journal.read()] == ["lease.claimed", "lease.renewed", "lease.renewed"]


def test_what_another_holds_is_refused_with_calls_that_can_be_made_as_they_stand(
    journal: Journal, leases: StepLeases
) -> None:
    lease = leases.claim("s", "ada")
    with pytest.raises(StepLeaseHeld) as caught:
        leases.claim("s", "human")
    error = caught.value
    assert error.code == "STEP_LEASE_HELD"
    assert error.lease == lease
    assert "\n" not in str(error)
    json.dumps(error.as_dict())
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert journal.seq == 1
    hive = type("Hive", (), {"leases": leases, "steps": Steps(journal)})
    look, force = (eval(suggestion["call"], {"hive": hive}) for suggestion in error.suggestions)
    assert look == lease
    assert (force.holder_agent_id, force.generation) == ("human", 2)


def test_taking_over_by_force_names_whom_from(journal: Journal, leases: StepLeases) -> None:
    leases.claim("s", "ada")
    leases.claim("s", "bob", force=True)
    event = journal.read()[-1]
    assert (event.kind, event.payload["agent_id"], event.payload["from_agent_id"]) == ("lease.taken_over", "bob", "ada")


def test_renew_and_release_need_an_own_active_lease(journal: Journal, leases: StepLeases) -> None:
    for call in (leases.renew, leases.release):
        with pytest.raises(StepLeaseNotHeld) as caught:
            call("s", "ada")
        assert caught.value.code == "STEP_LEASE_NOT_HELD"
    leases.claim("s", "ada", ttl_seq=1)
    age(journal, 1)
    with pytest.raises(StepLeaseNotHeld):
        leases.release("s", "ada")
    leases.claim("s", "bob")
    with pytest.raises(StepLeaseNotHeld):
        leases.renew("s", "ada")
    with pytest.raises(StaleGeneration):
        leases.renew("s", "bob", generation=1)
    leases.release("s", "bob", generation=2)
    assert leases.get("s") is None


@pytest.mark.parametrize("ttl", [0, -1, 10_001, 2.5, "7", True, None])
def test_a_time_to_live_is_1_to_10_000_events(leases: StepLeases, ttl: object) -> None:
    with pytest.raises(CoordinationError) as caught:
        leases.claim("s", "ada", ttl_seq=ttl)  # type: ignore[arg-type]
    assert caught.value.code == "INVALID_TTL"
    assert leases.claim("s", "ada", ttl_seq=10_000).expires_seq == 10_001


@pytest.mark.parametrize("agent", ["", "../x", "a" * 65, ".a", "a b", None, 7])
def test_an_agent_has_a_name(leases: StepLeases, agent: object) -> None:
    with pytest.raises(UserError):
        leases.claim("s", agent)  # type: ignore[arg-type]


def test_an_agent_that_exited_holds_nothing_any_more(journal: Journal, leases: StepLeases) -> None:
    for step in ("one", "two"):
        leases.claim(step, "ada")
    leases.claim("three", "bob")
    journal.append("agent.exited", agent_id="Ada")
    assert [lease.step_id for lease in leases.list()] == ["three"]
    assert leases.claim("one", "bob").generation == 2


def test_leases_of_an_earlier_incarnation_are_void(journal: Journal, leases: StepLeases) -> None:
    journal.append("agent.started", agent_id="ada", incarnation=1)
    leases.claim("s", "ada")
    journal.append("agent.started", agent_id="ada", incarnation=2)
    assert leases.get("s") is None
    assert leases.claim("s", "ada").generation == 2
    journal.append("agent.exited", agent_id="ada", incarnation=1)
    assert leases.get("s") is not None, "a late word about an earlier life ends nothing"


def test_listing_and_releasing_all_of_an_agent(leases: StepLeases) -> None:
    for step in ("b", "a"):
        leases.claim(step, "ada")
    leases.claim("c", "bob")
    assert [lease.step_id for lease in leases.list("ada")] == ["a", "b"]
    assert len(leases.release_all("ada")) == 2
    assert [lease.step_id for lease in leases.list()] == ["c"]


@pytest.mark.shows("event: lease.expired")
def test_an_event_that_a_lease_has_expired_ends_it(journal: Journal, leases: StepLeases) -> None:
    leases.claim("s", "ada")
    journal.append("lease.expired", step_id="s", agent_id="ada")
    assert leases.get("s") is None
    assert leases.claim("s", "bob").generation == 2


# many processes


def test_eight_processes_race_for_a_thousand_leases_some_are_killed_and_each_has_one_holder(tmp_path: Path) -> None:
    code = """
victim = sys.argv[2] in ("a0", "a1")
journal.seq
sys.stdin.readline()
for n in range(1000):
    if victim and n == 300:
        say("midway")
    try:
        leases.claim(f"s{n}", sys.argv[2], ttl_seq=10000)
        say(f"s{n}")
    except StepLeaseHeld:
        pass
if victim:
    time.sleep(60)
"""
    folder = tmp_path / "journal"
    racers = [start(code, folder, f"a{number}") for number in range(8)]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    before: list[list[str]] = [[] for _ in racers]
    for number, racer in enumerate(racers[:2]):
        assert racer.stdout is not None
        before[number] = [line.strip() for line in iter(racer.stdout.readline, "midway\n")]
        racer.kill()
    told = {f"a{at}": before[at] + racer.communicate(timeout=60)[0].split() for at, racer in enumerate(racers)}
    assert [racer.returncode for racer in racers] == [-signal.SIGKILL] * 2 + [0] * 6
    events = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()[1:]]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    holders = {event["step_id"]: event["agent_id"] for event in events}
    assert len(events) == len(holders) == 1000
    for agent, steps in told.items():
        assert all(holders[step] == agent for step in steps)
    for agent in (f"a{number}" for number in range(2, 8)):
        assert len(told[agent]) == sum(holder == agent for holder in holders.values())
    leases = StepLeases(Journal(folder))
    assert {step: lease.holder_agent_id for step in holders if (lease := leases.get(step))} == holders


def test_a_holder_that_was_stopped_and_comes_back_late_changes_nothing(tmp_path: Path) -> None:
    code = """
step = steps.add("t", "a step")
lease = leases.claim(step.id, "ada", ttl_seq=5)
say("claimed")
sys.stdin.readline()
for change in (
    lambda who: steps.note(step.id, "late", **who), lambda who: steps.define(step.id, title="late", **who),
    lambda who: steps.verify(step.id, **who), lambda who: steps.done(step.id, **who), lambda who: steps.block(step.id, **who),
    lambda who: steps.capture(step.id, {"kind": "CMD", "text": "late"}, **who), lambda who: steps.delete(step.id, **who),
    lambda who: steps.freeze_leases({step.id: who["generation"]}, who["agent_id"]).__enter__(),
):
    try:
        change({"agent_id": "ada", "generation": lease.generation})
        say("changed")
    except CoordinationError as error:
        say(error.code)
"""
    child = start(code, tmp_path)
    assert child.stdout is not None
    assert child.stdout.readline() == "claimed\n"
    child.send_signal(signal.SIGSTOP)
    until(lambda: ") T " in Path(f"/proc/{child.pid}/stat").read_text(), pause_s=0.001)
    journal = Journal(tmp_path)
    leases = StepLeases(journal)
    age(journal, 5)
    leases.claim("t.s1", "bob")
    leases.release("t.s1", "bob")
    before = journal.seq
    child.send_signal(signal.SIGCONT)
    out, err = child.communicate("go\n", timeout=60)
    assert out.split() == ["STALE_GENERATION"] * 8, err
    assert journal.seq == before


def test_recorded_histories_of_lease_calls_are_linearizable(tmp_path: Path) -> None:
    code = """
import random
from time import monotonic_ns as now
me = sys.argv[2]
dice = random.Random(int(sys.argv[3]))
leases.get("s0")
sys.stdin.readline()
for _ in range(40):
    step, name = f"s{dice.randrange(2)}", dice.choice(["claim", "claim", "release", "get", "force"])
    begin = now()
    try:
        if name == "get":
            lease = leases.get(step)
            result = (lease.holder_agent_id, lease.generation) if lease else (None, 0)
        elif name == "release":
            leases.release(step, me)
            result = "done"
        else:
            result = "mine", leases.claim(step, me, ttl_seq=10000, force=name == 'force').generation
    except StepLeaseHeld as error:
        result = "held", error.lease.holder_agent_id, error.lease.generation
    except StepLeaseNotHeld:
        result = "refused"
    say((step, begin, now(), me, name, result))
"""
    children = [start(code, tmp_path, f"a{number}", str(number)) for number in range(4)]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    history: dict[str, list[Call]] = {}
    for child in children:
        for line in child.communicate(timeout=60)[0].splitlines():
            step, *call = literal_eval(line)
            history.setdefault(step, []).append(Call(*call))
    assert sum(map(len, history.values())) == 160
    for calls in history.values():
        assert linearizable(calls, (None, 0), lease)


def test_a_crash_while_a_lease_is_written_leaves_it_whole_or_not_there(tmp_path: Path) -> None:
    for point, holder in (("journal.append.locked", None), ("journal.append.written", "ada")):
        folder = tmp_path / point
        assert run("leases.claim('s', 'ada')", folder, crash=point)[0] == -signal.SIGKILL
        lease = StepLeases(Journal(folder)).get("s")
        assert (lease and lease.holder_agent_id) == holder


# any sequence of calls


class LeaseMachine(RuleBasedStateMachine):
    """Two journals on one folder against a model that is a dict and a counter."""

    agents = st.sampled_from(["ada", "bob", "cy"])
    steps = st.sampled_from(["s", "t"])

    @initialize()
    def open(self) -> None:
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.sides = [StepLeases(Journal(relaxed(self.folder.name))) for _ in range(2)]
        self.log = Journal(relaxed(self.folder.name))
        self.seq = 0
        self.held: dict[str, tuple[str, int]] = {}
        self.generation: dict[str, int] = {}

    def now(self, step: str) -> str | None:
        holder, expires = self.held.get(step, (None, 0))
        return holder if self.seq < expires else None

    @rule(
        side=st.integers(0, 1),
        step=steps,
        agent=agents,
        ttl=st.integers(1, 6),
        force=st.booleans(),
        renew=st.booleans(),
    )
    def claim(self, side: int, step: str, agent: str, ttl: int, force: bool, renew: bool) -> None:
        holder = self.now(step)
        try:
            lease = self.sides[side].claim(step, agent, ttl, force, renew)
        except StepLeaseHeld as error:
            assert holder not in (None, agent)
            assert error.lease.holder_agent_id == holder  # noqa: PT017 (a state machine may or may not raise)
            assert not force
            return
        assert holder in (None, agent) or force
        if holder == agent and not renew:
            assert lease.expires_seq == self.held[step][1]
            return
        self.seq += 1
        if holder != agent:
            self.generation[step] = self.generation.get(step, 0) + 1
        self.held[step] = (agent, self.seq + ttl)
        assert (lease.expires_seq, lease.generation) == (self.seq + ttl, self.generation[step])

    @rule(side=st.integers(0, 1), step=steps, agent=agents, generation=st.none() | st.integers(1, 4))
    def release(self, side: int, step: str, agent: str, generation: int | None) -> None:
        expected = self.now(step) == agent
        stale = generation not in (None, self.generation.get(step))
        try:
            self.sides[side].release(step, agent, generation)
        except StepLeaseNotHeld:
            assert not expected
        except StaleGeneration:
            assert expected
            assert stale
        else:
            assert expected
            assert not stale
            self.seq += 1
            del self.held[step]

    @rule(agent=agents)
    def exit(self, agent: str) -> None:
        self.log.append("agent.exited", agent_id=agent)
        self.seq += 1
        self.held = {step: held for step, held in self.held.items() if held[0] != agent}

    @rule()
    def tick(self) -> None:
        self.log.append("tick")
        self.seq += 1

    @invariant()
    def everyone_sees_the_same(self) -> None:
        for leases in self.sides:
            for step in ("s", "t"):
                lease = leases.get(step)
                assert (lease and lease.holder_agent_id) == self.now(step)
        assert self.log.seq == self.seq

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            fingerprint = self.log.fingerprint()
            assert Journal(relaxed(self.folder.name)).fingerprint() == fingerprint
            self.folder.cleanup()


TestLeaseMachine = LeaseMachine.TestCase
TestLeaseMachine.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
