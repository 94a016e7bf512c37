"""A hostile program in its box: whatever it tries, the person's files, processes and network stay out of its reach."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from hivemind.sandbox import loopback_urls, sandbox_command
from tests.sandbox.conftest import CANARY, Person, processes_with
from tests.waiting import until


def test_it_works_in_its_worktree_and_has_its_own_home_and_tmp(person: Person):
    Path("/tmp/hivemind-outside").write_text("x")
    words = "pwd; echo made > made; echo kept > ~/kept; test ! -e /tmp/hivemind-outside && echo $HOME"
    assert person.sh(words).splitlines() == [str(person.work), str(person.files / "home")]
    assert (person.work / "made").read_text() == "made\n"
    assert person.sh("cat ~/kept") == "kept\n"


@pytest.mark.parametrize(
    "path",
    [
        ".ssh/id_ed25519", ".config/gh/hosts.yml", "app/secret.env", "app/.git/config", "hive/hive.yaml", "hive/.hive/journal",
        "hive/.hive/agents/ada/status.json", "hive/.hive/agents/bob/program/home/session", "hive/worktrees/bob/app/main.py",
        "hive/tasks/active/other/files/note", "other-hive/.hive/journal",
    ],
)  # fmt: skip
def test_it_reads_no_file_of_the_person_the_hive_or_another_agent(person: Person, path: str):
    assert CANARY in (person.home / path).read_text()
    script = (
        f"cat {person.home / path}; ln -s {person.home / path} link; cat link; cat /proc/1/root{person.home / path}"
    )
    assert CANARY not in person.sh(f"{script}; cat /proc/1/cwd/../../../{path}; for f in /proc/*/fd/*; do ls $f/; done")


def test_nothing_that_is_visible_has_the_persons_words_in_it(person: Person):
    found = person.sh(f"grep -rIls {CANARY} / --exclude-dir=proc --exclude-dir=usr --exclude-dir=sys")
    assert found == ""


def test_it_sees_no_process_and_no_environment_outside(person: Person, monkeypatch: pytest.MonkeyPatch):
    with subprocess.Popen(["sleep", "60"], env={"OUTER_API_KEY": CANARY}) as outer:
        script = f"cat /proc/*/environ /proc/*/cmdline | tr '\\0' ' '; kill -9 {outer.pid}; ls /proc | grep -c '^[0-9]'"
        shown = person.sh(script)
        assert CANARY not in shown
        assert "OUTER_API_KEY" not in shown
        assert int(shown.splitlines()[-1]) < 10
        assert outer.poll() is None
        ptrace = f"import ctypes; print(ctypes.CDLL(None).ptrace(16, {outer.pid}, 0, 0))"
        assert person.python(ptrace).strip() == "-1"
        outer.kill()


def test_the_persons_kernel_keyring_is_inherited_by_no_sandbox(person: Person):
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers of the system calls are those of x86_64")
    look = "import ctypes; print(ctypes.CDLL(None).syscall(250, 10, -3, b'user', b'hive-canary', 0))"
    outside = (
        "import ctypes, pathlib, sys; libc = ctypes.CDLL(None); libc.syscall(250, 1, None)\n"
        "assert libc.syscall(248, b'user', b'hive-canary', b'secret', 6, -3) > 0\n"
        "from hivemind.reaped_command import ReapedCommand\n"
        "with ReapedCommand(sys.argv[1:], folder=pathlib.Path.cwd(), environment={'PATH': '/usr/bin'}) as process:\n"
        "    print(process.output.read().decode())"
    )
    argv = [sys.executable, "-I", "-c", look]
    box = person.box(*argv)
    try:
        for command in (box.command, sandbox_command(argv, person.work, None, {})):
            words = [sys.executable, "-c", outside, *command]
            shown = subprocess.run(words, cwd=person.work, capture_output=True, text=True, check=True)
            assert shown.stdout.strip() == "-1"
    finally:
        box.close()


def test_no_abstract_socket_and_no_socket_file_outside_is_reached(person: Person):
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as named:
        abstract.bind("\0hivemind-test")
        named.bind(str(person.home / "agent.sock"))
        for listener in (abstract, named):
            listener.listen()
            listener.setblocking(False)
        for address in ("\\0hivemind-test", str(person.home / "agent.sock")):
            code = f"import socket; socket.socket(socket.AF_UNIX).connect('{address}'); print('reached')"
            assert "reached" not in person.python(code)
        for listener in (abstract, named):
            with pytest.raises(BlockingIOError):
                listener.accept()


def test_hivemind_finds_no_hive_in_it(person: Person):
    shown = person.sh(
        f"cd {person.hive} && {sys.executable} -m hivemind task list; {sys.executable} -m hivemind status"
    )
    assert "other" not in shown
    assert CANARY not in shown


@pytest.mark.parametrize("path", [".bashrc", "app/.git/hooks/post-commit", "app/.git/config", "hive/hive.yaml"])
def test_it_writes_nothing_of_the_person(person: Person, path: str):
    person.sh(
        f"mkdir -p {(person.home / path).parent}; echo spoiled > {person.home / path}; rm -rf {person.home / path}"
    )
    target = person.home / path
    assert not target.exists() or target.read_text() == CANARY + "\n"


def test_it_changes_neither_its_configuration_nor_the_program_nor_the_gateway(person: Person):
    program = person.home / "bin/tool"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho run $0; for f in $1 $0 $2; do echo spoiled > $f; rm -f $f; mv $f $f.x; done\n")
    program.chmod(0o755)
    from hivemind.sandbox import gateway

    before = Path(gateway.__file__).read_bytes()
    shown = person.run(str(program), str(person.files / "attached.json"), gateway.__file__)
    assert f"run {program}" in shown
    assert (
        "spoiled"
        not in (person.files / "attached.json").read_text() + program.read_text()[-20:] + before.decode()[-20:]
    )
    assert Path(gateway.__file__).read_bytes() == before
    assert program.exists()


def test_it_has_no_capability_and_gains_none(person: Person):
    status = person.sh("cp /bin/sh suid; chmod 6755 suid; ./suid -p -c 'cat /proc/self/status'")
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert lines["NoNewPrivs"] == "1"
    assert {lines[name] for name in ("CapEff", "CapPrm", "CapBnd")} == {"0" * 16}


def test_it_mounts_nothing_and_uncovers_nothing(person: Person):
    script = (
        f"mkdir m; mount -t tmpfs none m; mount --bind / m; umount {person.files}; unshare -rm sh -c '"
        f"umount -l {person.files}; umount -l /tmp; mount --bind / m; cat m{person.home}/.ssh/id_ed25519 {person.home}/.ssh/*;"
        f" echo x > {person.files}/attached.json; mount -o remount,rw,bind {person.files}; echo x > {person.files}/attached.json'"
    )
    assert CANARY not in person.sh(script)
    assert (person.files / "attached.json").read_text() == "{}"


def test_a_work_folder_that_is_swapped_before_the_start_leads_nowhere(person: Person):
    box = person.box("/bin/sh", "-c", "ls; cat id_ed25519; pwd")
    folder = os.open(person.work, os.O_PATH)
    person.work.rename(person.work.with_name("moved"))
    person.work.symlink_to(person.home / ".ssh")
    from hivemind.reaped_command import ReapedCommand

    with ReapedCommand(box.command, folder=Path(f"/proc/self/fd/{folder}"), environment=box.environment) as running:
        running.call_at_end(box.close)
        assert CANARY not in running.output.read().decode()
    os.close(folder)


def test_of_its_command_line_only_files_are_visible_and_no_folders(person: Person):
    script = person.home / "agent.py"
    script.write_text("import sys; print('ran'); print(open(sys.argv[1]).read())")
    person.arguments = [str(script), str(person.home / ".ssh"), "relative", "--flag"]
    shown = person.run(sys.executable, str(script), str(person.home / ".ssh/id_ed25519"))
    assert "ran" in shown
    assert CANARY not in shown


@pytest.mark.parametrize("name", ["a b", "--bind", "$(touch made)", "line\nbreak", "'\"", "ünï"])
def test_a_program_may_have_any_name(person: Person, name: str):
    program = person.home / "bin" / name
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    link = person.home / "bin/link"
    link.symlink_to(program)
    assert person.run(str(program)) == "ran\n"
    assert person.run(str(link)) == "ran\n"
    assert [*person.work.iterdir()] == []


def test_a_script_brings_its_interpreter_and_its_package_and_not_the_rest_of_a_home(person: Person):
    local = person.home / ".local"
    interpreter = local / "bin/node"
    package = local / "lib/node_modules/agent"
    for path in (interpreter, package / "cli.js", local / "share/keyrings/login"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CANARY)
    interpreter.write_text(
        f'#!/bin/sh\necho node; cat "$1" "$(dirname "$(readlink -f "$1")")/more.js"; cat {local}/share/keyrings/login\n'
    )
    (package / "cli.js").write_text("#!/usr/bin/env node\nscript\n")
    (package / "more.js").write_text("more\n")
    for path in (interpreter, package / "cli.js"):
        path.chmod(0o755)
    (local / "bin/agent").symlink_to("../lib/node_modules/agent/cli.js")
    path = f"{local}/bin:{os.environ['PATH']}"
    shown = person.run(str(local / "bin/agent"), environment={"PATH": path})
    assert shown.startswith("node\n#!/usr/bin/env node\nscript\nmore\n")
    assert CANARY not in shown


def test_a_wrapper_script_brings_the_program_that_it_becomes(person: Person):
    program, wrapper = person.home / "tools/real", person.home / "bin/agent"
    for path, text in ((program, "echo ran"), (wrapper, f'exec "{program}" "$@"'), (program.with_name("b"), CANARY)):
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    assert person.run(str(wrapper)) == "ran\n"
    person.commands = [[str(wrapper), str(program.with_name("b"))]]
    assert person.sh(f"{wrapper}; cat {program.with_name('b')}") == f"ran\n#!/bin/sh\n{CANARY}\n", "a named server, too"
    person.commands = []
    assert CANARY not in person.sh(f"{wrapper}; cat {program.with_name('b')}")


def test_a_login_is_one_file_in_its_own_home_and_cannot_be_written(person: Person):
    login = person.home / ".codex/auth.json"
    login.parent.mkdir()
    login.write_text("token\n")
    (login.parent / "history").write_text(CANARY)
    place = person.files / "home/.codex/auth.json"
    place.parent.mkdir()
    place.touch()
    person.login = {place: login}
    shown = person.sh(
        "cat ~/.codex/auth.json; echo x > ~/.codex/auth.json; rm ~/.codex/auth.json; ls ~/.codex; echo s > ~/.codex/s"
    )
    assert shown.startswith("token\n")
    assert CANARY not in shown
    assert "history" not in shown
    assert login.read_text() == "token\n"
    assert (place.parent / "s").read_text() == "s\n"


def test_it_has_no_network_of_its_own(person: Person):
    with socket.create_server(("127.0.0.1", 0)) as outside:
        outside.setblocking(False)
        port = outside.getsockname()[1]
        code = f"import socket\ntry: socket.create_connection(('127.0.0.1', {port}), 5)\nexcept OSError as e: print(e)"
        assert "refused" in person.python(code)
        assert "unreachable" in person.python(
            "import socket\ntry: socket.create_connection(('1.1.1.1', 53), 5)\nexcept OSError as e: print(e)"
        )
        with pytest.raises(BlockingIOError):
            outside.accept()


def test_a_listed_port_on_loopback_and_only_it_has_a_listener(person: Person):
    with socket.create_server(("127.0.0.1", 0)) as listed, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [server.getsockname()[1] for server in (listed, other)]
        code = (
            "import socket\n"
            f"for host, port in (('127.0.0.1', {ports[0]}), ('localhost', {ports[0]}), ('127.0.0.1', {ports[1]})):\n"
            "    try: print(socket.create_connection((host, port), 5) and 'connected')\n"
            "    except OSError as error: print(error)\n"
        )
        shown = person.python(code, network=(f"localhost:{ports[0]}",)).splitlines()
        assert shown[:2] == ["connected", "connected"]
        assert "refused" in shown[2]


def test_an_open_network_is_the_machines(person: Person):
    with socket.create_server(("127.0.0.1", 0)) as outside:
        code = f"import socket, os; socket.create_connection(('127.0.0.1', {outside.getsockname()[1]}), 5); print(os.environ)"
        assert "HTTPS_PROXY" not in person.python(code, network="open")
        outside.settimeout(5)
        outside.accept()[0].close()


def test_when_the_agent_is_killed_nothing_is_left_and_the_next_box_starts(person: Person):
    mark = f"1000{os.getpid()}.5"
    code = (
        "import sys, time; from pathlib import Path; from tests.sandbox.conftest import Person\n"
        "person = object.__new__(Person); person.__dict__.update(home=Path(sys.argv[1]), login={}, folders={}, arguments=[])\n"
        "person.commands = []\n"
        "person.files, person.work = Path(sys.argv[2]), Path(sys.argv[3])\n"
        f"with person.start(person.box('/bin/sh', '-c', 'echo on > on; setsid sleep {mark} & sleep {mark}')): time.sleep(60)\n"
    )
    words = [sys.executable, "-c", code, str(person.home), str(person.files), str(person.work)]
    with subprocess.Popen(words, cwd=Path(__file__).parents[2]) as agent:
        until((person.work / "on").exists)
        assert (person.files / "network").is_socket()
        agent.send_signal(signal.SIGKILL)
    until(lambda: not processes_with(mark))
    until(lambda: not processes_with(str(person.files / "network")))
    assert "refused" not in person.sh("curl -s http://example.org || echo $?; echo on")
    assert person.refusals == ["example.org:80 is not under network: in the agent's file"]
    assert not (person.files / "network").exists()


def test_a_program_in_a_box_that_is_asked_to_end_ends_as_it_wants(person: Person):
    """The box itself would end at once, and its end kills the program."""
    script = "trap 'sleep 0.2; echo bye > bye; exit 7' TERM; echo on > on; sleep 1000 & wait"
    with person.start(person.box("/bin/sh", "-c", script)) as running:
        until((person.work / "on").exists)
        running.terminate()
        assert running.wait(10) == 7
    assert (person.work / "bye").exists()


@pytest.mark.parametrize("victim", ["gateway.py", "bwrap"])
def test_when_a_process_of_the_box_is_killed_the_rest_ends_or_has_no_network(person: Person, victim: str):
    mark = f"1001{os.getpid()}.5"
    with person.start(person.box("/bin/sh", "-c", f"echo on > on; sleep {mark}")) as running:
        until((person.work / "on").exists)
        found = subprocess.run(
            ["pgrep", "-f", f"{victim}.*{person.files}/network"], capture_output=True, text=True, check=True
        )
        for pid in found.stdout.split():
            with suppress(FileNotFoundError, ProcessLookupError):  # ended with one that was killed before
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
                if ("bwrap" in command) == (victim == "bwrap"):
                    os.kill(int(pid), signal.SIGKILL)
        if victim == "bwrap":
            assert running.wait(10) is not None
    assert not processes_with(mark)
    assert person.sh("echo again") == "again\n"


def test_urls_on_loopback_are_found_in_variables_and_arguments():
    texts = [
        "http://127.0.0.1:8080/v1",
        'x={base_url="http://localhost:11434/v1"}',
        "https://[::1]",
        "http://example.org:80",
    ]
    assert loopback_urls(texts) == ["127.0.0.1:8080", "[::1]:443", "localhost:11434"]
    assert (
        loopback_urls(
            [
                "http://127.0.0.1.example.org",
                "http://localhost.example.org:1",
                "http://127.0.0.1@x",
                "http://localhost:99999",
            ]
        )
        == []
    )
