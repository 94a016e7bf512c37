"""The connection to one editor: its requests, and the changes of the hive that concern its sessions."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Mapping
from typing import Any

from hivemind import __version__, json_rpc
from hivemind.acp_server.editor_session import EditorSession
from hivemind.acp_server.threads import list_sessions, thread_tasks
from hivemind.boundary import Unreadable
from hivemind.errors import HivemindError
from hivemind.fs import Watcher, open_watcher
from hivemind.hive import Hive
from hivemind.json_rpc import BadLine, JsonRpcError, Notification, Request, Response
from hivemind.layout import HUMAN, Layout
from hivemind.private import keep_keys_private

PROTOCOL_VERSION = 1
RESOURCE_NOT_FOUND = -32002
_CHUNK = 1 << 16
_PAUSE_S = 0.1  # the hive is read at most this often
_CAPABILITIES = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "embeddedContext": True},
    "sessionCapabilities": {"list": {}, "resume": {}},
}


def serve(layout: Layout) -> None:
    """Serve the editor on standard input and output until it leaves. Tasks go on without it. Raises UserError."""
    keep_keys_private()
    with json_rpc.client_pipes() as (input_fd, output_fd):
        _Server(Hive.open(layout.root), output_fd).run(input_fd)


class _Server:
    def __init__(self, hive: Hive, output_fd: int) -> None:
        self._hive, self._output_fd = hive, output_fd
        self._connection = json_rpc.JsonRpc(self._write)
        self._sessions: dict[str, EditorSession] = {}

    def run(self, input_fd: int) -> None:
        """Handle messages and changes until the input ends. Raises BrokenPipeError if the editor has gone."""
        layout, config, mailbox = self._hive.layout, self._hive.config, self._hive.layout.mailbox(HUMAN)
        folders = [layout.inbox, layout.active, layout.done, layout.failed, mailbox / "new", mailbox / "cur"]
        poll = select.poll()
        wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        for fd in (input_fd, wake):
            poll.register(fd, select.POLLIN)
        is_stale, refreshed_at = False, 0.0
        with open_watcher(config.watch, folders, [], lambda _: os.eventfd_write(wake, 1)) as watcher:
            while True:
                # as for agents, a slow heartbeat makes up for a lost wake-up
                rest_s = max(0.0, refreshed_at + _PAUSE_S - time.monotonic()) if is_stale else config.heartbeat_s
                ready = dict(poll.poll(rest_s * 1000))
                if wake in ready:
                    os.eventfd_read(wake)
                if input_fd in ready:
                    if not (data := os.read(input_fd, _CHUNK)):
                        return
                    for message in self._connection.feed(data):
                        self._handle(message)
                is_stale = is_stale or bool(ready)
                if not ready or time.monotonic() >= refreshed_at + _PAUSE_S:
                    is_stale, refreshed_at = False, time.monotonic()
                    self._refresh(watcher)

    def _refresh(self, watcher: Watcher) -> None:
        for session in self._sessions.values():
            try:
                session.refresh()
            except BrokenPipeError:
                raise
            except (HivemindError, OSError) as error:  # a full disk, a damaged file: the next look may succeed
                sys.stderr.write(f"hivemind acp: {session.id}: {error}\n")
            if session.task_id is not None and (folder := self._hive.layout.active / session.task_id).is_dir():
                watcher.add(folder, is_temporary=True)

    def _handle(self, message: json_rpc.Incoming) -> None:
        match message:
            case Request():
                self._answer(message)
            case Notification("session/cancel", params) if str(params.get("sessionId")) in self._sessions:
                self._sessions[str(params["sessionId"])].cancel()
            case Response():
                for session in self._sessions.values():
                    session.answer(message)
            case BadLine():
                self._connection.refuse(None, JsonRpcError(message.code, message.reason))

    def _answer(self, request: Request) -> None:
        try:
            result = self._result(request)
            if result is not None:
                self._connection.respond(request, result)
        except BrokenPipeError:
            raise
        except JsonRpcError as error:
            self._connection.refuse(request, error)
        except Exception as error:  # the boundary of a request
            code = json_rpc.INVALID_PARAMS if isinstance(error, Unreadable) else json_rpc.INTERNAL_ERROR
            fault = str(error) if isinstance(error, HivemindError | OSError) else f"a fault of hivemind: {error!r}"
            self._connection.refuse(request, JsonRpcError(code, fault))

    def _result(self, request: Request) -> dict[str, Any] | None:
        """Return the result of a request; None for a prompt, which is answered when its turn ends."""
        params, session_id = request.params, str(request.params.get("sessionId"))
        match request.method:
            case "initialize":
                title = f"hivemind: {self._hive.layout.root.name}"
                return {
                    "protocolVersion": PROTOCOL_VERSION,
                    "agentCapabilities": _CAPABILITIES,
                    "agentInfo": {"name": "hivemind", "title": title, "version": __version__},
                    "authMethods": [],
                }
            case "session/new":
                session_id = f"editor-{os.urandom(6).hex()}"
                self._sessions[session_id] = EditorSession(self._hive, self._connection, session_id, _cwd(params))
                return {"sessionId": session_id}
            case "session/load" | "session/resume":
                new_session = EditorSession(self._hive, self._connection, session_id, _cwd(params))
                if not (tasks := thread_tasks(self._hive, session_id)):
                    raise JsonRpcError(RESOURCE_NOT_FOUND, f"no task of the hive belongs to the session {session_id!r}")
                session = self._sessions.setdefault(session_id, new_session)
                session.open(tasks, replay=request.method == "session/load")
                return {}
            case "session/list":
                return {"sessions": list_sessions(self._hive, params.get("cwd"))}
            case "session/prompt":
                if session_id not in self._sessions:
                    raise JsonRpcError(RESOURCE_NOT_FOUND, f"the session {session_id!r} is unknown; load it first")
                self._sessions[session_id].prompt(request)
                return None
        raise JsonRpcError(json_rpc.METHOD_NOT_FOUND, f"this agent has no method {request.method}")

    def _write(self, line: bytes) -> None:
        view = memoryview(line)
        while view:
            view = view[os.write(self._output_fd, view) :]


def _cwd(params: Mapping[str, Any]) -> str:
    cwd = params.get("cwd")
    if not isinstance(cwd, str) or not os.path.isabs(cwd) or "\0" in cwd:
        raise JsonRpcError(json_rpc.INVALID_PARAMS, "cwd must be an absolute path")
    return cwd
