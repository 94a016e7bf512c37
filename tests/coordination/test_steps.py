from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hivemind.coordination import (
    CheckpointsNotConfirmed,
    CoordinationError,
    Journal,
    ProofRequired,
    Receipt,
    RevisionMismatch,
    StaleGeneration,
    StepLeaseHeld,
    StepLeases,
    Steps,
    UnknownStep,
    WrongStatus,
)
from tests.durability import relaxed

ALL = ("criteria", "tests", "security", "perf", "docs")
CMD = {"kind": "CMD", "text": "pytest -q", "exit_status": 0}
LINK = {"kind": "LINK", "text": "https://ci.example/7"}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(relaxed(tmp_path / "journal"))


@pytest.fixture
def steps(journal: Journal) -> Steps:
    return Steps(journal)


@pytest.fixture
def leases(journal: Journal) -> StepLeases:
    return StepLeases(journal)


def test_a_step_has_what_it_was_given(steps: Steps) -> None:
    step = steps.add(
        "Task", " Write it ", success_criteria=["it reads well"], tests="pytest", proof="warn", meta={"run": "x"}
    )
    assert (step.id, step.task, step.position, step.path) == ("task.s1", "task", 1, "1")
    assert (step.title, step.success_criteria, step.tests) == ("Write it", ("it reads well",), ("pytest",))
    assert (step.proof, step.status, step.revision, dict(step.meta)) == ("warn", "open", 1, {"run": "x"})
    assert step.checkpoints == dict.fromkeys(ALL, False)
    assert steps.get("task.s1") == step


def test_a_plan_is_one_line_and_ids_are_never_used_again(journal: Journal, steps: Steps) -> None:
    planned = steps.plan("t", [{"title": "one"}, {"title": "two", "proof": "require"}])
    assert [step.id for step in planned] == ["t.s1", "t.s2"]
    assert journal.seq == 1
    steps.delete("t.s2")
    assert steps.add("t", "three").id == "t.s3"
    assert [(step.position, step.id) for step in steps.list("t")] == [(1, "t.s1"), (2, "t.s3")]
    assert steps.plan("t", []) == []


@pytest.mark.parametrize(
    "given", [{"title": ""}, {"title": "x", "proof": "maybe"}, {"title": "x", "tests": [1]}, {"title": "x", "colour": 1},
              {"title": "x", "meta": {"f": print}}, {}]
)  # fmt: skip
def test_what_is_no_step_is_refused(journal: Journal, steps: Steps, given: dict[str, Any]) -> None:
    with pytest.raises(CoordinationError):
        steps.plan("t", [{"title": "good"}, given])
    assert journal.seq == 0


def test_closing_needs_criteria_and_tests(steps: Steps) -> None:
    step = steps.add("t", "x")
    with pytest.raises(CheckpointsNotConfirmed) as caught:
        steps.done(step.id)
    assert "not confirmed for: criteria, tests;" in str(caught.value)
    steps.verify(step.id, "criteria")
    with pytest.raises(CheckpointsNotConfirmed) as caught:
        steps.done(step.id)
    assert "not confirmed for: tests;" in str(caught.value)
    assert eval(caught.value.suggestions[1]["call"], {"hive": type("Hive", (), {"steps": steps})}).confirmed == ALL[:2]
    assert steps.done(step.id).status == "done"


def test_other_checkpoints_are_needed_once_a_note_or_a_receipt_or_the_caller_names_them(steps: Steps) -> None:
    step = steps.add("t", "x")
    steps.verify(step.id)
    steps.note(step.id, "measured", checkpoint="perf")
    steps.capture(step.id, CMD, checkpoint="security")
    with pytest.raises(CheckpointsNotConfirmed) as caught:
        steps.done(step.id, checkpoints=["docs"])
    assert "not confirmed for: security, perf, docs;" in str(caught.value)
    steps.verify(step.id, ("security", "perf"))
    assert steps.done(step.id).status == "done"


