"""Programs that use a hive as other programs do, and write down what they asked and what they were answered.

`python -m tests.faults.clients NAME …`; each line of the output is one half of a request (`ledger.Request`): what was
asked, written before, and the answer, written after. A line that is not there was not lived to.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

__all__ = ["main"]

_IN_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None


class Diary:
    """The file of a client, one line a write: a killed client leaves whole lines."""

    def __init__(self) -> None:
        self._out = os.dup(1)

    def say(self, **fields: Any) -> None:
        os.write(self._out, (json.dumps(fields, ensure_ascii=False) + "\n").encode())

    def ask(self, kind: str, key: str, call: Callable[[], Any], **asked: Any) -> Any:
        """Call, between the two lines; an exception is an answer with status 1, and is returned."""
        self.say(kind=kind, key=key, asked=asked, begin=time.monotonic_ns())
        try:
            answer = call()
        except Exception as error:
            self.say(end=time.monotonic_ns(), status=1, answer=f"{type(error).__name__}: {error}")
            return error
        self.say(
            end=time.monotonic_ns(),
            status=0,
            answer=answer if isinstance(answer, str) else json.dumps(answer, default=str),
        )
        return answer


def script(path: str) -> None:
    """Commands one after the other, in one process. `{generation}` is replaced by the result of the step's last claim."""
    from hivemind.cli import main as command_line

    diary, generations = Diary(), dict[str, str]()
    for step in json.loads(Path(path).read_text()):
        words = [word.replace("{generation}", generations.get(step["key"], "1")) for word in step["words"]]
        fields = {**step.get("asked", {}), "words": words}
        diary.say(kind=step["kind"], key=step["key"], asked=fields, begin=time.monotonic_ns())
        with _output_into_a_file() as output:
            try:
                status = command_line(words)
            except SystemExit as ended:
                status = ended.code if isinstance(ended.code, int) else 1
            sys.stdout.flush()
        answer = output()
        diary.say(end=time.monotonic_ns(), status=status, answer=answer)
        try:
            generations[step["key"]] = str(json.loads(answer)["generation"])
        except (ValueError, KeyError, TypeError):
            continue


def holder(path: str) -> None:
    """Leases and notes through `Hive`, by several agents in one process; a note shows one of its agent's generations, also
    a past one."""
    from hivemind import Hive
    from hivemind.coordination import CoordinationError

    diary, hive = Diary(), Hive.open(os.environ["HIVEMIND_HIVE"])
    generations = dict[tuple[str, str], list[int]]()
    for step, agent, name, which in json.loads(Path(path).read_text()):
        numbers = generations.setdefault((step, agent), [])
        fields: dict[str, Any] = {"agent": agent, "name": name}
        if name == "note":
            fields["generation"] = numbers[which % len(numbers)] if numbers else 1
        diary.say(kind="lease", key=step, asked=fields, begin=time.monotonic_ns())
        status, answer = 0, dict[str, Any]()
        try:
            if name in ("claim", "force"):
                lease = hive.leases.claim(step, agent, ttl_seq=10_000, force=name == "force")
                answer["generation"] = lease.generation
                numbers.append(lease.generation)
            elif name == "note":
                hive.steps.note(step, "wind", agent_id=agent, generation=fields["generation"])
            else:
                hive.leases.release(step, agent)
        except CoordinationError as error:
            status, answer = 1, {"code": error.code}
        except Exception as error:  # the machine's: in doubt
            status, answer = 1, {"error": str(error)}
        diary.say(end=time.monotonic_ns(), status=status, answer=json.dumps(answer))


