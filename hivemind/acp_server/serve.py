"""The connection to one editor: its requests, and the changes of the hive that concern its sessions."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hivemind import __version__
from hivemind.acp_server.session import Session
from hivemind.acp_server.threads import list_sessions, thread_tasks
from hivemind.boundary import Unreadable
from hivemind.errors import HivemindError
from hivemind.fs import Watcher, open_watcher
from hivemind.hive import Hive
from hivemind.json_rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    BadLine,
    Incoming,
    JsonRpc,
    JsonRpcError,
    Notification,
    Request,
    Response,
    client_pipes,
)
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
    with client_pipes() as (input_fd, output_fd):
        _Server(Hive.open(layout.root), output_fd).run(input_fd)


class _Server:
    def __init__(self, hive: Hive, output_fd: int) -> None:
        self._hive, self._output_fd = hive, output_fd
        self._connection = JsonRpc(self._write)
        self._sessions: dict[str, Session] = {}
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._watcher: Watcher | None = None
        self._is_stale = False
        self._refreshed_at = 0.0
        self._handlers = {
            "initialize": self._initialize,
            "session/new": self._new_session,
            "session/load": self._load_session,
            "session/resume": self._resume_session,
            "session/list": self._list_sessions,
        }

    def run(self, input_fd: int) -> None:
        """Handle messages and changes until the input ends. Raises BrokenPipeError if the editor has gone."""
        poll = select.poll()
        for fd in (input_fd, self._wake_read):
            poll.register(fd, select.POLLIN)
        try:
            while True:
                ready = dict(poll.poll(self._timeout_ms()))
                if self._wake_read in ready:
                    os.read(self._wake_read, _CHUNK)
                    self._is_stale = True
                is_due = not ready or (self._is_stale and time.monotonic() >= self._refreshed_at + _PAUSE_S)
                if input_fd in ready:
                    data = os.read(input_fd, _CHUNK)
                    if not data:
                        return
                    for message in self._connection.feed(data):
                        self._handle(message)
                    self._is_stale = True
                if is_due:
                    self._refresh()
                if is_due or input_fd in ready:
                    self._watch()
        finally:
            if self._watcher is not None:
                self._watcher.close()

    def _timeout_ms(self) -> float | None:
        """Return the time until the next look at the hive. As for agents, a slow heartbeat makes up for a lost wake-up."""
        if self._is_stale:
            return max(0.0, self._refreshed_at + _PAUSE_S - time.monotonic()) * 1000 + 1
        return self._hive.config.heartbeat_s * 1000 if self._watcher is not None else None

    def _refresh(self) -> None:
        self._is_stale, self._refreshed_at = False, time.monotonic()
        for session in self._sessions.values():
            try:
                session.refresh()
            except BrokenPipeError:
                raise
            except (
                HivemindError,
                OSError,
            ) as error:  # the disk is full, or a file is damaged: the next look may succeed
                sys.stderr.write(f"hivemind acp: {session.id}: {error}\n")

    def _watch(self) -> None:
        """Watch the hive while a session follows a task, and the folders of these tasks."""
        task_ids = [session.task_id for session in self._sessions.values() if session.task_id is not None]
        layout, mailbox = self._hive.layout, self._hive.layout.mailbox(HUMAN)
        if self._watcher is None and task_ids:
            folders = [layout.inbox, layout.active, layout.done, layout.failed, mailbox / "new", mailbox / "cur"]
            self._watcher = open_watcher(self._hive.config.watch, folders, [], self._wake)
        elif self._watcher is not None and not task_ids:
            self._watcher.close()
            self._watcher = None
        if self._watcher is not None:
            for folder in (layout.active / task_id for task_id in task_ids):
                if folder.is_dir():
                    self._watcher.add(folder, is_temporary=True)

    def _wake(self, _: Path) -> None:
        try:
            os.write(self._wake_write, b".")
        except BlockingIOError:  # a wake-up is pending already
            pass

    # Messages of the editor

    def _handle(self, message: Incoming) -> None:
        match message:
            case Request():
                self._answer(message)
            case Notification("session/cancel", params):
                if (session := self._sessions.get(str(params.get("sessionId")))) is not None:
                    session.cancel()
            case Response():
                for session in self._sessions.values():
                    session.answer(message)
            case BadLine():
                self._connection.refuse(None, JsonRpcError(message.code, message.reason))

    def _answer(self, request: Request) -> None:
        try:
            if request.method == "session/prompt":  # answered when its turn ends
                self._session(request.params).prompt(request)
                return
            handler = self._handlers.get(request.method, _refuse_method)
            self._connection.respond(request, handler(request.params))
        except BrokenPipeError:
            raise
        except JsonRpcError as error:
            self._connection.refuse(request, error)
        except Unreadable as error:
            self._connection.refuse(request, JsonRpcError(INVALID_PARAMS, str(error)))
        except Exception as error:  # the boundary of a request
            fault = str(error) if isinstance(error, HivemindError | OSError) else f"a fault of hivemind: {error!r}"
            self._connection.refuse(request, JsonRpcError(INTERNAL_ERROR, fault))

    def _initialize(self, _: Mapping[str, Any]) -> dict[str, Any]:
        title = f"hivemind: {self._hive.layout.root.name}"
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "agentCapabilities": _CAPABILITIES,
            "agentInfo": {"name": "hivemind", "title": title, "version": __version__},
            "authMethods": [],
        }

    def _new_session(self, params: Mapping[str, Any]) -> dict[str, Any]:
        session_id = f"editor-{os.urandom(6).hex()}"
        self._sessions[session_id] = Session(self._hive, self._connection, session_id, _cwd(params))
        return {"sessionId": session_id}

    def _load_session(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return self._open_session(params, replay=True)

    def _resume_session(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return self._open_session(params, replay=False)

    def _open_session(self, params: Mapping[str, Any], *, replay: bool) -> dict[str, Any]:
        session_id, cwd = str(params.get("sessionId")), _cwd(params)
        tasks = thread_tasks(self._hive, session_id)
        if not tasks:
            raise JsonRpcError(RESOURCE_NOT_FOUND, f"no task of the hive belongs to the session {session_id!r}")
        new_session = Session(self._hive, self._connection, session_id, cwd)
        self._sessions.setdefault(session_id, new_session).open(tasks, replay=replay)
        return {}

    def _list_sessions(self, params: Mapping[str, Any]) -> dict[str, Any]:
        cwd = params.get("cwd")
        return {"sessions": list_sessions(self._hive, cwd if isinstance(cwd, str) else None)}

    def _session(self, params: Mapping[str, Any]) -> Session:
        session = self._sessions.get(str(params.get("sessionId")))
        if session is None:
            raise JsonRpcError(RESOURCE_NOT_FOUND, f"there is no session {params.get('sessionId')!r}; load it first")
        return session

    def _write(self, line: bytes) -> None:
        view = memoryview(line)
        while view:
            view = view[os.write(self._output_fd, view) :]


def _refuse_method(_: Mapping[str, Any]) -> dict[str, Any]:
    raise JsonRpcError(METHOD_NOT_FOUND, "this agent has no such method")


def _cwd(params: Mapping[str, Any]) -> str:
    cwd = params.get("cwd")
    if not isinstance(cwd, str) or not os.path.isabs(cwd) or "\0" in cwd:
        raise JsonRpcError(INVALID_PARAMS, "cwd must be an absolute path")
    return cwd
