"""What an editor is shown of a task and may decide about it. The agents take their turns in this process."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

from hivemind import Hive
from hivemind.landing.queue import approve
from hivemind.mail.quoted import answer_text
from hivemind.minds import ToolCall
from tests.agent.conftest import wants
from tests.landing.conftest import FINISH, writes
from tests.waiting import until


def link(path: Path, **more) -> dict:
    return {"type": "resource_link", "uri": path.as_uri(), "name": path.name, **more}


def embedded(path: Path, text: str) -> dict:
    return {"type": "resource", "resource": {"uri": path.as_uri(), "text": text, "mimeType": "text/plain"}}


def begin(editor, place, text: str, cwd: Path | None = None):
    """An editor whose first prompt is a task, and the prompt's turn."""
    zed = editor(place.root).start(cwd)
    turn = zed.prompt(text)
    zed.until(lambda: zed.said)
    return zed, turn


def titled(editor, title: str) -> dict:
    """The call with a title that begins so, with its later updates."""
    updates = [update for update in editor.updates if update.get("title", "").startswith(title)]
    assert len({update["toolCallId"] for update in updates}) == 1
    return updates[-1]


def test_calls_have_a_kind_a_place_and_what_they_changed(crew, editor):
    zed = editor(crew.root).start()
    zed.prompt("Write a log")
    zed.until(lambda: "No swarm is running" in zed.said)
    agent = crew.start()
    wants(agent, ("write_file", {"path": "log.md", "text": "old\n"}), task="write-a-log")
    wants(agent, ("edit_file", {"path": "log.md", "old": "old", "new": "new"}), task="write-a-log")
    wants(
        agent,
        ("read_file", {"path": "log.md", "start_line": 1}),
        ("read_file", {"path": "none.md"}),
        ("read_file", {"path": "x" * 5000}),
        task="write-a-log",
    )
    place = str(crew.root / "tasks/active/write-a-log/files/log.md")
    zed.until(lambda: sum(update.get("status") == "failed" for update in zed.updates) == 2)
    edit = titled(zed, "edit_file")
    assert (edit["kind"], edit["locations"], edit["rawInput"]["new"]) == ("edit", [{"path": place}], "new")
    assert edit["content"][0] == {"type": "diff", "path": place, "oldText": "old", "newText": "new"}
    read = titled(zed, "read_file log.md")
    assert (read["kind"], read["locations"]) == ("read", [{"path": place, "line": 1}])
    assert "new" in read["content"][-1]["content"]["text"]
    assert titled(zed, "write_file")["status"] == "completed"


def test_a_call_that_takes_long_is_shown_before_its_end(crew, editor):
    crew.agent_file("shell: true\n")
    zed = editor(crew.root).start()
    zed.prompt("Row")
    agent = crew.start()
    zed.until(lambda: zed.said)
    wants(agent, ("ask_human", {"question": "Where to?"}), task="row")
    zed.until(lambda: any(update.get("title") == "ask_human Where to?" for update in zed.updates))
    assert titled(zed, "ask_human")["status"] == "in_progress"
    zed.prompt("To the island.")
    until(lambda: [*crew.root.glob("mailboxes/ada/new/*")])
    wants(agent, ("finish_task", {"result": "Rowed."}), task="row")
    zed.until(lambda: titled(zed, "ask_human")["status"] == "completed")


def test_what_may_land_is_asked_with_options_and_lands_when_it_is_chosen(harbour, editor):
    harbour.configure(land="ask")
    zed, turn = begin(editor, harbour, "---\nassignee: ada\n---\nSet the mast\n", harbour.repo.path)
    harbour.turn(*writes(mast="a mast\n"), *FINISH)
    harbour.land()
    zed.until(lambda: zed.asked)
    [place] = titled(zed, "write_file mast")["locations"]
    assert place["path"].startswith(f"{harbour.root}/worktrees/")
    [call] = [request["params"]["toolCall"] for request in zed.asked]
    assert call["title"] == "The work is done, and is not in its branch yet: waits for you: hivemind land set-the-mast"
    zed.choose("Let it land")
    until(lambda: not harbour.reason("set-the-mast").startswith("waits for you"))
    harbour.land()
    assert zed.stop_reason(turn) == "end_turn"
    assert "Landed in `main`" in zed.said
    assert Hive.open(harbour.root).tasks.get("set-the-mast").text == "Set the mast"
    assert harbour.state("set-the-mast") == "done"


