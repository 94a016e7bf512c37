"""hivemind lease: who holds which step; what is refused, and what helps."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.coordination import StaleGeneration, StepLeaseHeld, StepLeaseNotHeld
from hivemind.presence.identity import lock_name
from tests.cli.conftest import Command, Ended

COMMAND = [sys.executable, "-m", "hivemind"]


def planned(hive: Path, *titles: str) -> Hive:
    opened = Hive.open(hive)
    opened.steps.plan("t", [{"title": title} for title in titles or ("Look",)])
    return opened


def proposed(ended: Ended) -> list[list[str]]:
    """The commands of an error's line, as words."""
    return [shlex.split(part)[1:] for part in re.findall(r"hivemind (?:--hive|lease|view|graph)[^,;\n]*", ended.err)]


def test_a_lease_is_claimed_seen_renewed_and_given_back(process: Command, hive: Path) -> None:
    planned(hive, "Look closely")
    claimed = process("lease", "claim", "t.s1", "--agent", "human", "--ttl", "50")
    assert claimed.out == (
        "human holds t.s1 (Look closely) (generation 1).\n"
        "hivemind lease release t.s1 --agent human frees it; otherwise 50 events in the journal do.\n"
    )
    (held,) = process("lease", "list", "--json").json
    assert held == {
        "step_id": "t.s1",
        "task": "t",
        "title": "Look closely",
        "holder_agent_id": "human",
        "acquired_seq": 2,
        "expires_seq": 52,
        "generation": 1,
        "left": 50,
    }
    renewed = process("lease", "renew", "t.s1", "--agent", "human", "--generation", "1", "--ttl", "10", "--json").json
    assert (renewed["generation"], renewed["left"]) == (1, 10)
    assert process("lease", "release", "t.s1", "--agent", "human", "--generation", "1").out == "t.s1 is free.\n"
    assert process("lease", "list").out == "No step is leased.\n"


def test_what_is_left_counts_events(run: Command, hive: Path) -> None:
    opened = planned(hive)
    opened.leases.claim("t.s1", "researcher", ttl_seq=3)
    opened.journal.append("task.noted")
    (held,) = run("lease", "list", "--json").json
    assert held["left"] == 2
    assert run("status", "--json").json["leases"] == [held]
    frees = "hivemind lease release t.s1 --agent researcher"
    assert f"\nLeased:\n  t.s1: researcher; freed by: {frees}\n" in run("status").out
    assert frees in run("lease", "list").out
    lock = lock_name(opened.layout, "researcher")
    for words in ("status", "lease list"):
        assert "researcher ends the step, or its process ends" in run(*words.split()).out
    lock.release()
    opened.journal.append("task.noted")
    opened.journal.append("task.noted")
    assert run("lease", "list", "--json").json == run("status", "--json").json["leases"] == []


def test_leases_are_listed_as_people_count_and_by_agent(run: Command, hive: Path) -> None:
    opened = planned(hive, *map(str, range(11)))
    for number, agent in ((10, "analyst"), (2, "researcher"), (1, "analyst")):
        opened.leases.claim(f"t.s{number}", agent)
    rows = run("lease", "list").out.splitlines()
    assert [row.split()[0] for row in rows] == ["STEP", "t.s1", "t.s2", "t.s10"]
    assert [one["step_id"] for one in run("lease", "list", "--agent", "Analyst", "--json").json] == ["t.s1", "t.s10"]
    assert run("lease", "list", "--agent", "reviewer").out == "No step is leased by reviewer.\n"


def test_claiming_a_step_again_leaves_the_lease_unchanged(run: Command, hive: Path) -> None:
    opened = planned(hive)
    run("lease", "claim", "t.s1", "--agent", "human", "--ttl", "9")
    opened.journal.append("task.noted")
    before = opened.journal.seq
    assert run("lease", "claim", "t.s1", "--agent", "human", "--json").json["left"] == 8
    assert opened.journal.seq == before
    assert run("lease", "renew", "t.s1", "--agent", "human", "--json").json["left"] == 200


def test_a_step_that_another_holds_is_refused_with_what_helps(process: Command, hive: Path) -> None:
    opened = planned(hive)
    opened.leases.claim("t.s1", "researcher")
    refused = process("lease", "claim", "t.s1", "--agent", "human")
    assert (refused.status, refused.out) == (1, "")
    assert refused.err == (
        "hivemind: STEP_LEASE_HELD: step t.s1 is leased by researcher, not by human; "
        "hivemind lease list, or hivemind lease claim t.s1 --agent human --force\n"
    )
    look, force = proposed(refused)
    assert "researcher" in process(*look).out
    assert process(*force).status == 0
    lease = opened.leases.get("t.s1")
    assert lease is not None
    assert (lease.holder_agent_id, lease.generation) == ("human", 2)


