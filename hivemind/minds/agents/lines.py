"""The reader of a program's own lines: JSON on its standard output, by the rules of its profile (README.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from socket import socket
from typing import Any

from hivemind.boundary import Unreadable
from hivemind.json_text import read_json
from hivemind.minds.agents import events
from hivemind.minds.agents.profile import LineRule, Profile, as_text, value_at
from hivemind.minds.agents.session import MAX_LINE_BYTES, ProgramSession, too_much_output
from hivemind.reaped_command import ReapedCommand


class LineSession(ProgramSession):
    """A program that is started with its prompt, prints lines, and exits at the end of its turn."""

    def __init__(self, command: ReapedCommand, profile: Profile, *, exit_s: float) -> None:
        super().__init__(command, exit_s=exit_s)
        self._profile = profile
        self._partial_line = bytearray()

    def _events(self, chunk: bytes) -> Iterator[events.Event]:
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._partial_line += line
            text = self._partial_line.decode("utf-8", "replace")
            self._partial_line.clear()
            yield from read_line(self._profile, text)
        self._partial_line += rest
        if len(self._partial_line) > MAX_LINE_BYTES:
            yield too_much_output(MAX_LINE_BYTES)

    def answer(self, request: events.PermissionRequest, *, is_allowed: bool, reason: str = "") -> bool:
        """Allow or deny the call that a program asked about with the tool `permission`: send the answer, in the form of Claude
        Code, over the connection on which the tool waits. Return False if there is no such connection."""
        if request.source is None:
            return False
        allowance = {"behavior": "allow", "updatedInput": request.call.arguments}
        verdict = allowance if is_allowed else {"behavior": "deny", "message": reason}
        with request.source as connection, suppress(OSError):
            connection.sendall(json.dumps({"text": json.dumps(verdict), "failed": False}).encode() + b"\n")
        return True

    def _ending(self, status: int | None) -> Iterator[events.Event]:
        if status == 0:
            yield events.TurnEnd()
        yield from super()._ending(status)


def permission_request(profile: Profile, arguments: Mapping[str, Any], connection: socket) -> events.PermissionRequest:
    """Return the request that a call of the tool `permission` makes. Its `connection` waits for the answer."""
    tool, call_input = str(arguments.get("tool_name")), arguments.get("input")
    call = events.ProgramCall(
        str(arguments.get("tool_use_id")), tool, call_input if isinstance(call_input, dict) else {},
        kind=profile.permission_kinds.get(tool, "other"), is_hive_tool=fnmatchcase(tool, profile.hive_tools),
    )  # fmt: skip
    return events.PermissionRequest(call, connection)


def read_line(profile: Profile, line: str) -> Iterator[events.Event]:
    """Yield the events of a line of output. Lines that are not JSON or match no rule are skipped."""
    try:
        message = read_json(line)
    except Unreadable:
        return
    if not isinstance(message, dict):
        return
    for rule in profile.lines:
        for element in _elements(message, rule.each):
            if all(value_at(element, path) == value for path, value in rule.when.items()):
                yield from _rule_events(rule, element, profile)


def _elements(message: dict[str, Any], path: str | None) -> Iterator[dict[str, Any]]:
    if path is None:
        yield message
        return
    element_list = value_at(message, path)
    for element in element_list if isinstance(element_list, list) else ():
        yield {**message, "one": element}


def _rule_events(rule: LineRule, message: Mapping[str, Any], profile: Profile) -> Iterator[events.Event]:
    def text_at(path: str | None) -> str | None:
        return as_text(value_at(message, path))

    tool, call_id = text_at(rule.tool), text_at(rule.id) or ""
    if tool is not None and profile.hive_tools and fnmatchcase(tool, profile.hive_tools):
        return
    if (session := text_at(rule.session)) is not None:
        yield events.SessionOpened(session)
    if (piece := text_at(rule.piece)) is not None:
        yield events.AgentText(piece, is_chunk=True)
    if text := text_at(rule.text):
        yield events.AgentText(text)
    if tool is not None:
        paths = rule.arguments
        values = {key: value_at(message, path) for key, path in paths.items()} if isinstance(paths, dict) else None
        arguments = value_at(message, paths) if isinstance(paths, str) else values
        yield events.ProgramCall(call_id, tool, arguments if isinstance(arguments, dict) else {})
    if (result := text_at(rule.result)) is not None:
        yield events.ProgramCallResult(call_id, result, value_at(message, rule.failed) not in (None, False, 0, ""))
    if rule.usage is not None:
        usage, part = rule.usage.read(message), text_at(rule.part)
        yield events.UsageReport(usage, part, is_cumulative=part is None and profile.usage_of == "session")
    if (approval := text_at(rule.approval)) is not None:
        yield events.PermissionRequest(events.ProgramCall("", approval))
    if (reason := text_at(rule.login)) is not None:
        yield events.Failure(reason, "login")
    if (problem := text_at(rule.problem)) is not None:
        yield events.Problem(problem)
