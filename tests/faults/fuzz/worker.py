"""A process that takes inputs and may die over them: bounded in memory, and in processor time for each.

Asked on standard input, a line of JSON: {"door", "name", "data" (hex)}; answered likewise: {"wrong", "cpu", "grown"}.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import os
import resource
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

from tests.faults.subject import folder

__all__ = ["CPU_S", "GROWN_MB", "Answer", "Worker"]

CPU_S = 20
"""Processor seconds after which an input has hung; most take a hundredth of one."""
GROWN_MB = 400
"""The limit of the worker's growth over one input."""
_SPACE = 6 << 30
HOUSE = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class Answer:
    """The problems, the processor seconds that it took, and the MB that the worker has grown by."""

    wrong: tuple[str, ...]
    cpu: float = 0.0
    grown: float = 0.0


class Worker:
    """A worker process; a new one after one has died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._folder = contextlib.ExitStack()

    def ask(self, door: str, name: str, data: bytes) -> Answer:
        """Have one input taken. A death, a hang and a growth are wrong as well."""
        process = self._worker()
        assert process.stdin is not None
        assert process.stdout is not None
        line = ""
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps({"door": door, "name": name, "data": data.hex()}) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        if not line:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
            status = process.wait()
            self._process = None
            self._folder.close()
            return Answer(
                (f"the process died over it with {status} (-24: it took more than {CPU_S} s of processor time)",)
            )
        answer = json.loads(line)
        wrong = list(answer["wrong"])
        if answer["grown"] > GROWN_MB:
            wrong.append(f"memory grew by {answer['grown']:.0f} MB")
        return Answer(tuple(wrong), answer["cpu"], answer["grown"])

    def files(self) -> dict[str, bytes]:
        """Return the files of the worker's hive with their content."""
        process = self._worker()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write('{"door": ""}\n')
        process.stdin.flush()
        return {name: bytes.fromhex(data) for name, data in json.loads(process.stdout.readline()).items()}

    def _worker(self) -> subprocess.Popen[str]:
        if self._process is None:
            environment = {**os.environ, "PYTHONPATH": _paths(), "PYTHONSAFEPATH": "1", "HIVEMIND_EMBEDDER": "none"}
            base = self._folder.enter_context(folder("fuzz"))
            command = [sys.executable, "-m", "tests.faults.fuzz.worker", os.fspath(base)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self._process = subprocess.Popen(command, env=environment, **pipes)
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None
            self._folder.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _paths() -> str:
    import hivemind

    return os.pathsep.join([os.fspath(Path(hivemind.__file__).parents[1]), os.fspath(HOUSE)])


def _take(doors, request) -> dict[str, object]:
    from tests.faults.fuzz.doors import DOORS

    usage = resource.getrusage(resource.RUSAGE_SELF)
    before = usage.ru_utime + usage.ru_stime
    resource.setrlimit(resource.RLIMIT_CPU, (int(before) + CPU_S + 1, resource.RLIM_INFINITY))
    try:
        wrong = list(DOORS[request["door"]](doors, request["name"], bytes.fromhex(request["data"])))
    except Exception as error:  # the fuzzer looks for these
        frame = traceback.extract_tb(error.__traceback__)[-1]
        wrong = [f"{type(error).__name__}: {str(error)[:300]} ({os.path.basename(frame.filename)}:{frame.lineno})"]
    now = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "wrong": wrong,
        "cpu": now.ru_utime + now.ru_stime - before,
        "grown": (now.ru_maxrss - usage.ru_maxrss) / 1024,
    }


def main() -> None:
    from tests.faults.fuzz.doors import Doors

    faulthandler.enable()
    logging.disable()
    resource.setrlimit(resource.RLIMIT_AS, (_SPACE, _SPACE))
    out = os.fdopen(os.dup(1), "w")
    doors = Doors(Path(sys.argv[1]))
    for line in sys.stdin:
        request = json.loads(line)
        if not request["door"]:
            answer: object = {name: doors.content(name).hex() for name in doors.files()}
        else:
            answer = _take(doors, request)
        print(json.dumps(answer), file=out, flush=True)
    doors.close()


if __name__ == "__main__":
    main()
