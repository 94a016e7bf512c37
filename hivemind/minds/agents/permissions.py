"""The policy for calls that a coding agent asks to be allowed: each kind of call is allowed, denied, or asked of the operator."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Collection, Mapping
from typing import Literal

from hivemind.minds.agents.events import ProgramCall

Policy = Literal["allow", "ask", "deny"]
Rule = Literal["allow", "ask", "deny", "commands"]
PermissionClass = Literal["read", "edit", "execute", "fetch", "other"]

_CLASSES: dict[str, PermissionClass] = {
    "read": "read", "search": "read", "think": "read", "edit": "edit", "delete": "edit", "move": "edit",
    "execute": "execute", "fetch": "fetch",
}  # fmt: skip
_DEFAULTS: dict[PermissionClass, Rule] = {"read": "allow", "edit": "allow", "fetch": "ask", "other": "ask"}
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "/bin/sh", "/bin/bash", "/usr/bin/bash"})
_SEPARATORS = frozenset({"&&", "||", ";", "|", "&"})


def decide(
    call: ProgramCall,
    permissions: Mapping[PermissionClass, Rule],
    commands: Collection[str] = (),
    *,
    is_boxed: bool = False,
) -> Policy:
    """Return whether a call is allowed, denied, or asked of the operator, by its kind. The hive's own tools are always allowed.

    `commands` are the programs that the agent may run: a call that runs only these is allowed, any other asks. Without such a
    list, a program in a box may run every command, and a program without a box asks. A policy for `execute` in `permissions`
    replaces this rule.
    """
    if call.is_hive_tool:
        return "allow"
    permission_class = _CLASSES.get(call.kind, "other")
    default: Rule = "commands" if commands else "allow" if is_boxed else "ask"
    policy: Rule = permissions.get(permission_class) or _DEFAULTS.get(permission_class, default)
    if policy == "commands":
        programs = _programs(command_of(call))
        return "allow" if programs and programs <= set(commands) else "ask"
    return policy


def call_key(call: ProgramCall) -> str:
    """Return a key that is the same when the program asks for the same call again, in another session too."""
    subject = command_of(call) or json.dumps([call.tool, call.arguments or call.title, *call.paths], sort_keys=True)
    return hashlib.sha256(f"{call.kind}\0{subject}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def command_of(call: ProgramCall) -> str:
    """Return the command line that a call would run, or "" if it is not known."""
    command = call.arguments.get("command", call.arguments.get("cmd", ""))
    if isinstance(command, list):
        words = [str(word) for word in command]
        is_shell = len(words) == 3 and words[0] in _SHELLS and words[1] in ("-c", "-lc")
        return words[2] if is_shell else shlex.join(words)
    return command if isinstance(command, str) else ""


def _programs(command: str) -> set[str]:
    """Return the programs that a shell command runs, or an empty set if its words do not show that clearly."""
    if any(mark in command for mark in ("$", "`", "\n", "(", ")", "{", "}", "<", ">", "\\")):
        return set()
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    programs, is_first = set[str](), True
    try:
        for word in lexer:
            if word in _SEPARATORS:
                is_first = True
            elif is_first:
                programs.add(word)
                is_first = False
    except ValueError:  # an open quote
        return set()
    return programs if not any("=" in program for program in programs) else set()