def test_what_the_person_does_not_let_land_waits_and_the_next_prompt_goes_to_its_agent(harbour, editor):
    harbour.configure(land="ask")
    zed, turn = begin(editor, harbour, "---\nassignee: ada\n---\nSet the mast\n")
    harbour.turn(*writes(mast="a mast\n"), *FINISH)
    harbour.land()
    zed.choose("Not now")
    assert zed.stop_reason(turn) == "end_turn"
    assert zed.said.endswith("Your next message goes to its agent.\n\n")
    turn = zed.prompt("Of oak, please.")
    until(lambda: Hive.open(harbour.root).tasks.get("set-the-mast").said)
    neovim = editor(harbour.root).load(zed.session)
    neovim.until(lambda: "No swarm is running" in neovim.said)
    neovim.call("session/list")
    assert "The work is done" not in neovim.said, "it does not ask what is answered"
    harbour.land()
    harbour.turn(*writes(mast="an oak mast\n"), *FINISH)
    harbour.land()
    neovim.until(lambda: "The work is done" in neovim.said)
    zed.choose("Let it land")
    until(lambda: not harbour.reason("set-the-mast").startswith("waits for you"))
    harbour.land()
    assert zed.stop_reason(turn) == "end_turn"
    assert harbour.repo.git("show", "main:mast") == "an oak mast"


def test_a_question_that_is_answered_elsewhere_is_withdrawn(harbour, editor):
    harbour.configure(land="ask")
    zed, turn = begin(editor, harbour, "---\nassignee: ada\n---\nSet the mast\n")
    harbour.turn(*writes(mast="a mast\n"), *FINISH)
    harbour.land()
    zed.until(lambda: zed.asked)
    approve(Hive.open(harbour.root), "set-the-mast")
    zed.until(lambda: zed.withdrawn == [zed.asked[0]["id"]])
    harbour.land()
    assert zed.stop_reason(turn) == "end_turn"
    zed.choose("Not now")  # too late
    assert zed.call("session/list")["sessions"][0]["title"] == "Set the mast"


def test_a_result_that_no_agent_can_review_is_approved_in_the_editor(crew, editor):
    zed, _ = begin(editor, crew, "---\nreview: {by: judge, criteria: [it floats]}\n---\nBuild a raft\n")
    agent = crew.start()
    wants(agent, ("finish_task", {"result": "A raft."}), task="build-a-raft")
    zed.choose("approved")
    until(lambda: [*crew.root.glob("mailboxes/ada/new/*")])
    [reply] = crew.root.glob("mailboxes/ada/new/*")
    assert answer_text(reply.read_text().partition("\n\n")[2]) == "approved"


def test_answers_that_a_question_proposes_are_options(crew, editor):
    zed, turn = begin(editor, crew, "Row")
    agent = crew.start()
    wants(
        agent,
        ("ask_human", {"question": "May I sink it? Answer `once`, `always for this task` or `deny`."}),
        task="row",
    )
    zed.until(lambda: zed.asked)
    kinds = {option["name"]: option["kind"] for option in zed.asked[0]["params"]["options"]}
    assert kinds == {
        "once": "allow_once", "always for this task": "allow_always", "deny": "reject_once", "Answer in words": "reject_once"
    }  # fmt: skip
    zed.choose("Answer in words")
    assert zed.stop_reason(turn) == "end_turn"
    assert zed.said.endswith("Your next message answers it.\n\n")
    zed.prompt("Only at night.")
    [letter] = until(lambda: [*crew.root.glob("mailboxes/ada/new/*")])
    assert "Only at night." in letter.read_text()