def test_proof_mode_require_needs_every_checkpoint_and_a_receipt(steps: Steps) -> None:
    step = steps.add("t", "x", proof="require")
    steps.verify(step.id)
    with pytest.raises(CheckpointsNotConfirmed):
        steps.done(step.id, evidence=[CMD])
    steps.verify(step.id, ALL)
    with pytest.raises(ProofRequired) as caught:
        steps.done(step.id)
    assert caught.value.code == "PROOF_REQUIRED"
    assert steps.done(step.id, evidence=[CMD]).warnings == ("PROOF_WEAK",)


@pytest.mark.parametrize(
    "receipt",
    [{**CMD, "exit_status": 1}, {**CMD, "text": "<fill in>"}, {**CMD, "text": "run <fill the test>"}, {**CMD, "text": " TODO "},
     {**CMD, "text": "todo: run it"}, {**CMD, "text": "<command>"}, {**CMD, "text": ""}, {**CMD, "text": "..."},
     {**LINK, "text": "../outside"}, {**LINK, "text": "/etc/passwd"}, {**LINK, "text": "http://"}]
)  # fmt: skip
def test_what_proves_nothing_closes_nothing(steps: Steps, receipt: dict[str, Any]) -> None:
    step = steps.add("t", "x", proof="require")
    steps.verify(step.id, ALL)
    with pytest.raises(ProofRequired):
        steps.done(step.id, evidence=[receipt])
    assert steps.done(step.id, evidence=[CMD, LINK]).warnings == ()


@pytest.mark.parametrize("receipt", [CMD, {**CMD, "text": "grep TODO src"}, {**CMD, "text": "sort <in >out"}, LINK,
                                     {**LINK, "text": "tasks/done/t/result.md"}])  # fmt: skip
def test_what_is_a_proof_counts(receipt: dict[str, Any]) -> None:
    assert Receipt(**receipt).is_proof


def test_proof_mode_warn_says_what_is_missing_and_closes(steps: Steps) -> None:
    step = steps.add("t", "x", proof="warn")
    steps.verify(step.id)
    assert steps.done(step.id).warnings == ("PROOF_MISSING",)
    steps.reopen(step.id, "not so")
    steps.verify(step.id)
    steps.capture(step.id, CMD)
    assert steps.done(step.id, evidence=LINK).warnings == ()


@pytest.mark.parametrize(
    "evidence", [{"kind": "SAY"}, {"kind": "CMD"}, {**CMD, "x": 1}, {**CMD, "exit_status": "0"}, "CMD", [7]]
)
def test_what_is_no_receipt_is_refused(steps: Steps, evidence: Any) -> None:
    step = steps.add("t", "x")
    with pytest.raises(CoordinationError) as caught:
        steps.capture(step.id, evidence)
    assert caught.value.code == "INVALID_RECEIPT"


def test_redefining_criteria_or_tests_clears_that_confirmation(steps: Steps, journal: Journal) -> None:
    step = steps.add("t", "x")
    steps.verify(step.id, ALL)
    assert steps.define(step.id, title="y").confirmed == ALL
    assert steps.define(step.id, tests=["other"]).missing_checkpoints() == ("tests",)
    assert steps.define(step.id, success_criteria=[]).missing_checkpoints() == ("criteria", "tests")
    assert [event.kind for event in journal.read()][-3:] == ["step.defined"] * 3


def test_a_stale_revision_is_refused_and_leaves_no_event(journal: Journal, steps: Steps) -> None:
    step = steps.add("t", "x")
    steps.note(step.id, "a note")
    for change in MUTATIONS.values():
        before = journal.seq
        with pytest.raises(RevisionMismatch) as caught:
            change(steps, step.id, expected_revision=1)
        assert (caught.value.code, journal.seq) == ("REVISION_MISMATCH", before)
        assert "at revision 2, not 1" in str(caught.value)
    assert steps.note(step.id, "b", expected_revision=2).revision == 3


