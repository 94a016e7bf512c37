"""Commands that a mind runs: a failure is a result, each output a file of its own, and a receipt exists because it ran."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.errors import UserError
from hivemind.minds.extractive import ExtractiveMind
from hivemind.sandbox import check_sandbox
from hivemind.tasks.folder import why_failed
from hivemind.tools import TOOLS
from tests.agent.conftest import Crew, doing, hands, until_idle, using_tools
from tests.messages import calls_of

SHELL = "role: analyst\nshell: true\n"


def test_a_command_that_fails_is_a_result_that_a_reader_can_read(crew: Crew) -> None:
    crew.agent_file(SHELL)
    use = hands(crew)
    record = use("run_command", command="echo one; echo two >&2; exit 3")
    assert "error" not in record
    text = TOOLS["run_command"].text(record["result"])
    head, _, rest = text.partition("\n")
    assert (head.split(" after ")[0], head[-2:], rest) == ("exit 3", " s", "one\ntwo\n")
    assert "(it printed nothing)" in TOOLS["run_command"].text(use("run_command", command="true")["result"])


def test_a_command_ends_when_the_parent_of_its_agent_is_gone(crew: Crew) -> None:
    crew.agent_file(SHELL)
    crew.drop("---\nsteps: [{title: x}]\n---\nx\n")
    agent = crew.start()
    agent.stop_request.lifeline, end = os.pipe()
    os.close(end)
    try:
        assert "the agent is stopping" in using_tools(agent)("run_command", command="sleep 60")["error"]
    finally:
        os.close(agent.stop_request.lifeline)


def test_a_result_says_that_a_command_failed_which_printed_nothing(crew: Crew) -> None:
    crew.agent_file("role: analyst\nshell: true\n")
    use = hands(crew)
    use("run_command", command="exit 3")
    use("finish_step")
    use("finish_task", result="It failed.")
    assert "`exit 3` ended with status 3 and printed:" in (crew.root / "tasks/done/t/result.md").read_text()


def test_a_task_whose_run_step_fails_still_fails_with_what_it_printed_last(crew: Crew) -> None:
    crew.drop("---\nsteps: [{run: 'echo before; echo the reason; exit 4'}]\n---\nx\n")
    until_idle(crew.start())
    error = (crew.root / "tasks/failed/t/error.md").read_text()
    assert "ended with status 4" in error
    assert "the reason" in error
    why = why_failed(crew.root / "tasks/failed/t")
    assert why is not None
    assert why.endswith("exit 4` ended with status 4")  # what it printed is not told in one line


def test_a_run_step_whose_time_is_up_says_so_and_names_no_status(crew: Crew) -> None:
    crew.drop("---\nsteps: [{run: sleep 100, timeout: 1s}]\n---\nx\n")
    until_idle(crew.start())
    error = (crew.root / "tasks/failed/t/error.md").read_text()
    assert re.search(r"`sleep 100` was stopped after [\d.]+ s: its time of 1 s was up; it had no output", error)


def test_the_end_of_a_long_output_is_in_the_result_with_the_size_of_the_rest(crew: Crew) -> None:
    crew.agent_file("limits: {output_bytes: 20000}\n")
    crew.drop("---\nsteps: [{run: seq 100000}]\n---\nx\n")
    until_idle(crew.start())
    size = (crew.root / "tasks/done/t/artifacts/step-1.out").stat().st_size
    assert 20_000 < size < 21_000
    assert (
        f"[the last 8,192 of the {size:,} bytes in artifacts/]\n" in (crew.root / "tasks/done/t/result.md").read_text()
    )


def test_a_step_that_ends_the_swarm_it_works_in_is_refused(crew: Crew) -> None:
    """It ended the swarm at each `up`, which ran it again."""
    crew.drop(f"---\nsteps: [{{run: {sys.executable} -m hivemind down}}]\n---\nx\n")
    until_idle(crew.start())
    assert "cannot end the swarm that it runs in" in (crew.root / "tasks/failed/t/error.md").read_text()
    other = crew.root.parent / "other"
    Hive.init(other)
    crew.drop(f"---\nsteps: [{{run: {sys.executable} -m hivemind --hive {other} down}}]\n---\nx\n", "other.md")
    until_idle(crew.start())
    assert "Nothing is up" in (crew.root / "tasks/done/other/result.md").read_text()


def test_a_command_that_an_agent_wrote_may_not_do_with_hivemind_what_a_person_may(crew: Crew) -> None:
    """Found by a stranger: whoever was allowed the one program could stop agents and cancel what others had been given."""
    crew.agent_file(f"role: analyst\ncommands: [{sys.executable}]\n")
    use = hands(crew)
    program = [sys.executable, "-m", "hivemind"]
    refused = use("run_command", command=[*program, "agent", "stop", "bob"])["result"]
    assert refused["exit_status"] == 2
    assert "hivemind agent stop is not for a command that an agent (ada) wrote; its tools do what" in refused["output"]
    assert use("run_command", command=[*program, "task", "list"])["result"]["exit_status"] == 0


def test_a_persons_run_step_may_do_with_hivemind_what_the_person_may(crew: Crew) -> None:
    Hive.open(crew.root).tasks.add("Wait.", id="waiting", assignee="bob")
    crew.drop(f"---\nsteps: [{{run: {sys.executable} -m hivemind --hive {crew.root} task cancel waiting}}]\n---\nx\n")
    until_idle(crew.start())
    assert (crew.root / "tasks/done/t").is_dir()
    assert (crew.root / "tasks/failed/waiting").is_dir()


def killing_its_reaper(crew: Crew, times: int) -> None:
    """A task whose command ends with its reaper, so many times."""
    kill = f"cd {crew.root}; [ $(cat ran | wc -l) -ge {times} ] && echo done || {{ echo >> ran; kill -9 $PPID; sleep 100; }}"
    (crew.root / "ran").touch()
    crew.drop(f"---\nsteps: [{{run: '{kill}'}}]\n---\nx\n")
    until_idle(crew.start())


def test_a_command_whose_reaper_is_killed_was_interrupted_and_is_run_again(crew: Crew) -> None:
    """Found by killing reapers under the scenario tasks: three times in a row were taken for the task's own fault."""
    killing_its_reaper(crew, 4)
    assert "done" in (crew.root / "tasks/done/t/result.md").read_text()
    assert "was interrupted" in calls_of(crew.root / "tasks/done/t")[0]["error"]