def latecomer(agent: str) -> None:
    """A task that its agent loses to a person and claims once more: what it writes under the first claim comes too late."""
    from hivemind import Hive
    from hivemind.errors import UserError

    diary, hive = Diary(), Hive.open(os.environ["HIVEMIND_HIVE"])

    def claim() -> Any:
        """Once what was just put back has settled."""
        end = time.monotonic() + 10
        while True:
            try:
                return hive.tasks.claims.claim_one(agent, "late")
            except UserError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    first = diary.ask("claim", "first", claim)
    diary.ask("cancelled", "late", lambda: str(hive.tasks.cancel("late")))
    diary.ask("retried", "late", lambda: str(hive.tasks.retry("late")))
    second = diary.ask("claim", "second", claim)
    for which, claim in (("stale", first), ("ended", second)):
        if hasattr(claim, "claim"):
            diary.ask(which, "late", lambda claim=claim, which=which: str(hive.tasks.finish(claim, f"{which}\n")))


@contextmanager
def _output_into_a_file() -> Iterator[Callable[[], str]]:
    with tempfile.TemporaryFile(dir=_IN_MEMORY) as file:
        copy = os.dup(1)
        os.dup2(file.fileno(), 1)
        text: list[str] = []
        try:
            yield lambda: text[0]
        finally:
            os.dup2(copy, 1)
            os.close(copy)
            file.seek(0)
            text.append(file.read().decode("utf-8", "replace"))


def memory(me: str, seed: str, count: str) -> None:
    """Entries under the client's own keys, and a counter that all clients raise by compare-and-set."""
    from hivemind import Hive
    from hivemind.longterm import VersionConflict

    diary, random = Diary(), Random(f"{me} {seed}")
    store = Hive.open(os.environ["HIVEMIND_HIVE"]).memory
    space = ("shared", "hive")
    for number in range(int(count)):
        if random.random() < 0.5:
            key = f"{me}-{random.randrange(3)}"
            text = f"{me} remembers wind number {number} of {seed}"

            def put(key: str = key, text: str = text) -> int:
                return store.put(space, key, text).version

            diary.ask("memory", key, put, text=text)
            continue
        while True:
            entry = store.get(space, "counter")
            version, value = (0, 0) if entry is None else (entry.version, int(entry.content.split()[-1]))

            def raise_it(version: int = version, value: int = value) -> int:
                return store.put(space, "counter", f"the counter is {value + 1}", expected_version=version).version

            raised = diary.ask("counter", f"{me}-{number}", raise_it, value=value + 1)
            if not isinstance(raised, VersionConflict):
                break


def documents(me: str, seed: str, count: str) -> None:
    """Nodes appended and inserted below a root that all share, a text raised by compare-and-set, nodes deleted again."""
    from hivemind import Hive
    from hivemind.documents import OptimisticLockError

    diary, random = Diary(), Random(f"{me} {seed}")
    store = Hive.open(os.environ["HIVEMIND_HIVE"]).documents
    nodes: list[str] = []
    for number in range(int(count)):
        text = f"{me} {seed} {number}"
        doing = random.choice(("append", "append", "insert", "update", "counter", "delete"))
        if doing == "append" or not nodes:
            answer = diary.ask(
                "node", text, lambda t=text: store.append_child("log", "note", "wind", "b", t).id, text=text
            )  # type: ignore[misc]
        elif doing == "insert":
            sibling = random.choice(nodes)
            answer = diary.ask(
                "node", text, lambda t=text, b=sibling: store.insert_before(b, "note", "wind", "b", t).id, text=text
            )  # type: ignore[misc]
        elif doing == "delete" and len(nodes) > 2:
            victim = nodes.pop(random.randrange(len(nodes)))
            diary.ask("gone", victim, lambda g=victim: store.delete(g) and None, id=victim)  # type: ignore[misc]
            continue
        elif doing == "update":
            node = random.choice(nodes)
            diary.ask("text", node, lambda n=node, t=text: store.update_content(n, t).id, text=text)  # type: ignore[misc]
            continue
        else:
            while True:
                [root] = [node for node in store.roots() if node.id == "counter"]
                value = int(root.text) + 1
                raised = diary.ask(
                    "counter", text,
                    lambda f=root, v=value: store.update_content("counter", str(v), expected_hash=f.hash).hash,
                    value=value,
                )  # type: ignore[misc]  # fmt: skip
                if not isinstance(raised, OptimisticLockError):
                    break
            continue
        if isinstance(answer, str):
            nodes.append(answer)