def test_a_prompt_before_the_task_is_claimed_is_added_to_it(crew, editor):
    zed = editor(crew.root).start()
    turns = [zed.prompt("Row"), zed.prompt("And sing")]
    zed.until(lambda: zed.said)
    [addition] = until(lambda: Hive.look(crew.root).tasks.get("row").said)
    assert (addition.by, addition.text) == ("human", "And sing")
    wants(crew.start(), ("finish_task", {"result": "Sung."}), task="row")
    assert [zed.stop_reason(turn) for turn in turns] == ["end_turn", "end_turn"]


def test_a_prompt_reads_no_record_of_a_task_that_ended_before(crew, editor):
    zed = editor(crew.root).start()
    (crew.root / "tasks/done/old").mkdir(parents=True)
    os.mkfifo(crew.root / "tasks/done/old/task.json")  # who reads it, waits
    zed.prompt("Row")
    zed.until(lambda: "No swarm is running" in zed.said)


def test_a_failed_task_says_why_and_what_to_do(crew, editor):
    zed, turn = begin(editor, crew, "Row")
    wants(crew.start(), ("fail_task", {"reason": "There is no boat."}), task="row")
    assert zed.stop_reason(turn) == "end_turn"
    assert "There is no boat." in zed.said
    assert "`hivemind task retry row` tries it again; or write here how to go on." in zed.said


def test_files_of_the_prompt_are_named_in_the_text_and_attached_where_agents_cannot_read_them(crew, editor, tmp_path):
    (crew.root / "knowledge/boats.md").write_text("boats\n")
    (tmp_path / "outside.txt").write_text("far away\n")
    picture = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(b"\x89PNG").decode()}
    page = {"type": "resource_link", "uri": "https://a.example/b", "name": "b"}
    zed = editor(crew.root).start()
    zed.prompt(
        "Compare ", link(crew.root / "knowledge/boats.md"), " with ", link(tmp_path / "outside.txt"), ", ",
        embedded(tmp_path / "buffer.py", "not saved"), " and", picture, page,
    )  # fmt: skip
    zed.until(lambda: zed.said)
    [path] = crew.root.glob("tasks/inbox/*/task.md")
    wants(crew.start(), ("list_files", {}), task=path.parent.name)
    [folder] = [path for path in (crew.root / "tasks/active").iterdir() if not path.name.startswith(".")]
    text = json.loads((folder / "task.json").read_text())["text"].partition("---\n")[2].partition("---\n")[2]
    assert text == (
        f"Compare `knowledge/boats.md` with `{tmp_path}/outside.txt`, `{tmp_path}/buffer.py` and `image-8.png` `https://a.example/b`"
    )
    files = {path.name: path.read_bytes() for path in (folder / "files/attachments").iterdir()}
    assert files == {"outside.txt": b"far away\n", "buffer.py": b"not saved", "image-8.png": b"\x89PNG"}
    zed.prompt("And this: ", embedded(tmp_path / "more.txt", "more"))
    [addition] = until(lambda: json.loads((folder / "task.json").read_text()).get("said"))
    assert (folder / "files/more.txt").read_text() == "more"
    assert addition["text"].endswith(f"Attached: `tasks/active/{folder.name}/files/more.txt`")


def test_the_editors_folder_names_the_repository_or_how_to_open_it(crew, editor, tmp_path):
    for name in ("app", "lib"):
        (tmp_path / name / "src").mkdir(parents=True)
    crew.configure("roots: [{path: ../app, worktree: true}, {path: ../lib, worktree: true}]\n")
    zed = editor(crew.root).start(tmp_path / "lib/src")
    zed.prompt("Tidy up ", link(tmp_path / "lib/src/a.py"))
    zed.until(lambda: zed.said)
    [path] = crew.root.glob("tasks/inbox/*/task.md")
    text = path.read_text()
    assert text.endswith(f"Tidy up `src/a.py`\n\n> Repository: `lib` ({tmp_path}/lib)")
    stranger = editor(crew.root).start(tmp_path)
    stranger.prompt("Hello")
    stranger.until(lambda: "cannot read" in stranger.said)
    assert f"`roots: [{{path: {tmp_path}, worktree: true}}]`" in stranger.said


