"""The client of the Agent Client Protocol, version 1: JSON-RPC over a program's standard input and output.

The order of requests: initialize; session/new, session/resume or session/load; mode and model; then session/prompt for each
prompt. The client offers the program no files, terminals or questions: the program works in its folder, and gets the hive's tools
by MCP.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any

from hivemind import json_rpc
from hivemind.json_rpc import BadLine, JsonRpcError, Notification, Request, Response
from hivemind.minds.agents import events
from hivemind.minds.agents.profile import AgentProgram, Profile, as_text, server_command, value_at
from hivemind.minds.agents.session import MAX_LINE_BYTES, ProgramSession, too_much_output
from hivemind.reaped_command import ReapedCommand

PROTOCOL_VERSION = 1
_AUTH_REQUIRED = -32000
_REPLAY_S = 0.5  # without an update, after which a loaded session has replayed its history
_REST_S = 0.2  # for updates that come after the answer that ends a turn
_MAX_PATHS, _TITLE_CHARS = 20, 300
_SILENT_UPDATES = frozenset(
    {"available_commands_update", "config_option_update", "session_info_update", "usage_update", "user_message_chunk"}
)


class AcpSession(ProgramSession):
    """A session with a program that speaks the protocol. The first prompt is sent as soon as the session is open."""

    takes_prompts = True

    def __init__(
        self,
        launch: Callable[[IO[bytes]], ReapedCommand],
        config: AgentProgram,
        profile: Profile,
        *,
        folder: Path,
        relay_command: Sequence[str],
        prompt: str,
        session: str | None,
        exit_s: float,
    ) -> None:
        """Start the program with `launch`, which receives the program's standard input, and request `initialize`. `relay_command`
        starts the server of the hive's tools. With a `session`, continue that session; with None, open a new one. After its
        output has ended, the program has `exit_s` seconds to exit.

        Raises OSError.
        """
        reader, writer = os.pipe()
        with open(reader, "rb") as program_end, ExitStack() as stack:
            self._stdin, self._unsent = stack.enter_context(open(writer, "wb", buffering=0)), b""
            super().__init__(launch(program_end), exit_s=exit_s)
            stack.pop_all()
        os.set_blocking(self._stdin.fileno(), False)
        self._config, self._profile, self._rules = config, profile, profile.acp
        program, *arguments = relay_command
        server = {"name": "hivemind", "command": program, "args": arguments, "env": []}
        servers = [server, *(_server(*item) for item in profile.own_servers(config).items())]
        self._place = {"cwd": os.path.abspath(folder), "mcpServers": servers}
        self._first_prompt, self._session = prompt, session
        self._capabilities: Mapping[str, Any] = {}
        self._open_settings: dict[json_rpc.RequestId, str] = {}  # with what a refusal means
        self._replay_s = 0.0
        self._is_prompting = self._is_cancelled = self._has_authenticated = False
        self._stop_reason = ""
        self._calls: dict[str, dict[str, Any]] = {}
        self._open_requests: list[Request] = []
        self._usage_messages = 0
        self._rpc = json_rpc.JsonRpc(self._write, max_line_bytes=MAX_LINE_BYTES)
        client = {"name": "hivemind", "title": "hivemind", "version": "1"}
        capabilities = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        fields = {"protocolVersion": PROTOCOL_VERSION, "clientCapabilities": capabilities, "clientInfo": client}
        self._rpc.request("initialize", fields)

    # input and output

    @property
    def outputs(self) -> list[int]:
        return [self._stdin.fileno()] if self._unsent else []

    def _write(self, line: bytes) -> None:
        self._unsent += line
        self._flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._stdin.fileno(), self._unsent) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:  # its output says how it ended
            self._unsent = b""

    def read(self) -> Iterator[events.Event]:
        self._flush()
        yield from super().read()
        if time.monotonic() >= self.due:
            self.due = math.inf
            if self._is_prompting:
                self._is_prompting = False
                yield events.TurnEnd(self._stop_reason)
            else:
                self.prompt(self._first_prompt)

    def __exit__(self, *error: Any) -> None:
        with self._stdin:
            super().__exit__(*error)

    def _ending(self, status: int | None) -> Iterator[events.Event]:
        if self._is_prompting and self.due != math.inf:
            self.takes_prompts = False
            yield events.TurnEnd(self._stop_reason)
        yield from super()._ending(status)

    def prompt(self, text: str) -> None:
        self._is_prompting = True
        self._is_cancelled = False
        content = [{"type": "text", "text": text}]
        self._rpc.request("session/prompt", {"sessionId": self._session, "prompt": content})

    def cancel(self) -> bool:
        if self._is_cancelled or not self._is_prompting:
            return False
        self._is_cancelled = True
        self._rpc.notify("session/cancel", {"sessionId": self._session})
        for request in self._open_requests:
            self._rpc.respond(request, {"outcome": {"outcome": "cancelled"}})
        self._open_requests.clear()
        return True

    def answer(self, request: events.PermissionRequest, *, is_allowed: bool, reason: str = "") -> bool:  # noqa: ARG002
        source = request.source
        if source not in self._open_requests:  # the turn was cancelled
            return True
        self._open_requests.remove(source)
        options = _mappings(source.params.get("options"))
        kinds = ("allow_once",) if is_allowed else ("reject_once", "reject_always")  # never allow_always
        option_id = next((o.get("optionId") for kind in kinds for o in options if o.get("kind") == kind), None)
        outcome = {"outcome": "cancelled"} if option_id is None else {"outcome": "selected", "optionId": option_id}
        self._rpc.respond(source, {"outcome": outcome})
        return True

    # messages

    def _events(self, chunk: bytes) -> Iterator[events.Event]:
        for message in self._rpc.feed(chunk):
            yield from self._message_events(message)

    def _message_events(self, message: json_rpc.Incoming) -> Iterator[events.Event]:
        match message:
            case Response(error=JsonRpcError() as error):
                yield from self._error_events(message, error)
            case Response():
                yield from self._response_events(message)
            case Notification(method="session/update"):
                yield from self._update_events(message.params)
            case Request(method="session/request_permission"):
                self._open_requests.append(message)
                call = self._merged_call(_mapping(message.params.get("toolCall")))
                yield events.PermissionRequest(call, message)
            case Request():
                self._rpc.refuse(message, JsonRpcError(json_rpc.METHOD_NOT_FOUND, f"{message.method} is not offered"))
                yield events.OtherUpdate(message.method, _dumped(message.params))
            case Notification() if self._is_prompting:
                yield events.OtherUpdate(message.method, _dumped(message.params))
            case BadLine(is_too_long=True):
                yield too_much_output(MAX_LINE_BYTES)
            case BadLine():
                text = message.text
                yield events.OtherUpdate(message.reason, text) if self._is_prompting else events.Problem(text)

    def _response_events(self, response: Response) -> Iterator[events.Event]:
        result = _mapping(response.result)
        match response.method:
            case "initialize":
                if result.get("protocolVersion") != PROTOCOL_VERSION:
                    version = f"version {result.get('protocolVersion')!r:.20} of the protocol, not {PROTOCOL_VERSION}"
                    yield events.Failure(f"speaks {version}")
                    return
                self._capabilities = _mapping(result.get("agentCapabilities"))
                info = _mapping(result.get("agentInfo"))
                about = f"{info.get('name', self._config.name)} {info.get('version', '')}".rstrip()
                self.announcement = "; ".join([about, *_names(self._capabilities)])
                yield from self._open_session()
            case "authenticate":
                yield from self._open_session()
            case "session/new" | "session/load" | "session/resume":
                yield from self._session_events(response.method, result)
            case "session/prompt":
                yield from self._usage_events({"answer": result})
                self._stop_reason = str(result.get("stopReason") or "end_turn")[:100]
                self.due = time.monotonic() + _REST_S
            case _:
                self._open_settings.pop(response.id, None)
                self._await_prompt()

    def _error_events(self, response: Response, error: JsonRpcError) -> Iterator[events.Event]:
        """Yield a failure for an error response. If a login is missing, first ask the program once to use its key."""
        method, reason = response.method, error.message[:500]
        is_session = method in ("session/new", "session/load", "session/resume")
        if is_session and error.code == _AUTH_REQUIRED and self._rules.authenticate and not self._has_authenticated:
            self._has_authenticated = True
            self._rpc.request("authenticate", {"methodId": self._rules.authenticate})
        elif method == "session/resume" and error.code == json_rpc.METHOD_NOT_FOUND:  # Qwen Code offers it all the same
            self._capabilities = {**self._capabilities, "sessionCapabilities": {}}
            yield from self._open_session()
        elif response.id in self._open_settings:
            yield events.Failure(f"{self._open_settings[response.id]} ({reason})", "settings")
        elif error.code == _AUTH_REQUIRED or method == "authenticate":
            yield events.Failure(reason, "login")
        else:
            details = "" if error.data is None else f" ({as_text(error.data)})"
            is_lost = is_session and method != "session/new"
            yield events.Failure(f"refuses {method}: {reason}{details}"[:1000], "session" if is_lost else "error")

    # the session

    def _open_session(self) -> Iterator[events.Event]:
        """Request a new session, or continue the known one: resume it if the program can; else load it, which makes the program
        send its whole history again."""
        can_resume = _mapping(self._capabilities.get("sessionCapabilities")).get("resume") is not None
        if self._session is None:
            self._rpc.request("session/new", self._place)
        elif can_resume or self._capabilities.get("loadSession") is True:
            method = "session/resume" if can_resume else "session/load"
            self._rpc.request(method, {"sessionId": self._session, **self._place})
        else:
            yield events.Failure("cannot continue a session", "session")

    def _session_events(self, method: str, result: Mapping[str, Any]) -> Iterator[events.Event]:
        """Yield the event that the session is open. Then request its mode and model, which a loaded session may have lost. The
        prompt is sent after the answers to these requests."""
        if method == "session/new":
            if not isinstance(result.get("sessionId"), str):
                yield events.Failure("gave its session no id")
                return
            self._session = result["sessionId"]
        assert self._session is not None
        yield events.SessionOpened(self._session)
        for name, value in (("mode", self._config.mode or self._profile.mode), ("model", self._config.model)):
            option_id, choices = self._choices(name, value, result)
            self.announcement += f"; {name}s {', '.join(choices)}" if choices else ""
            if value and not self._profile.sets_by_configuration(name):
                yield from self._set(name, value, option_id, choices)
        self._replay_s = _REPLAY_S if method == "session/load" else 0.0
        self._await_prompt()

    def _set(self, name: str, value: str, option_id: str | None, choices: list[str]) -> Iterator[events.Event]:
        """Request the setting `name` (`mode` or `model`) with this value: by the option `option_id`, or by the protocol's own
        method if that is None. Yield a failure for a mode that is not among the program's `choices`."""
        if option_id is not None:
            method, fields = "session/set_config_option", {"configId": option_id, "value": value}
        else:
            method, fields = f"session/set_{name}", {f"{name}Id": value}
        problem = f"has no {name} {value!r}; it has {', '.join(choices) or 'no choice'}"
        if name == "mode" and choices and value not in choices:  # a model that is not listed may exist
            yield events.Failure(problem, "settings")
        else:
            self._open_settings[self._rpc.request(method, {"sessionId": self._session, **fields})] = problem

    def _choices(self, name: str, value: str | None, result: Mapping[str, Any]) -> tuple[str | None, list[str]]:
        """Return the id of the option that sets the mode or model (None: the protocol has a method for it), and the values that
        the program offers."""
        plural = f"{name}s"
        entries = _mappings(_mapping(result.get(plural)).get(f"available{plural.capitalize()}"))
        values = _texts(entries, "modelId" if name == "model" else "id")
        options = _mappings(result.get("configOptions"))
        option = next((o for o in options if name in (o.get("category"), o.get("id"))), None)
        if option is None or value in values:
            return None, values
        entries = _mappings(option.get("options"))
        groups = [entry for group in entries for entry in _mappings(group.get("options"))]
        return as_text(option.get("id")), _texts([*entries, *groups], "value")

    def _await_prompt(self) -> None:
        """Schedule the prompt once all answers about settings have come: at once or, after a load, when the program has sent the
        history again."""
        if not self._open_settings:
            self.due = time.monotonic() + self._replay_s

    # updates

    def _update_events(self, params: Mapping[str, Any]) -> Iterator[events.Event]:
        if not self._is_prompting:  # a replay
            if self.due != math.inf:
                self._await_prompt()
            return
        update = _mapping(params.get("update"))
        kind = str(update.get("sessionUpdate"))
        yield from self._usage_events({"update": update})
        if params.get("sessionId") != self._session:
            yield events.OtherUpdate(f"{kind} of another session", _dumped(update))
            return
        match kind:
            case "agent_message_chunk" | "agent_thought_chunk":
                if text := _content_text(update.get("content")):
                    is_thought, message = kind == "agent_thought_chunk", as_text(update.get("messageId"))
                    yield events.AgentText(text, is_chunk=True, is_thought=is_thought, message=message)
            case "tool_call" | "tool_call_update":
                yield from self._call_events(update)
            case "plan":
                entries = _mappings(update.get("entries"))
                yield events.AgentPlan(tuple((str(e.get("content")), str(e.get("status", "pending"))) for e in entries))
            case _ if kind not in _SILENT_UPDATES:
                yield events.OtherUpdate(kind, _dumped(update))

    def _call_events(self, update: Mapping[str, Any]) -> Iterator[events.Event]:
        call = self._merged_call(update)
        fields = self._calls[call.id]
        if call.is_hive_tool or fields.get("is_over"):
            return
        yield call
        if fields.get("status") in ("completed", "failed"):
            fields["is_over"] = True
            text = _content_texts(fields) or fields.get("output") or as_text(fields.get("rawOutput")) or ""
            yield events.ProgramCallResult(call.id, text, fields["status"] == "failed")

    def _merged_call(self, update: Mapping[str, Any]) -> events.ProgramCall:
        """Merge an update into the known fields of its call, since an update has only new fields. Return the whole call."""
        call_id = str(update.get("toolCallId"))
        fields = self._calls.setdefault(call_id, {})
        meta = {**_mapping(fields.get("_meta")), **_mapping(update.get("_meta"))}
        fields |= {
            key: value for key, value in update.items() if value is not None and key not in ("is_over", "output")
        }
        fields["_meta"] = meta
        if output := as_text(value_at(update, self._rules.output)):
            fields["output"] = fields.get("output", "") + output
        kind, title = str(fields.get("kind") or "other"), str(fields.get("title") or "")
        names = {path: as_text(value_at(fields, path)) for path in self._rules.tool_names}
        is_hive_tool = any(
            name is not None and fnmatchcase(name, pattern)
            for path, name in names.items()
            if path != "title" or kind == "other"  # the title of a command is the command, of a read the path
            for pattern in self._rules.hive_tools
        )
        tool = next((name for path, name in names.items() if name and path != "title"), kind)
        locations = [location.get("path") for location in _mappings(fields.get("locations"))]
        paths = tuple(str(path) for path in locations[:_MAX_PATHS] if path)
        arguments = _mapping(fields.get("rawInput")) or {"title": title, **({"paths": [*paths]} if paths else {})}
        return events.ProgramCall(call_id, tool, arguments, title[:_TITLE_CHARS], kind, paths, is_hive_tool)

    def _usage_events(self, message: Mapping[str, Any]) -> Iterator[events.Event]:
        for number, rule in enumerate(self._rules.usage):
            usage = rule.usage.read(message)
            if usage.tokens or usage.money:
                self._usage_messages += 1
                part = f"{number}" if rule.of != "message" else f"{number}.{self._usage_messages}"
                yield events.UsageReport(usage, part, is_cumulative=rule.of == "session")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return list(map(_mapping, value)) if isinstance(value, list) else []