def shown() -> None:
    """Everything in document memory below the roots `log` and `counter`, as JSON."""
    from hivemind import Hive

    store = Hive.open(os.environ["HIVEMIND_HIVE"]).documents
    nodes = [
        {"id": node.id, "parent": node.parent_id, "text": node.text, "order": node.order_value}
        for root in ("log", "counter")
        for node in store.serialize(root)
    ]
    print(json.dumps(nodes))


def roots() -> None:
    from hivemind import Hive

    store = Hive.open(os.environ["HIVEMIND_HIVE"]).documents
    store.create_root("log", "the log")
    store.create_root("counter", "0")


def member(name: str, path: str) -> None:
    """A coding agent that joins through MCP: its calls one after the other, each after the answer to the one before."""
    diary = Diary()
    read, reply_end = os.pipe()
    request_end, write = os.pipe()
    server = _forked(["mcp", "--agent", name, "--profile", "full"], request_end, reply_end, (read, write))
    os.close(reply_end)
    os.close(request_end)
    requests, answers = open(write, "wb", buffering=0), open(read, "rb")  # noqa: SIM115 - closed below

    def request(number: int | None, method: str, **parameters: Any) -> Any:
        message = {"jsonrpc": "2.0", "method": method, "params": parameters}
        requests.write(json.dumps(message if number is None else {**message, "id": number}).encode() + b"\n")
        while number is not None:
            line = answers.readline()
            if not line:
                raise EOFError("the server has ended")
            answer = json.loads(line)
            if answer.get("id") == number:
                return answer
        return None

    try:
        request(
            0, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "t", "version": "1"}
        )
        request(None, "notifications/initialized")
        for number, step in enumerate(json.loads(Path(path).read_text()), 1):
            if "words" in step:  # a person's command meanwhile
                fields = {"words": step["words"]}
                diary.say(kind=step["kind"], key=step["key"], asked=fields, begin=time.monotonic_ns())
                with tempfile.TemporaryFile(dir=_IN_MEMORY) as output:
                    _, status = os.waitpid(_forked(step["words"], 0, output.fileno(), (read, write)), 0)
                    output.seek(0)
                    answer = output.read().decode("utf-8", "replace")
                diary.say(end=time.monotonic_ns(), status=os.waitstatus_to_exitcode(status), answer=answer)
                continue
            diary.say(kind=step["kind"], key=step["key"], asked=step["call"], begin=time.monotonic_ns())
            answer = request(number, "tools/call", **step["call"])
            result = answer.get("result", {})
            text = "".join(part.get("text", "") for part in result.get("content", ()))
            is_error = "error" in answer or result.get("isError", False)
            diary.say(end=time.monotonic_ns(), status=int(is_error), answer=text or json.dumps(answer.get("error")))
    except (EOFError, BrokenPipeError):
        return
    finally:
        requests.close()
        os.waitpid(server, 0)
        answers.close()


def _forked(words: list[str], source: int, output: int, unused: Sequence[int]) -> int:
    """Fork `hivemind WORDS` with the descriptors of its input and output, without `ours`; returns its pid."""
    from hivemind.cli import main as command_line

    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            os.dup2(source, 0)
            os.dup2(output, 1)
            for descriptor in unused:
                os.close(descriptor)
            status = command_line(words)
            sys.stdout.flush()
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
        finally:
            os._exit(status)
    return pid


CLIENTS: dict[str, Callable[..., None]] = {
    "script": script, "holder": holder, "memory": memory, "documents": documents, "shown": shown, "roots": roots,
    "member": member, "latecomer": latecomer,
}  # fmt: skip


def main(words: list[str]) -> int:
    CLIENTS[words[0]](*words[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