def test_commands_that_are_proposed_name_the_hive_that_was_named(
    run: Command, hive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(hive).leases.claim("t.s1", "researcher")
    elsewhere = hive.rename(hive.parent / "a hive")
    monkeypatch.delenv("HIVEMIND_HIVE")
    (elsewhere / ".hive" / "workspace.json").unlink()
    refused = run("--hive", str(elsewhere), "lease", "release", "t.s1", "--agent", "human")
    assert "STEP_LEASE_NOT_HELD" in refused.err
    assert [run(*words).status for words in proposed(refused)] == [0, 0]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["claim", "t.s1", "--agent", "human"], StepLeaseHeld),
        (["renew", "t.s1", "--agent", "human"], StepLeaseNotHeld),
        (["release", "t.s1", "--agent", "human"], StepLeaseNotHeld),
        (["renew", "t.s1", "--agent", "researcher", "--generation", "7"], StaleGeneration),
        (["release", "t.s1", "--agent", "researcher", "--generation", "0"], StaleGeneration),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value.code,
)
def test_a_refusal_is_status_1_and_with_json_the_error_itself(
    run: Command, hive: Path, words: list[str], kind: type[StepLeaseHeld]
) -> None:
    opened = planned(hive)
    opened.leases.claim("t.s1", "researcher")
    before = opened.journal.seq
    ended = run("lease", *words, "--json")
    assert ended.status == 1
    assert ended.json["code"] == kind.code
    assert all(one["call"].startswith("hive.") for one in ended.json["suggestions"])
    assert ended.err.startswith(f"hivemind: {kind.code}: ")
    assert ended.err.count("\n") == 1
    assert opened.journal.seq == before


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["claim", "t.s1", "--agent", "../x"], "INVALID_AGENT_ID"),
        (["claim", "t.s1", "--agent", "human", "--ttl", "0"], "INVALID_TTL"),
        (["claim", "t.s1", "--agent", "human", "--ttl", "10001"], "INVALID_TTL"),
        (["claim", "", "--agent", "human"], "INVALID_STEP_ID"),
        (["claim", "a\x1b[2Jb", "--agent", "human"], "INVALID_STEP_ID"),
        (["list", "--agent", "a b"], "INVALID_AGENT_ID"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_what_can_never_be_is_status_2(run: Command, hive: Path, words: list[str], code: str) -> None:
    ended = run("lease", *words)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"hivemind: {code}: ")
    assert "\x1b" not in ended.err
    assert Hive.open(hive).journal.seq == 0


def test_a_step_that_no_task_has_is_refused_and_shown_if_a_program_has_leased_it(run: Command, hive: Path) -> None:
    refused = run("lease", "claim", "t.s9", "--agent", "human")
    assert (refused.status, refused.err.split(":")[1].strip()) == (2, "UNKNOWN_STEP")
    Hive.open(hive).leases.claim("t.s9", "human")
    assert "which no task has (yet)" in run("lease", "renew", "t.s9", "--agent", "human").out
    assert run("lease", "list", "--json").json[0]["task"] is None


def test_a_step_that_is_done_and_one_of_a_task_that_is_over_cannot_be_claimed(run: Command, hive: Path) -> None:
    opened = planned(hive, "Look", "Decide")
    opened.steps.verify("t.s1")
    opened.steps.done("t.s1")
    done = run("lease", "claim", "t.s1", "--agent", "human")
    assert (done.status, "WRONG_STATUS: step t.s1 is done" in done.err) == (1, True)
    opened.journal.append("task.failed", task_id="t", title="T")
    over = run("lease", "claim", "t.s2", "--agent", "human", "--force")
    assert (over.status, "TASK_OVER" in over.err, "hivemind task retry t" in over.err) == (2, True, True)
    assert run("lease", "list", "--json").json == []


def test_a_renewal_that_names_no_length_never_shortens_a_lease(run: Command, hive: Path) -> None:
    planned(hive)
    run("lease", "claim", "t.s1", "--agent", "human", "--ttl", "5000")
    assert run("lease", "renew", "t.s1", "--agent", "human", "--json").json["left"] >= 4999


def test_what_a_stale_holder_is_told_to_type_works(run: Command, hive: Path) -> None:
    opened = planned(hive)
    opened.leases.claim("t.s1", "researcher")
    opened.leases.claim("t.s1", "human", force=True)
    refused = run("lease", "renew", "t.s1", "--agent", "human", "--generation", "1")
    suggested = refused.err.strip().rpartition(", or ")[2].split()
    assert (refused.status, suggested[0]) == (1, "hivemind")
    assert run(*suggested[1:]).status == 0
    opened.leases.claim("t.s1", "reviewer", force=True)
    with pytest.raises(StaleGeneration) as stale:
        opened.leases.renew("t.s1", "reviewer", 1)
    assert stale.value.suggestions[1]["arguments"] == {"step": "t.s1"}


def test_of_processes_that_claim_one_step_at_once_one_gets_it(hive: Path) -> None:
    planned(hive)
    racing = [
        subprocess.Popen(
            [*COMMAND, "lease", "claim", "t.s1", "--agent", f"racer-{number}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(6)
    ]
    ended = [(*one.communicate(timeout=60), one.returncode) for one in racing]
    assert sorted(status for *_, status in ended) == [0, 1, 1, 1, 1, 1]
    assert all(("STEP_LEASE_HELD" in err) == (status == 1) for _, err, status in ended)
    assert len(Hive.open(hive).leases.list()) == 1