def test_a_command_that_always_ends_with_its_reaper_fails_its_task_in_the_end(crew: Crew) -> None:
    killing_its_reaper(crew, 100)
    assert "times during this task" in (crew.root / "tasks/failed/t/error.md").read_text()


CANCEL = f"{sys.executable} -m hivemind task cancel t"
TAKE_AWAY = "mv $HIVEMIND_HIVE/tasks/active/t $HIVEMIND_HIVE/tasks/failed/t"


@pytest.mark.parametrize(
    ("by", "how"),
    [
        ("mind", TAKE_AWAY),
        ("run", f"{CANCEL}; exec >&- 2>&-"),  # the end of its pipe is not its end
        ("run", TAKE_AWAY),
    ],
)
def test_the_command_of_a_task_that_is_taken_away_is_ended_and_its_agent_goes_on(crew: Crew, by: str, how: str) -> None:
    """A cancelled task kept its agent, and its command ran on to its end."""
    crew.agent_file(SHELL)
    command = f"{how}; sleep 20; touch {crew.root}/over"
    step = f"run: {command!r}" if by == "run" else "title: x"
    crew.drop(f"---\nsteps: [{{{step}}}]\n---\nx\n")
    agent = crew.start(None if by == "run" else doing(("run_command", {"command": command})))
    agent.cycle()
    assert not (crew.root / "over").exists()
    assert (crew.root / "tasks/failed/t").is_dir()
    assert agent.hive.leases.list() == []
    crew.drop("---\nsteps: [{run: echo next}]\n---\nx\n", "next.md")
    agent.mind = ExtractiveMind()
    until_idle(agent)
    assert (crew.root / "tasks/done/next").is_dir()


def test_three_failing_commands_in_a_row_do_not_fail_the_task(crew: Crew) -> None:
    crew.agent_file(SHELL)
    crew.drop("---\nsteps: [{title: x}]\n---\nx\n")
    agent = crew.start(doing(("run_command", {"command": "exit 1"})))
    for _ in range(5):
        agent.cycle()
    assert (crew.root / "tasks/active/t").is_dir()
    assert sorted(path.name for path in (crew.root / "tasks/active/t/artifacts").iterdir()) == [
        "step-1.2.out", "step-1.3.out", "step-1.4.out", "step-1.5.out", "step-1.out",
    ]  # fmt: skip