def test_any_task_of_the_hive_is_a_session_that_an_editor_can_load(crew, editor):
    crew.drop("Row to the island\n", "row.md")
    agent = crew.start()
    wants(agent, ("finish_task", {"result": "Done, it is far."}), task="row")
    zed = editor(crew.root).load("row")
    assert zed.texts("user_message_chunk") == "Row to the island\n\n"
    assert "Done, it is far." in zed.said
    zed.prompt("And back?")
    zed.until(lambda: "No swarm is running" in zed.said)
    [session] = zed.call("session/list")["sessions"]
    assert (session["sessionId"], session["title"], session["cwd"]) == ("row", "Row to the island", str(crew.root))
    assert zed.call("session/list", cwd="/nowhere") == {"sessions": []}


def test_bad_input_is_answered_and_the_next_request_as_well(crew, editor):
    zed = editor(crew.root)
    zed.process.stdin.write(b"no json\n[1]\n\n")
    zed.process.stdin.flush()
    zed.until(lambda: None in zed.answers)
    assert zed.answers.pop(None)["error"]["code"] in (-32700, -32600)
    zed.start()
    for code, method, params in (
        (-32601, "session/set_mode", {"sessionId": zed.session, "modeId": "x"}),
        (-32602, "session/new", {"cwd": "relative", "mcpServers": []}),
        (-32002, "session/load", {"sessionId": "editor-none", "cwd": "/", "mcpServers": []}),
        (-32002, "session/prompt", {"sessionId": "editor-none", "prompt": []}),
        (-32602, "session/prompt", {"sessionId": zed.session, "prompt": [{"type": "text"}]}),
        (-32602, "session/prompt", {"sessionId": zed.session, "prompt": 3}),
    ):
        assert zed.answer(zed.request(method, **params))["error"]["code"] == code, method
    assert zed.ask("---\nsteps: 3\n---\nBad front matter\n") == "end_turn"
    assert zed.said.startswith("Not accepted: ")
    assert zed.ask("") == "end_turn"
    zed.send(method="session/cancel", params={"sessionId": "editor-none"})
    zed.send(method="unknown/notification", params={})
    assert zed.call("session/list") == {"sessions": []}
    zed.close()


def test_what_a_coding_agent_thinks_and_does_by_itself_is_shown(crew, editor):
    """Its conversation is as the runtime records it."""
    zed, _ = begin(editor, crew, "Row")
    agent = crew.start()
    wants(agent, ("list_files", {}), task="row")
    action = ToolCall("Edit", {"file_path": "/a/b.py"}, "x1")
    details = {"title": "Edit b.py", "kind": "edit", "paths": ["/a/b.py"]}
    talk = agent.hive.tasks.active.log
    task = agent.hive.tasks.get("row")
    at = "2026-11-26T22:00:00.000+00:00"
    answer = {"id": "m9", "role": "assistant", "text": "", "at": at, "agent": "ada"}
    call = {"id": action.id, "tool": action.tool, "arguments": dict(action.arguments)}
    result = {"id": "m10", "role": "tool", "text": "ok", "call_id": "x1", "ok": True, "at": at, "result": details}
    talk(task, {"at": at, "event": "thought", "text": "Row where?"}, {**answer, "calls": [call]}, result)
    zed.until(lambda: any(update.get("title") == "Edit b.py" for update in zed.updates))
    assert zed.texts("agent_thought_chunk") == "Row where?\n\n"
    edit = titled(zed, "Edit b.py")
    assert (edit["kind"], edit["locations"], edit["status"]) == ("edit", [{"path": "/a/b.py"}], "completed")


def test_a_task_that_waits_for_an_agent_that_is_not_there_says_so(hive, editor):
    hive.start("up")
    hive.wait(lambda: hive.pid_of("analyst"))
    (hive.root / "agents/painter.yaml").write_text("mind: mcp\nrole: painter\n")
    zed = editor(hive.root).start()
    zed.prompt("---\nrole: painter\n---\nPaint the boat\n")
    zed.until(lambda: "The task waits: no running agent has the role painter" in zed.said)