def _server(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return one of the person's MCP servers in the protocol's form."""
    command, *arguments = server_command(entry) or [""]
    variables, headers = (
        [{"name": key, "value": text} for key, text in _mapping(values).items()]
        for values in (entry.get("env") or entry.get("environment"), entry.get("headers"))
    )
    if command:
        return {"name": name, "command": command, "args": arguments, "env": variables}
    return {"type": entry.get("type", "http"), "name": name, "url": entry.get("url"), "headers": headers}


def _texts(entries: list[Mapping[str, Any]], key: str) -> list[str]:
    """Return the texts that the entries have under a key, at most 20."""
    return [text for entry in entries if isinstance(text := entry.get(key), str)][:20]


def _names(capabilities: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the capabilities that a program has announced."""
    for name, value in capabilities.items():
        if value is True or value == {}:
            yield name
        elif isinstance(value, dict) and name != "_meta":
            yield from (f"{name}.{inner}" for inner in _names(value))


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _content_text(content: Any) -> str:
    """Return the text of a content block. For a block that is not text, return its type with its text or address."""
    block = _mapping(content)
    if isinstance(block.get("text"), str):
        return str(block["text"])
    resource = _mapping(block.get("resource"))
    text = resource.get("text") or block.get("uri") or resource.get("uri")
    return str(text or "") if block.get("type") in (None, "text") else f"[{block.get('type')}] {text or ''}".rstrip()


def _content_texts(fields: Mapping[str, Any]) -> str:
    """Return the texts and diffs in the content of a call."""
    contents = _mappings(fields.get("content"))
    texts = (_diff_text(c) if c.get("type") == "diff" else _content_text(c.get("content")) for c in contents)
    return "\n".join(filter(None, texts))


def _diff_text(content: Mapping[str, Any]) -> str:
    path, old, new = (str(content.get(key) or "") for key in ("path", "oldText", "newText"))
    return "\n".join(difflib.unified_diff(old.splitlines(), new.splitlines(), path, path, lineterm="", n=2))