def test_a_long_output_is_shown_with_its_head_and_tail_and_read_on_by_its_lines(crew: Crew) -> None:
    crew.agent_file(SHELL)
    use = hands(crew)
    result = use("run_command", command="seq 1 60000; echo end; exit 1")["result"]
    text = TOOLS["run_command"].render(result, 10_000)
    assert len(text) <= 10_000
    assert "\n1\n2\n" in text
    assert text.endswith("\n60000\nend\n")
    call = text.partition("characters left out")[2].partition(": ")[2].partition("]")[0]
    tool, _, arguments = call.partition("(")
    given = dict(part.split("=") for part in arguments.rstrip(")").split(", "))
    assert (tool, given["path"]) == ("read_file", f'"{result["output_path"]}"')
    first, last = int(given["start_line"]), int(given["end_line"])
    assert f"\n{first - 1}\n[" in text
    assert f"]\n{last + 1}\n" in text
    part = use("read_file", path=result["output_path"], start_line=first, end_line=first + 1)["result"]
    assert part["text"] == f"{first}\n{first + 1}\n"


def test_a_text_is_for_the_shell_only_where_the_agents_file_says_so(crew: Crew) -> None:
    crew.agent_file("commands: [echo]\n")
    use = hands(crew)
    assert use("run_command", command="echo a; echo b")["result"]["output"] == "a; echo b\n"
    assert "is not one of the programs" in use("run_command", command="seq 3 | tail -1")["error"]
    crew.close()
    crew.agent_file(SHELL)
    crew.drop("x\n", "unused.md")
    assert hands(crew)("run_command", command="seq 3 | tail -1")["result"]["output"] == "3\n"


def test_a_command_starts_in_the_tasks_folder_or_below_a_root_and_nowhere_else(crew: Crew) -> None:
    root = crew.root.parent / "app"
    (root / "src").mkdir(parents=True)
    crew.configure("roots: [../app]\n")
    crew.agent_file(SHELL)
    use = hands(crew)
    assert use("run_command", command="pwd")["result"]["output"].endswith("/tasks/active/t/files\n")
    assert use("run_command", command="pwd", cwd=f"{root}/src")["result"]["output"] == f"{root}/src\n"
    for cwd, told in {
        "knowledge": "nor in a root",
        "rom": "nor in a root",
        "/etc": "absolute",
        f"{root}/none": "is not a folder",
    }.items():
        assert told in use("run_command", command="pwd", cwd=cwd)["error"]


def test_a_command_ends_at_its_own_time_limit_and_that_is_a_result(crew: Crew) -> None:
    crew.agent_file(SHELL)
    result = hands(crew)("run_command", command="echo begun; sleep 100", timeout_s=0.5)["result"]
    assert (result["exit_status"], result["stopped"], result["output"]) == (124, "its time of 0.5 s was up", "begun\n")


def test_a_receipt_exists_because_the_runtime_ran_the_command_and_is_named_by_its_id(crew: Crew) -> None:
    crew.agent_file(SHELL)
    use = hands(crew, "---\nproof: require\nsteps: [{title: x}]\n---\nx\n")
    made = {"kind": "CMD", "text": "pytest -q", "exit_status": 0}
    assert "evidence" in use("finish_step", evidence=[made])["error"]
    assert "needs a proof" in use("finish_step")["error"]
    assert "is only a file" in use("finish_step", evidence=["rom/hive.md"])["error"]
    assert "is not a receipt" in use("finish_step", evidence=["t.s1#1"])["error"]
    assert use("run_command", command="exit 1")["result"]["receipt"] == "t.s1#1"
    assert "its command failed" in use("finish_step", evidence=["t.s1#1"])["error"]
    assert use("run_command", command="true")["result"]["receipt"] == "t.s1#2"
    assert use("finish_step", evidence=["t.s1#2"])["result"]["status"] == "done"


def test_a_file_that_is_named_as_evidence_must_be_there_and_its_digest_is_the_runtimes(crew: Crew) -> None:
    (crew.root / "knowledge/boats.md").write_text("oak\n")
    use = hands(crew)
    assert "error" in use("add_evidence", evidence=["https://example.org/"])
    assert "error" in use("add_evidence", evidence=["knowledge/none.md"])
    assert use("add_evidence", evidence=["knowledge/boats.md"])["result"]["receipts"] == 1
    [event] = crew.events("evidence.captured")
    [receipt] = event.payload["evidence"]
    digest = subprocess.run(["sha256sum", crew.root / "knowledge/boats.md"], capture_output=True, text=True).stdout[:64]
    assert receipt == {"kind": "LINK", "text": "knowledge/boats.md", "digest": digest}


