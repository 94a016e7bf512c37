"""A process that has the program imported and forks a command at a time: a command costs its own work and no imports.

Requests are JSON lines on standard input, `{"module", "words", "environment", "folder", "in", "out", "err"}`; answered with
`{"pid"}`, and with `{"pid", "status"}` when that command has ended (negative: the signal). It ends with its input. With
`--rehearse` it takes a second more to begin with, and each swarm a fifth less: for who forks hundreds.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import selectors
import signal
import sys
import tempfile
import traceback
from typing import Any

_ROOMS = (
    "hivemind.agent.agent", "hivemind.doctor", "hivemind.hive", "hivemind.mcp_server", "hivemind.swarm.swarm",
    "hivemind.swarm.swarm",
)  # fmt: skip
_MEMBER = (
    "hivemind.mcp_server.stdio"  # with the SDK, which is half as large as all the rest: a fork copies what is there
)


def _import_rooms() -> None:
    for room in _ROOMS:
        importlib.import_module(room)
    from hivemind.cli import main
    from hivemind.tokens import count_tokens
    from hivemind.tools import TOOLS

    count_tokens("a word")  # the vocabulary
    for tool in TOOLS.values():
        tool.schema()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(["--help"])  # which imports every command


_REHEARSED = (
    "task add Row. --id row", "task list --json", "log --json", "doctor --json", "doctor --fix --json", "status --json",
    "mail send --from human --to researcher --subject Boats Row.", "task cancel row", "task retry row", "task cancel row",
)  # fmt: skip


def _rehearse() -> None:
    """Run commands in a hive that is thrown away: what is looked up and specialised by that, every fork shares."""
    from hivemind.cli import main
    from hivemind.config import HiveConfig
    from hivemind.hive import Hive
    from hivemind.swarm.swarm import rehearse

    with (
        tempfile.TemporaryDirectory(prefix="hive-rehearsed-") as folder,
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        main(["init", folder])
        for words in _REHEARSED * 3:
            main(["--hive", folder, *words.split()])
    rehearse(Hive.open, HiveConfig())


def _become(request: dict[str, Any]) -> int:
    """The forked process: run the command as if it had been started; returns its exit status."""
    os.setsid()
    os.chdir(request["folder"])
    for number, (name, flags) in enumerate(
        (
            ("in", os.O_RDONLY),
            ("out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
            ("err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        )
    ):
        opened = os.open(request[name], flags, 0o600)
        os.dup2(opened, number)
    os.closerange(3, 256)
    os.environ.update(request["environment"])
    importlib.reload(importlib.import_module("hivemind.fs.crash"))  # it looks into the environment when it is imported
    if request["module"] == "hivemind":
        from hivemind.cli import main
    else:
        from .clients import main  # type: ignore[assignment]

    try:
        return main(request["words"])
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 70
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def serve() -> None:
    os.environ.pop("LD_PRELOAD", None)  # it is here; what is started from here has it if its request says so
    _import_rooms()
    if "--rehearse" in sys.argv:
        _rehearse()
    gc.collect()
    gc.freeze()
    reading, waking = os.pipe()
    for end in (reading, waking):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking)
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(reading, selectors.EVENT_READ)
    pending = b""
    while True:
        for key, _ in selector.select():
            if key.fd == reading:
                os.read(reading, 4096)
                _reap()
                continue
            got = os.read(0, 1 << 16)
            if not got:
                return
            *lines, pending = (pending + got).split(b"\n")
            for line in lines:
                _fork(json.loads(line))


def _fork(request: dict[str, Any]) -> None:
    if request["words"][0] == "member":
        importlib.import_module(_MEMBER)
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        status = 70
        try:
            status = _become(request)
        finally:
            os._exit(status)
    _say({"pid": pid})


def _reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _say({"pid": pid, "status": os.waitstatus_to_exitcode(status)})


def _say(line: dict[str, Any]) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


if __name__ == "__main__":
    serve()