MUTATIONS: dict[str, Callable[..., Any]] = {
    "define": lambda steps, step, **who: steps.define(step, title="new", **who),
    "note": lambda steps, step, **who: steps.note(step, "a note", **who),
    "capture": lambda steps, step, **who: steps.capture(step, CMD, **who),
    "verify": lambda steps, step, **who: steps.verify(step, **who),
    "block": lambda steps, step, **who: steps.block(step, "waiting", **who),
    "unblock": lambda steps, step, **who: steps.unblock(step, **who),
    "done": lambda steps, step, **who: steps.done(step, **who),
    "reopen": lambda steps, step, **who: steps.reopen(step, **who),
    "delete": lambda steps, step, **who: steps.delete(step, **who),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_change_of_a_leased_step_needs_its_holder(
    journal: Journal, steps: Steps, leases: StepLeases, name: str
) -> None:
    step = steps.add("t", "x")
    steps.verify(step.id)
    if name == "unblock":
        steps.block(step.id)
    if name == "reopen":
        steps.done(step.id)
    lease = leases.claim(step.id, "ada")
    before = journal.seq
    for who in ({}, {"agent_id": "bob"}, {"agent_id": "bob", "generation": 1}):
        with pytest.raises(StepLeaseHeld):
            MUTATIONS[name](steps, step.id, **who)
    with pytest.raises(StaleGeneration):
        MUTATIONS[name](steps, step.id, agent_id="ada", generation=lease.generation + 1)
    assert journal.seq == before
    MUTATIONS[name](steps, step.id, agent_id="ADA", generation=lease.generation)
    assert journal.seq == before + 1


def test_the_lease_is_checked_before_revision_checkpoints_and_proof(steps: Steps, leases: StepLeases) -> None:
    step = steps.add("t", "x", proof="require")
    leases.claim(step.id, "ada")
    with pytest.raises(StepLeaseHeld):
        steps.done(step.id, agent_id="bob", expected_revision=9)
    with pytest.raises(RevisionMismatch):
        steps.done(step.id, agent_id="ada", expected_revision=9)
    with pytest.raises(CheckpointsNotConfirmed):
        steps.done(step.id, agent_id="ada")
    steps.verify(step.id, ALL, agent_id="ada")
    with pytest.raises(ProofRequired):
        steps.done(step.id, agent_id="ada")


def test_closing_a_step_ends_its_lease_in_one_event(journal: Journal, steps: Steps, leases: StepLeases) -> None:
    step = steps.add("t", "x")
    leases.claim(step.id, "ada")
    steps.verify(step.id, agent_id="ada")
    before = journal.seq
    steps.done(step.id, agent_id="ada")
    assert leases.get(step.id) is None
    assert journal.seq == before + 1


def test_a_task_ends_only_if_nobody_else_holds_one_of_its_steps(steps: Steps, leases: StepLeases) -> None:
    leases.claim(steps.add("t", "x").id, "ada")
    with pytest.raises(StepLeaseHeld):
        steps.check_end("t", agent_id="bob")
    steps.check_end("t", agent_id="ada")
    event = steps.end_task("t", "failed", agent_id="ada", reason="why")
    assert (event.kind, event.payload["reason"]) == ("task.failed", "why")


def test_a_guard_holds_the_lease_still_while_a_card_is_written(steps: Steps, leases: StepLeases) -> None:
    leases.claim("t.s1", "ada")
    with pytest.raises(StepLeaseHeld), steps.freeze_leases({"t.s1": None}, "bob"):
        pytest.fail("entered")
    with steps.freeze_leases({"t.s1": 1}, "ada"):
        assert leases.get("t.s1") is not None


def test_statuses_follow_each_other(steps: Steps) -> None:
    step = steps.add("t", "x")
    with pytest.raises(WrongStatus):
        steps.reopen(step.id)
    with pytest.raises(WrongStatus):
        steps.unblock(step.id)
    assert steps.block(step.id, "no key").blocked_reason == "no key"
    steps.verify(step.id)
    with pytest.raises(WrongStatus):
        steps.done(step.id)
    assert steps.unblock(step.id).blocked_reason is None
    steps.done(step.id)
    for change in ("define", "verify", "block", "done"):
        with pytest.raises(WrongStatus):
            MUTATIONS[change](steps, step.id)
    assert steps.reopen(step.id).confirmed == ()


def test_an_unknown_step_is_named(steps: Steps) -> None:
    for change in (lambda: steps.get("nope"), lambda: steps.note("nope", "x")):
        with pytest.raises(UnknownStep):
            change()


class StepMachine(RuleBasedStateMachine):
    """Random changes by random callers against a model of revision, status, confirmations and holder."""

    who = st.sampled_from([None, "ada", "bob"])

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.journal = Journal(relaxed(self.folder.name))
        self.steps, self.leases = Steps(self.journal), StepLeases(self.journal)
        self.step = self.steps.add("t", "x", proof="require").id
        self.revision, self.status, self.confirmed, self.proven = 1, "open", set[str](), False
        self.holder: str | None = None

    def change(self, name: str, who: str | None, expected: int | None, fits: bool, **more: Any) -> bool:
        allowed = self.holder in (None, who)
        current = expected in (None, self.revision)
        before = self.journal.seq
        try:
            getattr(self.steps, name)(self.step, agent_id=who, expected_revision=expected, **more)
        except StepLeaseHeld:
            assert not allowed
        except RevisionMismatch:
            assert allowed
            assert not current
        except CoordinationError:
            assert allowed
            assert current
            assert not fits
        else:
            assert allowed
            assert current
            assert fits
            assert self.journal.seq == before + 1
            self.revision += 1
            return True
        assert self.journal.seq == before
        return False

    expectations = st.none() | st.integers(1, 4)

    @rule(who=who, names=st.sets(st.sampled_from(ALL), min_size=1), expected=expectations)
    def verify(self, who: str | None, names: set[str], expected: int | None) -> None:
        if self.change("verify", who, expected, self.status != "done", checkpoints=names):
            self.confirmed |= names

    @rule(who=who, expected=expectations)
    def redefine(self, who: str | None, expected: int | None) -> None:
        if self.change("define", who, expected, self.status != "done", tests=["t"]):
            self.confirmed.discard("tests")

    @rule(who=who, receipt=st.none() | st.sampled_from([CMD, {**CMD, "exit_status": 2}]), expected=expectations)
    def done(self, who: str | None, receipt: dict[str, Any] | None, expected: int | None) -> None:
        proven = self.proven or receipt is CMD
        fits = self.status == "open" and self.confirmed == set(ALL) and proven
        if self.change("done", who, expected, fits, evidence=[receipt] if receipt else []):
            self.status, self.holder, self.proven = "done", None, proven

    @rule(who=who)
    def reopen(self, who: str | None) -> None:
        if self.change("reopen", who, None, self.status == "done"):
            self.status, self.confirmed = "open", set()

    @rule(who=who, name=st.sampled_from(["block", "unblock"]))
    def stop(self, who: str | None, name: str) -> None:
        if self.change(name, who, None, self.status == "blocked" or (name == "block" and self.status == "open")):
            self.status = "blocked" if name == "block" else "open"

    @rule(who=st.sampled_from(["ada", "bob"]))
    def take(self, who: str) -> None:
        self.leases.claim(self.step, who, ttl_seq=10_000, force=True)
        self.holder = who

    @rule()
    def exit(self) -> None:
        self.journal.append("agent.exited", agent_id="ada")
        self.holder = None if self.holder == "ada" else self.holder

    @invariant()
    def the_step_is_what_the_model_says(self) -> None:
        step, lease = self.steps.get(self.step), self.leases.get(self.step)
        assert (step.revision, step.status, set(step.confirmed)) == (self.revision, self.status, self.confirmed)
        assert (lease and lease.holder_agent_id) == self.holder

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            assert Journal(self.folder.name).fingerprint() == self.journal.fingerprint()
            self.folder.cleanup()


TestStepMachine = StepMachine.TestCase
TestStepMachine.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