def test_what_a_command_calls_hivemind_for_is_done_in_its_agents_name_never_in_a_persons(crew: Crew) -> None:
    crew.agent_file(SHELL)
    crew.agent_file("role: analyst\n", "bob")
    use = hands(crew)
    tool = f"{sys.executable} -m hivemind"
    said = use("run_command", command=f"{tool} mail send --to bob Hello && {tool} task add 'Mend it' --id made")[
        "result"
    ]
    assert said["exit_status"] == 0, said["output"]
    hive = Hive.open(crew.root)
    [letter] = hive.mail.list("bob")
    assert (letter.sender, hive.tasks.get("made").maker) == ("ada", "ada")
    asked = hive.mail.send("bob", ["human"], "May I?", "").message_id
    for command in (f"mail reply human {asked} Yes", "mail send --from bob --to human Hello"):
        assert use("run_command", command=f"{tool} {command}")["result"]["exit_status"] != 0
    assert [one.sender for one in hive.mail.list("human")] == ["bob"]


@pytest.fixture
def boxed(crew: Crew) -> Crew:
    try:
        check_sandbox()
    except UserError as error:
        pytest.skip(str(error))
    crew.agent_file(f"{SHELL}sandbox: bwrap\n")
    return crew


def test_the_sandbox_shows_the_roots_read_only_unless_they_may_be_written(boxed: Crew) -> None:
    for name in ("read", "write"):
        (boxed.root.parent / name).mkdir()
        (boxed.root.parent / name / "a.txt").write_text(f"{name}\n")
    boxed.configure("roots: [../read, {path: ../write, write: true}]\n")
    read, write = boxed.root.parent / "read", boxed.root.parent / "write"
    use = hands(boxed)
    assert use("run_command", command=f"cat {read}/a.txt a.txt", cwd=str(write))["result"]["output"] == "read\nwrite\n"
    assert use("run_command", command=f"echo x > {read}/b.txt")["result"]["exit_status"] != 0
    assert use("run_command", command=f"echo x > {write}/b.txt")["result"]["exit_status"] == 0
    assert (sorted(os.listdir(read)), sorted(os.listdir(write))) == (["a.txt"], ["a.txt", "b.txt"])


def test_a_root_around_the_hive_shows_nothing_of_the_hive_in_the_sandbox(boxed: Crew) -> None:
    (boxed.root.parent / "beside.txt").write_text("beside\n")
    boxed.configure("roots: [{path: .., write: true}]\n")
    use = hands(boxed)
    command = f"cat {boxed.root.parent}/beside.txt; ls -A {boxed.root}; pwd"
    output = use("run_command", command=command)["result"]["output"]
    assert output == f"beside\ntasks\n{boxed.root}/tasks/active/t/files\n"


@pytest.mark.parametrize("within", ["ro", "sub/ro", "deep/er/sub/ro"])
def test_a_root_that_may_not_be_written_is_not_moved_with_the_folders_around_it(boxed: Crew, within: str) -> None:
    open_, closed = boxed.root.parent / "open", boxed.root.parent / "open" / within
    closed.mkdir(parents=True)
    (closed / "kept.md").write_text("kept\n")
    boxed.configure(f"roots: [{{path: ../open, write: true}}, ../open/{within}]\n")
    use = hands(boxed)
    for at in range(len(Path(within).parts)):
        around = open_.joinpath(*Path(within).parts[: at + 1])
        assert use("run_command", command=f"mv {around} {open_}/moved-{at}")["result"]["exit_status"] != 0
        assert (closed / "kept.md").read_text() == "kept\n"
    assert use("run_command", command=f"echo x > {open_}/made; mkdir {open_}/new")["result"]["exit_status"] == 0


def test_a_hive_within_a_root_is_not_moved_with_the_folders_around_it(boxed: Crew) -> None:
    around = boxed.root.parent
    boxed.configure("roots: [{path: ../.., write: true}]\n")
    use = hands(boxed)
    assert use("run_command", command=f"mv {around} {around}-moved")["result"]["exit_status"] != 0
    assert boxed.root.is_dir()
