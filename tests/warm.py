"""A process that has the program imported and forks commands, which need no imports.

Requests are JSON lines on standard input, `{"module", "words", "environment", "folder", "in", "out", "err"}`: the last three
are paths, and the module `python` is a script. Answered with `{"pid"}`, and with `{"pid", "status"}` when that command has
ended (negative: the signal). It ends with its input.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import selectors
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

_ROOMS = (
    "hivemind.agent.agent", "hivemind.doctor", "hivemind.hive", "hivemind.mcp_server", "hivemind.presence.linked",
    "hivemind.swarm.overview", "hivemind.swarm.swarm", "markdown_it",
)  # fmt: skip
_LATER = {  # by the command that needs them first: a fork copies all imported modules
    **dict.fromkeys(("mcp", "member"), ("hivemind.mcp_server.stdio",)),  # the SDK is half as large as all the rest
    "link": ("hivemind.exchange.link", "hivemind.exchange.offers", "psycopg"),
}
_STREAMS = {
    "in": os.O_RDONLY,
    "out": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "err": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
}


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
    from pydantic import BaseModel

    for model in list(_subclasses(BaseModel)):
        model.model_rebuild()  # built on demand, they cost 20 ms in each command


def _rehearse() -> None:
    """Run some commands and an agent's task here: what they make at their first use (classes, patterns, schemas, imports) the
    forks have, which costs each of them 10 to 30 ms less."""
    from hivemind import masking
    from hivemind.agent.agent import Agent
    from hivemind.cli import main
    from hivemind.hive import Hive
    from hivemind.pattern import pattern
    from hivemind.presence.identity import journal_start

    umask = os.umask(0)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        root = f"{folder}/hive"
        main(["init", root])
        main(["--hive", root, "task", "add", "What are boats?", "--id", "t"])
        hive = Hive.open(root)
        agent = Agent(hive, "analyst", journal_start(hive.journal, "analyst", os.getpid()))
        while agent.cycle():
            pass
        agent.close()
        for words in ("status", "task list", "task show t", "log", "agent list", "doctor", "land", "mail list", "down"):
            main(["--hive", root, *words.split()])
    for thing in gc.get_objects():  # patterns are compiled, and frozen classes made, when they are first looked into
        if isinstance(thing, pattern):
            hasattr(thing, "search")
        elif isinstance(thing, type) and str(thing.__module__).startswith("hivemind."):
            hasattr(thing, "__match_args__")
    os.umask(umask)  # a hive sets it
    masking._values.cache_clear()  # of this environment


def _subclasses(model: type[Any]) -> Iterator[type[Any]]:
    for subclass in model.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _become(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """Run the command in the forked process and exit with its status."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.chdir(request["folder"])
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, 256)
    sys.stderr = open(2, "w", buffering=1)  # noqa: SIM115 - until the end; this one may have been a file, the others were pipes
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    importlib.reload(importlib.import_module("hivemind.fs.crash"))  # it looks into the environment when it is imported
    status: Any = 0
    try:
        _run(request["module"], request["words"])
    except SystemExit as end:
        status = end.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    with contextlib.suppress(OSError, ValueError):  # a closed stream: the interpreter reports it when it exits
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # taking all modules apart would copy every page of the warm process: 0.1 s for each command
    sys.exit(status)


def _run(module: str, words: list[str]) -> None:
    if module != "python":
        sys.argv[1:] = words
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(words[1], {"__name__": "__main__"})
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


def serve() -> None:
    os.environ.pop("LD_PRELOAD", None)  # this process has it already; a command has it only if its request names it
    _import_rooms()
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
    tail = b""
    while True:
        for key, _ in selector.select():
            if key.fd == reading:
                os.read(reading, 4096)
                _reap()
                continue
            got = os.read(0, 1 << 16)
            if not got:
                return
            *lines, tail = (tail + got).split(b"\n")
            for line in lines:
                _fork(json.loads(line))


def _fork(request: dict[str, Any]) -> None:
    words = request["words"]
    hive, words = (
        (words[1], words[2:])
        if words[0] == "--hive" and len(words) > 2
        else (request["environment"].get("HIVEMIND_HIVE", request["folder"]), words)
    )
    for module in _LATER.get(words[0], ()):
        importlib.import_module(module)
    if words[0] == "up" and any("openai-compatible" in text for text in _agent_files(Path(hive))):
        importlib.import_module("pydantic_ai.models.openai")  # 1.4 s in each swarm of such agents
    streams = [os.open(request[name], flags, 0o600) for name, flags in _STREAMS.items()]
    pid = os.fork()
    if pid == 0:
        _become(request, streams)
    for stream in streams:
        os.close(stream)
    _say({"pid": pid})


def _agent_files(hive: Path) -> Iterator[str]:
    for path in (hive / "agents").glob("*.yaml"):
        with contextlib.suppress(OSError):
            yield path.read_text(errors="replace")


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
