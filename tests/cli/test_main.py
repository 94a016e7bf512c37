"""The command line as a whole: help, wrong use, errors, the cost of asking."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.cli import main
from hivemind.cli.main import build_parser, declared_commands
from hivemind.layout import find_hive
from tests.cli.conftest import Command


def one_line(text: str) -> bool:
    return text.count("\n") == 1 and text.endswith("\n")


def test_help_names_every_command_and_shows_examples(run: Command) -> None:
    ended = run("--help")
    assert ended.status == 0
    assert all(f"\n    {command.words[0]}" in ended.out for command in declared_commands())
    assert "examples:\n  hivemind init" in ended.out


@pytest.mark.parametrize("words", [command.words for command in declared_commands()], ids=" ".join)
def test_every_command_has_help_of_its_own(run: Command, words: tuple[str, ...]) -> None:
    ended = run(*words, "--help")
    assert ended.status == 0
    assert ended.out.startswith(f"usage: hivemind {' '.join(words)}")
    assert "--hive PATH" in ended.out


@pytest.mark.parametrize(
    "words",
    [
        ["task", "list"],
        ["mail", "list"],
        ["mail", "thread"],
        ["agent", "list"],
        ["status"],
        ["log"],
        ["context"],
        ["doctor"],
        ["lease", "list"],
        ["view", "resume"],
        ["view", "signals"],
        ["graph", "branch", "list"],
    ],
    ids=" ".join,
)
def test_every_listing_has_json(run: Command, words: list[str]) -> None:
    assert "--json" in run(*words, "--help").out


def test_asking_for_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from hivemind.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'pydantic', 'yaml', 'tiktoken', 'sqlite3', 'watchdog', 'email', 'numpy', 'asyncio', 'hivemind.config'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "words", [["status"], ["task", "list"], ["task", "add", "Look"], ["mail", "list"]], ids=" ".join
)
def test_a_short_command_imports_only_what_it_uses(hive: Path, words: list[str]) -> None:
    tasks = Hive.open(hive).tasks  # records the checked settings
    main(["task", "add", "Look for the lock", "--priority", "low", "--role", "finder"])
    for action in (tasks.finish, tasks.fail):
        tasks.add("Find the key")
        task = tasks.claim("researcher")
        assert task is not None
        action(task, "in the drawer")
    program = (
        "import sys; from hivemind.cli import main\n"
        f"assert main({words!r}) == 0\n"
        "heavy = {'pydantic', 'yaml', 'tiktoken', 'sqlite3', 'watchdog', 'email', 'numpy', 'asyncio', 'logging', 'traceback',"
        " 'shutil', 'tempfile', 'subprocess', 'concurrent', 'multiprocessing', 'html', 'difflib', 'random', 'importlib.metadata',"
        " 'markdown_it', 'hivemind.documents.docmem', 'hivemind.search'} | ({'socket'} if 'add' not in sys.argv else set())\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    ended = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("words", [["status"], ["task", "list"]], ids=" ".join)
def test_what_keeps_coding_agents_from_starting_is_looked_up_once(hive: Path, words: list[str]) -> None:
    (hive / "agents" / "coder.yaml").write_text("mind: {agent: codex}\nreplicas: 2\n")
    assert Hive.open(hive).agents  # records the checked settings
    main(["task", "add", "Look for the lock"])
    program = (
        "import sys; from hivemind.cli import main; opened = []\n"
        "sys.addaudithook(lambda event, args: event == 'open' and opened.append(str(args[0])))\n"
        f"assert main({words!r}) == 0\n"
        "assert len([path for path in opened if path.endswith('programs/codex.yaml')]) == 1\n"
        "heavy = {'pydantic', 'random', 'zipfile', 'hivemind.minds.agents.mind'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_only_the_command_that_is_asked_for_is_made_wherever_the_hive_is_named(run: Command, hive: Path) -> None:
    for before in ([], ["--debug"], ["--hive", str(hive)], [f"--hive={hive}", "--debug"]):
        made = build_parser([*before, "task", "list"]).format_help()
        assert (made.count("\n    task  "), made.count("\n    mail  ")) == (1, 0), before
        assert run(*before, "task", "list").status == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["taks"], "did you mean 'task'?"),
        (["task", "lst"], "did you mean 'list'?"),
        (["task"], "required: COMMAND"),
        (["task", "list", "--state", "dome"], "did you mean 'done'?"),
        (["task", "list", "--stat", "done"], "unrecognized arguments"),
        (["task", "show"], "required: TASK"),
        (["log", "--since", "yesterday"], "'yesterday' is not a whole number"),
        (["down", "--timeout", "nan"], "'nan' is not a number from 0 to 1e+06"),
        (["mail", "send", "--to", "human"], "required: BODY"),
        (["lease", "claim", "t.s1"], "required: --agent"),
        (["lease", "claim", "t.s1", "--agent", "x", "--ttl", "-5"], "'-5' is not a whole number"),
        (["view", "signals", "--budget", "500"], "unrecognized arguments"),
        (["graph", "show"], "required: TASK"),
        (["graph", "publish", "t", "seven", "--agent", "x"], "'seven' is not a whole number"),
        (["graph", "branch", "merge", "t", "--use-from", "alt"], "required: FROM"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_is_one_line_and_status_2(run: Command, words: list[str], said: str) -> None:
    ended = run(*words)
    assert ended.status == 2
    assert ended.out == ""
    assert one_line(ended.err)
    assert said in ended.err
    assert "--help" in ended.err


@pytest.mark.parametrize("place", [0, 1, 2])
def test_global_options_stand_before_or_after_the_command(run: Command, hive: Path, place: int) -> None:
    words = ["task", "list"]
    words[place:place] = ["--hive", str(hive.parent / "elsewhere")]
    ended = run(*words)
    assert ended.status == 2
    assert "elsewhere" in ended.err


def test_without_a_hive_the_way_to_one_is_said(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIVEMIND_HIVE", raising=False)
    monkeypatch.chdir(tmp_path)
    ended = run("status")
    assert ended.status == 2
    assert one_line(ended.err)
    assert "hivemind init" in ended.err


def test_the_nearest_hive_above_is_found(run: Command, hive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIVEMIND_HIVE")
    below = hive / "knowledge" / "deep"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert run("status", "--json").json["hive"] == str(hive)


@pytest.mark.parametrize(
    "place", ["tasks/done/t/files", "knowledge", "mailboxes/human", "worktrees/t/app", ".hive/aside"]
)
def test_a_hive_that_an_agent_wrote_inside_of_one_is_not_found_by_walking_up(hive: Path, place: str) -> None:
    planted = hive / place
    deeper = planted / "tasks" / "x"
    deeper.mkdir(parents=True)
    for folder in (planted, deeper):
        (folder / "hive.yaml").write_text("notify: {program: /bin/false}\n")
    assert find_hive(environ={}, start=deeper).root == hive.resolve()
    assert find_hive(planted, environ={}).root == planted.resolve()
    (hive / "boats").mkdir()
    (hive / "boats" / "hive.yaml").touch()
    assert find_hive(environ={}, start=hive / "boats").root == (hive / "boats").resolve(), "a person's own"


def test_a_bad_settings_file_is_one_line_with_file_line_and_nearest_key(run: Command, hive: Path) -> None:
    (hive / "hive.yaml").write_text("version: 1\ndurabilty: full\n")
    ended = run("status")
    assert ended.status == 2
    assert one_line(ended.err)
    assert "hive.yaml:2" in ended.err
    assert "durability" in ended.err


def test_debug_shows_the_traceback_and_nothing_else_does(process: Command, hive: Path) -> None:
    plain = process("task", "show", "nothing-there")
    loud = process("task", "show", "nothing-there", "--debug")
    assert plain.status == loud.status == 2
    assert one_line(plain.err)
    assert "Traceback" in loud.err
    assert loud.err.endswith(plain.err)


def test_a_fault_of_the_program_is_one_line_too(run: Command, hive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> Hive:
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr(Hive, "look", broken)
    ended = run("status")
    assert ended.status == 1
    assert one_line(ended.err)
    assert "ZeroDivisionError: by nought" in ended.err
    assert "--debug" in ended.err


def test_a_reader_that_goes_away_is_no_error(hive: Path) -> None:
    for number in range(3):
        main(["task", "add", f"Task {number}"])
    listing = subprocess.Popen(
        [sys.executable, "-m", "hivemind", "task", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert listing.stdout is not None
    listing.stdout.close()
    _, complaint = listing.communicate()
    assert (listing.returncode, complaint) == (0, b"")


def test_a_character_that_the_terminal_has_no_code_for_does_not_end_a_listing(process: Command, hive: Path) -> None:
    process("task", "add", "Größe — 測試")
    ended = process("task", "list", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert ended.status == 0
    assert "Gr\\xf6\\xdfe" in ended.out


def test_a_closed_disk_is_one_line(process: Command, hive: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hivemind", "status"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr.startswith("hivemind: the operating system: No space left")


def test_every_command_answers_in_json_and_shows_an_example(run: Command) -> None:
    helps = {" ".join(one.words): run(*one.words, "--help").out for one in declared_commands()}
    own_format = {
        "acp",
        "agent run",
        "doc export",
        "mcp",
        "web",
        "top",
        "completion",
        "tool call",
        "tool show",
    }  # or no answer at all
    assert {name for name, text in helps.items() if "--json" not in text} <= own_format
    assert [name for name, text in helps.items() if "example" not in text] == []
    silent = [
        f"{' '.join(one.words)} {said.name}"
        for one in declared_commands()
        for said in one.parameters()
        if not said.help
    ]
    assert silent == []


def test_an_option_that_nobody_knows_is_told_by_its_command_with_the_one_that_is_like_it(run: Command) -> None:
    ended = run("up", "--untilidle")
    assert ended.status == 2
    assert ended.err == (
        "hivemind up: unrecognized arguments: --untilidle, did you mean '--until-idle'?; see: hivemind up --help\n"
    )


def test_options_stand_anywhere_and_after_two_dashes_there_are_none(run: Command, hive: Path) -> None:
    assert "mailbox human: no message" in run("mail", "read", "human", "--keep-unread", "<none@x>").err
    assert run("task", "add", "--id", "t", "--", "--why so?").status == 0
    assert "--why so?" in (hive / "tasks/inbox/t.md").read_text()


def test_an_agents_command_may_look_at_what_all_are_shown_and_act_in_its_name_but_nothing_else(
    run: Command, hive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hive / "knowledge").mkdir()
    (hive / "knowledge/boats.md").write_text("# Boats\n\nA sloop has one mast.\n")
    boats, hello = "knowledge/boats.md", ("--to", "reviewer", "Hello")
    asked = Hive.open(hive).mail.send("human", ["analyst"], "Boats", "Which?").message_id
    monkeypatch.setenv("HIVEMIND_AGENT", "analyst")
    monkeypatch.setenv("HIVEMIND_AUTHOR", "analyst")
    may = {
        "help": ("lease",), "status": (), "agent list": (), "task list": (), "reserve list": (), "tool list": (),
        "tool show": ("doc_find",),
        "doc tree": (), "doc find": ("boats",), "doc show": (boats,), "doc expand": (boats,), "doc note": (boats, "Look."),
        "task add": ("Which boats?",), "mail send": hello, "mail reply": (asked, "Sloops."), "reserve paths": (boats,),
        "reserve release": ("1",),
    }  # fmt: skip
    for words, needed in may.items():
        assert run(*words.split(), *needed).status == 0, words
    for words in (
        ("status", "--hive", str(hive)), ("task", "add", "--file", boats), ("task", "add", "x", "--attach", boats),
        ("mail", "send", *hello, "--attach", boats), ("agent", "stop", "reviewer"), ("mail", "list"),
    ):  # fmt: skip
        refused = run(*words)
        assert (refused.status, refused.out) == (2, "")
        option = next((one for one in words if one in ("--hive", "--file", "--attach")), "")
        said = " ".join(("hivemind", *words[: 1 if words[0] == "status" else 2], option)).rstrip()
        assert f"{said} is not for a command that an agent (analyst) wrote" in refused.err
    assert {" ".join(one.words) for one in declared_commands() if one.for_agents} == may.keys()
