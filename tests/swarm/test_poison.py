"""What others wrote may be anything: at each entrance lies poison, and beside it something good, which is done all the same.

Only public doors: files, and the command line. No agent breaks over an input, and no command that lists ends in a fault.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import hivemind
from hivemind.cli import main
from tests.sample import sample, sampled
from tests.swarm.conftest import Swarm

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
RUNS = "!!python/object/apply:os.system ['touch was-here']"
RAW = {
    "empty": b"",
    "one-byte": b"\0",
    "zeros": bytes(4096),
    "zeros-at-the-end": b"# Title\n\nA text.\n" + bytes(4096),
    "bom": b"\xef\xbb\xbf",
    "utf-16": "# Title\n\nA text.\n".encode("utf-16"),
    "half-a-character": b"# \xed\xa0\x80\n",
    "half-a-character-in-json": b'{"kind": "\\ud800", "version": 1, "to": "\\udfff"}\n',
    "no-utf-8": b"\xff\xfa\xc0" * 9,
    "nul": b"a\0b\n",
    "brackets": b"[" * 100_000,
    "braces": b'{"a":' * 20_000,
    "parentheses": b"(" * 3_000,
    "digits": b"9" * 100_000,
    "a-number-of-digits": b'{"version": ' + b"9" * 100_000 + b"}\n",
    "not-a-number": b"[NaN, -Infinity, 1e999]\n",
    "wrong-types": b'{"kind": [], "version": {}, "seq": "x"}\n',
    "long-line": b"word " * 100_000,
    "bomb": BOMB.encode(),
    "runs": RUNS.encode(),
}
RAW_SAMPLES = [{name: RAW[name] for name in sample(RAW, 3, first)} for first in range(3)]
"""Each entrance has another third of them, where it is not a whole run."""
VALUES = {
    "last-moment": "9999-12-31T23:59:59-23:59",
    "first-moment": "0001-01-01T00:00:00+23:59",
    "digits": "9" * 5_000,
    "power": "1e400",
    "nan": ".nan",
    "infinity": "-.inf",
    "brackets": "[" * 1_000,
    "parentheses": "(" * 3_000,
    "colons": '"' + ":" * 3_000 + '"',
    "half-a-character": '"\\ud800"',
    "nul": '"a\\0b"',
    "runs": RUNS,
    "binary": "!!binary Zm9v",
    "set": "!!set {a, b}",
}
LISTINGS = [
    *(
        "status",
        "task list",
        "task list --state failed --json",
        "task show {task}",
        "graph show {task}",
        "view signals {task}",
    ),
    *("mail list analyst", "mail list human", "agent list", "lease list", "reserve list", "log", "log --agent analyst"),
    *("graph find keel", "doc tree", "doc find keel", "memory list", "memory status", "context analyst", "doctor"),
]


class Poisoned:
    """A hive of an agent that works and one that reviews, in which good things lie beside poison."""

    def __init__(self, swarm: Swarm) -> None:
        self.swarm, self.root = swarm, swarm.root
        swarm.configure(durability="relaxed", settle_ms=0, embedder="none", max_active=50)
        (self.root / "agents" / "researcher.yaml").unlink()

    def write(self, path: str, content: bytes) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(content)

    def runs(self) -> None:
        """The swarm does what is good, breaks over nothing, and can be looked at."""
        self.write("tasks/inbox/z.md", b"---\nid: good\nassignee: analyst\n---\nWhat keeps a sailing boat upright?\n")
        self.write("mailboxes/analyst/new/z", b"From: human@hive\nSubject: Oars\n\nWhat moves a rowing boat?\n")
        self.swarm.run("up", "--until-idle", status=None)
        assert self.swarm.task("good") == "done", self.swarm.logs()
        assert "keel" in self.swarm.result("good")
        letters = [path.read_text("utf-8", "replace") for path in (self.root / "mailboxes/human").glob("[nc]*/*")]
        assert any("moved with oars" in letter for letter in letters), self.swarm.logs()
        assert "Traceback" not in self.swarm.logs()
        assert not list(self.root.rglob("was-here"))
        self.can_be_looked_at()

    def can_be_looked_at(self, task: str = "good", listings: Iterable[str] = LISTINGS) -> None:
        for listing in listings:
            errors = io.StringIO()
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
                status = main(["--hive", str(self.root), "--debug", *listing.format(task=task).split()])
            assert "fault of hivemind" not in errors.getvalue(), f"{listing}: {errors.getvalue()[-3000:]}"
            assert status in (0, 1), f"{listing}: {errors.getvalue()[-3000:]}"


@pytest.fixture
def poisoned(hive: Swarm) -> Poisoned:
    return Poisoned(hive)


def tasks_and_rom(hive: Poisoned) -> None:
    for name, raw in RAW_SAMPLES[0].items():
        hive.write(f"rom/a-{name}.md", raw[:500])
        hive.write(f"tasks/inbox/a-{name}.md", raw)
        hive.write(f"tasks/inbox/b-{name}.yaml", raw)
        hive.write(f"tasks/inbox/c-{name}/task.md", raw)
        hive.write(f"tasks/inbox/d-{name}.md", b"---\n" + raw + b"\n---\nx\n")
    for first, key in enumerate(("deadline", "priority", "dependencies", "id")):
        for name in sample(VALUES, 4, first):
            hive.write(f"tasks/inbox/e-{key}-{name}.md", f"---\n{key}: {VALUES[name]}\n---\nx\n".encode())
    for first, key in enumerate(("wait", "ask", "timeout")):
        for name in sample(VALUES, 3, first):
            text = f"---\nsteps: [{{title: x, {key}: {VALUES[name]}}}]\n---\nx\n"
            hive.write(f"tasks/inbox/f-{key}-{name}.md", text.encode())


def letters(hive: Poisoned) -> None:
    for name, raw in RAW_SAMPLES[1].items():
        hive.write(f"mailboxes/analyst/new/a-{name}", raw)
        hive.write(f"mailboxes/analyst/new/b-{name}", b"From: human@hive\nSubject: x\n\n" + raw)
    for name, value in VALUES.items():
        for keys in (
            ["From"],
            ["Date", "Subject", "Message-ID", "References"],
            ["To", "Content-Type", "Content-Transfer-Encoding"],
        ):
            head = "".join(f"{key}: {value}\n" for key in keys)
            hive.write(f"mailboxes/analyst/new/c-{keys[0]}-{name}", f"From: human@hive\n{head}\nx\n".encode())


def knowledge(hive: Poisoned) -> None:
    for name, raw in {**RAW_SAMPLES[2], "nested": b"<div>" * 20_000, "quotes": b"> " * 20_000}.items():
        for suffix in sample(("md", "html", "txt", "toml", "rst", "py", "c"), 2, len(name) % 2):
            hive.write(f"knowledge/a-{name}.{suffix}", raw)
        hive.write(f"knowledge/b-{name}.md", b"---\n" + raw + b"\n---\nx\n")
    for name in sample(RAW, 6):  # a process for each
        hive.write(f"knowledge/a-{name}.pdf", RAW[name])


def agents(hive: Poisoned) -> None:
    for name, raw in RAW_SAMPLES[0].items():
        hive.write(f"agents/a-{name}.yaml", raw)
    for name, value in VALUES.items():
        for key in ("role", "max_tokens", "replicas", "mind"):
            hive.write(f"agents/b-{key}-{name}.yaml", f"{key}: {value}\n".encode())


def minds(hive: Poisoned) -> None:
    for name in ("empty", "utf-16", "half-a-character-in-json", "brackets", "digits", "not-a-number", "wrong-types"):
        hive.write(f"answers/{name}", RAW[name])
        hive.write(f"agents/a-{name}.yaml", f"mind: {{command: [cat, {hive.root}/answers/{name}]}}\n".encode())
        hive.write(f"tasks/inbox/a-{name}.md", f"---\nassignee: a-{name}\n---\nx\n".encode())


def records(hive: Poisoned) -> None:
    for name in RAW_SAMPLES[1]:
        hive.write(f"tasks/inbox/a-{name}.md", b"---\nsteps: [{wait: {human: Well?}}]\n---\nx\n")
    hive.swarm.run("up", "--until-idle", status=3)
    for name, raw in RAW_SAMPLES[1].items():
        for path in (hive.root / f"tasks/active/a-{name}").iterdir():
            if path.is_file():
                path.write_bytes(raw)


def caches(hive: Poisoned, *poison: bytes) -> None:
    hive.write("tasks/inbox/a.md", b"What moves a rowing boat?\n")
    hive.swarm.run("up", "--until-idle")
    hive.can_be_looked_at("a", ["graph find keel", "doc find keel"])
    state = hive.root / ".hive"
    kept = ("documents.db", "memory.db", "mail.key", "workspace.json")
    found = [*state.rglob("*"), hive.root / "tasks/done/a/graph.json"]
    for at, path in enumerate(sorted(found)):
        if path.is_file() and not path.name.startswith(kept) and not path.match("journal/*.jsonl"):
            whole = path.read_bytes()
            path.write_bytes(poison[at % len(poison)] or whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2))
    segment = max(state.glob("journal/*.jsonl"))
    segment.write_bytes(segment.read_bytes() + bytes(512))  # as a power cut leaves it


RING = """
import os, socket, sys, time
bells, poison = sys.argv[1], [b"", b"\\0" * 5_000, b"9" * 100_000, b"[" * 10_000, "\\ud800".encode("utf-8", "surrogatepass")]
sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
while True:
    for name in os.listdir(bells):
        for one in poison:
            try:
                sender.sendto(one, os.path.join(bells, name))
                with open("/dev/null") as file:
                    socket.send_fds(sender, [one], [file.fileno()], 0, os.path.join(bells, name))
            except OSError:
                continue
    time.sleep(0.001)
