"""A program that speaks the Agent Client Protocol, by orders in its prompts; run by its path, with Python alone.

An order is a line that begins with `!`: `say TEXT`, `update JSON` (any update of a session), `as SESSION JSON` (an update for
another session), `call TOOL JSON` (a tool of the hive; {ids} as in fake_agent.py), `write PATH TEXT`, `ask JSON` (for
permission; the outcome is appended to the file `asked`), `request METHOD`, `send JSON` (any line), `answer JSON` (fields of
the answer), `late JSON` (an update after the answer), `spend` (some money), `stop REASON`, `error CODE TEXT`, `die`
(kill -9), `exit N TEXT`, `hang` (until it is cancelled, or there is a file `go`), `deaf` (cancelled or not), `flood`, `child`
(a child that outlives it).

Flags: `resume`, `boast` (offers it, and does not know it), `load` (with a replay before the answer), `late` (with a
replay after it), `login` (required), `key=METHOD` (to log in by), `modes=a,b`, `models=a,b`, `pauses` (between its cost
and its answer), `refuses` (every setting), `version=N`, `die=METHOD` (kill -9 before that request is answered, once),
`dead=METHOD` (always), `reexec`. A session keeps the orders that are left, what has happened, and what it has cost.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from fake_agent import HOME, Hive, ids_in

FLAGS = dict((flag + "=").split("=")[:2] for flag in sys.argv[1:])
COST = 0.01


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def die() -> None:
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


class Refusal(Exception):
    """An error that answers a request."""


class Agent:
    def __init__(self) -> None:
        self.requests: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.responses: queue.Queue[dict[str, Any]] = queue.Queue()
        self.cancelled = threading.Event()
        self.session = ""
        self.server: list[str] = []
        self.has_key = False
        self.stop_reason = "end_turn"
        self.later: list[dict[str, Any]] = []
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            with open(HOME / "received", "a") as file:
                file.write(line)
            if message.get("method") == "session/cancel":
                self.cancelled.set()
            elif "method" in message:
                self.requests.put(message)
            else:
                self.responses.put(message)
        self.requests.put(None)

    def run(self) -> None:
        while (message := self.requests.get()) is not None:
            method = message["method"]
            mark = HOME / "died"
            if FLAGS.get("dead") == method or (FLAGS.get("die") == method and not mark.exists()):
                mark.touch()
                die()
            try:
                result = self.answer(method, message["params"])
            except Refusal as refusal:
                send(id=message["id"], error={"code": refusal.args[0], "message": refusal.args[1]})
                continue
            send(id=message["id"], result=result)
            for update in self.later:
                threading.Timer(0.03, self.update, [update], {"new": False}).start()
            self.later = []

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                sessions = {"resume": {}} if FLAGS.keys() & {"resume", "boast"} else {}
                can = {"loadSession": "load" in FLAGS or "late" in FLAGS, "sessionCapabilities": sessions}
                return {"protocolVersion": int(FLAGS.get("version", 1)), "agentCapabilities": can, "authMethods": []}
            case "authenticate":
                self.has_key = params["methodId"] == FLAGS.get("key")
                if not self.has_key:
                    raise Refusal(-32602, "no such method")
                return {}
            case "session/new" | "session/resume" | "session/load" if (
                method != "session/resume" or "boast" not in FLAGS
            ):
                return self.open_session(method, params)
            case "session/set_mode" | "session/set_model":
                if "refuses" in FLAGS:
                    raise Refusal(-32602, f"there is no {params['modelId']}")
                with open(HOME / "settings", "a") as file:
                    file.write(f"{params.get('modeId') or params.get('modelId')}\n")
                return {}
            case "session/prompt":
                return self.prompt(params["prompt"][0]["text"])
        raise Refusal(-32601, f"no method {method}")

    def open_session(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if "login" in FLAGS and not self.has_key:
            raise Refusal(-32000, "Authentication required")
        server, *_ = params["mcpServers"]
        self.server = [server["command"], *server["args"]]
        self.session = params.get("sessionId") or f"s{len(list(HOME.glob('s?'))) + 1}"
        if method != "session/new" and not (HOME / self.session).exists():
            raise Refusal(-32002, f"no session {self.session}")
        os.chdir(params["cwd"])
        if method == "session/load":
            history = [json.loads(line) for line in (HOME / f"{self.session}.history").read_text().splitlines()]
            self.later = history if "late" in FLAGS else []
            for update in history if "load" in FLAGS else ():
                self.update(update, new=False)
        result: dict[str, Any] = {"sessionId": self.session} if method == "session/new" else {}
        if "modes" in FLAGS:
            modes = [{"id": mode, "name": mode} for mode in FLAGS["modes"].split(",")]
            result["modes"] = {"currentModeId": modes[0]["id"], "availableModes": modes}
        if "models" in FLAGS:
            models = [{"modelId": model, "name": model} for model in FLAGS["models"].split(",")]
            result["models"] = {"currentModelId": models[0]["modelId"], "availableModels": models}
        return result

    def update(self, update: dict[str, Any], session: str = "", *, new: bool = True) -> None:
        if new:
            with open(HOME / f"{self.session}.history", "a") as file:
                file.write(json.dumps(update) + "\n")
        send(method="session/update", params={"sessionId": session or self.session, "update": update})

    def say(self, text: str) -> None:
        for piece in (text[:3], text[3:]):
            content = {"type": "text", "text": piece}
            self.update({"sessionUpdate": "agent_message_chunk", "content": content})

    def prompt(self, text: str) -> dict[str, Any]:
        self.cancelled.clear()
        state = HOME / self.session
        orders = json.loads(state.read_text()) if state.exists() else []
        orders += [line[1:] for line in text.splitlines() if line.startswith("!")]
        with open(HOME / "prompts", "a") as file:
            file.write(json.dumps([self.session, text]) + "\n")
        hive, self.last, self.stop_reason, extra = Hive(self.server), "[]", "end_turn", {}
        while orders and not self.cancelled.is_set():
            order, _, words = orders.pop(0).partition(" ")
            state.write_text(json.dumps(orders))
            if order == "answer":
                extra = json.loads(words)
            else:
                self.obey(order, words, hive)
        state.write_text(json.dumps(orders))
        self.spend()
        if "pauses" in FLAGS:
            time.sleep(1)
        usage = {"inputTokens": 60, "cachedReadTokens": 40, "outputTokens": 10, "totalTokens": 110}
        reason = "cancelled" if self.cancelled.is_set() else self.stop_reason
        return {"stopReason": reason, "usage": usage, **extra}

    def spend(self) -> None:
        """Report the cost of the session, which has risen."""
        cost = HOME / f"{self.session}.cost"
        cost.write_text(str(round(COST + (float(cost.read_text()) if cost.exists() else 0), 6)))
        amount = {"amount": float(cost.read_text()), "currency": "USD"}
        self.update({"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": amount})

    def obey(self, order: str, words: str, hive: Hive) -> None:
        first, _, more = words.partition(" ")
        match order:
            case "say":
                self.say(words)
            case "update":
                self.update(json.loads(words))
            case "as":
                self.update(json.loads(more), first)
            case "call":
                text = hive.call(first, json.loads((more or "{}").replace("{ids}", self.last)))
                self.last = json.dumps(ids_in(text))
            case "write":
                Path(first).write_text(more)
            case "ask":
                send(
                    id="q1",
                    method="session/request_permission",
                    params={"sessionId": self.session, **json.loads(words)},
                )
                with open(HOME / "asked", "a") as file:
                    file.write(json.dumps(self.responses.get(timeout=60)["result"]["outcome"]) + "\n")
            case "request":
                send(id="q2", method=first, params={})
                with open(HOME / "asked", "a") as file:
                    file.write(json.dumps(self.responses.get(timeout=60)["error"]["code"]) + "\n")
            case "send":
                sys.stdout.write(words + "\n")
                sys.stdout.flush()
            case "late":
                self.later.append(json.loads(words))
            case "spend":
                self.spend()
            case "stop":
                self.stop_reason = words
            case "error":
                raise Refusal(int(first), more)
            case "die":
                die()
            case "exit":
                sys.stderr.write(more + "\n")
                sys.stderr.flush()
                os._exit(int(first))
            case "hang":
                while not self.cancelled.wait(0.05) and not (HOME / "go").exists():
                    pass
            case "deaf":
                time.sleep(3600)
            case "flood":
                sys.stdout.write("x" * (9 << 20))
            case "child":
                child = subprocess.Popen(["sleep", "3600"], start_new_session=True, stdin=subprocess.DEVNULL)
                (HOME / "child").write_text(str(child.pid))


if __name__ == "__main__":
    if "reexec" in FLAGS:
        words = [word for word in sys.argv[1:] if word != "reexec"]
        sys.exit(subprocess.run([sys.executable, __file__, *words], check=False).returncode)
    Agent().run()
