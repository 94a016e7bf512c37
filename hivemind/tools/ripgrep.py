"""Lines found by ripgrep, where it is installed: what may be shown of them is decided by who asks."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hivemind.guarded import Guarded, bare_environment
from hivemind.tools.tool import ToolProblem

__all__ = ["Line", "ripgrep"]

_WORDS = (
    "rg", "--json", "--no-config", "--no-messages", "--sort=path", "--max-filesize=4M", "--max-count=1000",
    "--no-ignore-global",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """A line that matches: its file, from the folder that was searched, its number from 1, its text if that is UTF-8."""

    path: str
    number: int
    text: str | None


def ripgrep(
    folder: Path, what: str, pattern: str, *, glob: str | None, hidden: bool, ignore: bool, limit_s: float
) -> Iterator[Line] | None:
    """The lines below a folder that match, by path; `what` is one file in it, or empty. None where ripgrep cannot tell: it is not
    installed, or the expression is none of its own (it knows no lookaround).

    `ignore`: what `.gitignore` names is passed over. Raises ToolProblem, when the lines are read, after `limit_s`.
    """
    program = shutil.which("rg")
    if program is None:
        return None
    words = [program, *_WORDS[1:], *(["--hidden"] if hidden else []), *([] if ignore else ["--no-ignore"])]
    words += [*([f"--glob=/{glob}"] if glob else []), "--glob=!.git", f"--regexp={pattern}", "--", f"./{what}"]
    if subprocess.run(
        [program, "--no-config", f"--regexp={pattern}", "-"], input=b"", capture_output=True, check=False,
        env=bare_environment(), timeout=limit_s,
    ).returncode not in (0, 1):  # fmt: skip
        return None
    return _lines(words, folder, pattern, limit_s)


def _lines(words: list[str], folder: Path, pattern: str, limit_s: float) -> Iterator[Line]:
    late = threading.Event()
    with (
        open(os.devnull, "wb") as nowhere,
        Guarded(words, folder=folder, environment=bare_environment(), stderr=nowhere) as process,
    ):

        def end() -> None:
            late.set()
            process.terminate()

        timer = threading.Timer(limit_s, end)
        timer.start()
        try:
            for raw in process.output:
                record = json.loads(raw)
                if record["type"] == "match":
                    found = record["data"]
                    yield Line(_path(found["path"]), found["line_number"], found["lines"].get("text"))
        finally:
            timer.cancel()
    if late.is_set():
        raise ToolProblem(f"the search took more than {limit_s:g} s", where=repr(pattern), mend="search fewer files")


def _path(told: dict[str, str]) -> str:
    """The path as the system has it: one that is no UTF-8 comes in base64."""
    raw = told["text"].encode() if "text" in told else base64.b64decode(told["bytes"])
    return os.fsdecode(raw).removeprefix("./")