"""


def bells(hive: Poisoned) -> None:
    """Somebody rings all the time, with whatever a datagram may hold, open files as well."""
    (hive.root / ".hive/doorbells").mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", RING, str(hive.root / ".hive/doorbells")]
    hive.swarm.processes.append(subprocess.Popen(command, text=True))


ENTRANCES: dict[str, Callable[[Poisoned], None]] = {
    "tasks": tasks_and_rom,
    "letters": letters,
    "knowledge": knowledge,
    "agents": agents,
    "minds": minds,
    "records": records,
    "doorbells": bells,
    "caches": lambda hive: caches(hive, b"", RAW["brackets"], RAW["one-byte"]),
    "caches-of-wrong-types": lambda hive: caches(hive, RAW["wrong-types"]),
}


NOT_ITS_OWN = {  # what programs and libraries below read as well
    *(
        "TERM",
        "COLUMNS",
        "LINES",
        "LC_ALL",
        "LANG",
        "TZ",
        "HOME",
        "USER",
        "SHELL",
        "PAGER",
        "NO_COLOR",
        "XDG_CACHE_HOME",
    ),
    *("XDG_RUNTIME_DIR", "TMPDIR", "HOSTNAME"),
}
READ = re.compile(
    r"""(?:environb?(?:\.get\(|\[)|environ\)\.get\()"([A-Z_]+)"|"([A-Z]+_(?:API_KEY|BASE_URL|THREADS))\""""
)


def variables() -> set[str]:
    """The environment variables that the program reads, from its code."""
    texts = (path.read_text("utf-8") for path in Path(hivemind.__file__).parent.rglob("*.py"))
    return {one or other for text in texts for one, other in READ.findall(text)}


@pytest.mark.parametrize("value", ["x" * 30_000, "\udcff\udcc0", "\x1b]0;x\a\n"])
def test_whatever_the_environment_says_stops_nothing_or_is_told_in_words(poisoned: Poisoned, value: str) -> None:
    swarm, found = poisoned.swarm, variables()
    named = {"HIVEMIND_AUTHOR", "HIVEMIND_EMBEDDER", "HIVEMIND_HIVE"}
    assert named < found
    swarm.run("status", **dict.fromkeys((found | NOT_ITS_OWN) - named, value))
    for name in sorted(named):
        swarm.run("status", status=None, **{name: value})
        assert "Traceback" not in swarm.errors
        assert "fault of hivemind" not in swarm.errors
        assert "\x1b" not in swarm.errors
    if value == "\udcff\udcc0":
        swarm.drop("boats.md", "What keeps a sailing boat upright?\n")
        swarm.run("up", "--until-idle", **dict.fromkeys((found | NOT_ITS_OWN) - named, value))
        assert "keel" in swarm.result("boats")


@sampled
@pytest.mark.parametrize("name", ENTRANCES)
def test_poison_at_an_entrance_stops_nothing_but_itself(poisoned: Poisoned, name: str) -> None:
    ENTRANCES[name](poisoned)
    poisoned.runs()
