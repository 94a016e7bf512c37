"""Claims of agents that are gone; what lies about among the tasks."""

from __future__ import annotations

from hivemind import Hive
from hivemind.doctor import DoctorContext, examine
from hivemind.presence.identity import lock_name
from hivemind.presence.watching import supervisor_lock


def claimed_by(hive: Hive, agent: str) -> str:
    task_id = hive.tasks.add("What is a lease?")
    task = hive.tasks.claim(agent)
    assert task is not None
    return task_id


def test_the_claim_of_an_agent_that_no_longer_exists_goes_back_with_its_log(hive: Hive, visit, treatment) -> None:
    task_id = claimed_by(hive, "researcher")
    task = hive.tasks.get(task_id)
    hive.tasks.active.log(task, {"kind": "note"})
    (hive.layout.agents / "researcher.yaml").unlink()
    (found,) = visit()
    assert "which does not exist" in found.message
    treatment()
    assert visit() == []
    assert [one.id for one in hive.tasks.list("inbox")] == [task_id]
    (log,) = hive.layout.inbox.glob(f"{task_id}*/messages.jsonl")
    assert log.read_text().endswith('\n{"kind":"note"}\n')


def test_a_file_of_the_schedule_of_which_no_task_is_made_is_told(hive: Hive, visit) -> None:
    hive.layout.schedule.mkdir()
    (hive.layout.schedule / "report.md").write_text('---\nevery: "Mon-Fri 07:30"\n---\nWhat is new?\n')
    assert visit() == []
    (hive.layout.schedule / "slip.md").write_text("---\nevery: every day\n---\nWhat is new?\n")
    (found,) = visit()
    assert found.location == "tasks/schedule/slip.md"
    assert "is not a repeated time" in found.message


def test_the_claim_of_an_agent_that_rests_is_only_a_note(hive: Hive, visit) -> None:
    claimed_by(hive, "researcher")
    assert visit() == []
    (note,) = [finding for finding in examine(DoctorContext(hive.layout)) if finding.note]
    assert "continues it" in note.message


def test_the_claim_of_an_agent_that_does_not_run_in_a_running_swarm_goes_back(hive: Hive, visit, treatment) -> None:
    task_id = claimed_by(hive, "researcher")
    with supervisor_lock(hive.layout.locks):
        (found,) = visit()
        assert "which does not run" in found.message
        treatment()
    assert [one.id for one in hive.tasks.list("inbox")] == [task_id]


def test_the_claim_of_an_agent_that_runs_is_left_alone(hive: Hive, visit) -> None:
    claimed_by(hive, "researcher")
    name = lock_name(hive.layout, "researcher")
    with supervisor_lock(hive.layout.locks):
        assert visit() == []
    name.release()


def test_an_agent_that_comes_back_between_the_look_and_the_mending_keeps_its_claim(hive: Hive) -> None:
    task_id = claimed_by(hive, "researcher")
    with supervisor_lock(hive.layout.locks):
        (found,) = [one for one in examine(DoctorContext(hive.layout)) if not one.note]
    name = lock_name(hive.layout, "researcher")
    assert found.fix is not None
    assert "runs again" in found.fix()
    assert [one.id for one in hive.tasks.list("active")] == [task_id]
    name.release()


def test_a_folder_that_a_person_put_into_active_goes_to_the_inbox(hive: Hive, visit, treatment) -> None:
    (hive.layout.active / "mine").mkdir()
    (hive.layout.active / "mine" / "task.md").write_text("What is a lease?\n")
    assert [finding.location for finding in visit()] == ["tasks/active/mine"]
    treatment()
    assert (hive.layout.inbox / "mine" / "task.md").is_file()
    assert visit() == []


def test_stray_files_and_failures_without_a_reason_are_notes(hive: Hive, visit) -> None:
    (hive.layout.done / "stray.md").write_text("x")
    (hive.layout.failed / "why").mkdir()
    assert visit() == []
    wheres = {note.location for note in examine(DoctorContext(hive.layout)) if note.note}
    assert wheres == {"tasks/done/stray.md", "tasks/failed/why"}


def test_a_task_that_an_mcp_client_left_is_only_a_note_in_a_running_swarm(hive: Hive, visit) -> None:
    (hive.layout.agents / "claude.yaml").write_text("mind: mcp\n")
    claimed_by(hive, "claude")
    with supervisor_lock(hive.layout.locks):
        assert visit() == []
        notes = [finding.message for finding in examine(DoctorContext(hive.layout)) if finding.note]
    assert any("goes back to the inbox (mcp: return_after" in note for note in notes)
