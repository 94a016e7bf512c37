"""The meaning of replies: a person's no, `done` or permission, and a reviewer's verdict."""

from __future__ import annotations

import re
from typing import Literal

from hivemind.pattern import pattern

_GREETING = r"(?:\s*(?:hi|hello|hey|dear|hallo)\b[^\n]{0,60}\n)?"
_REFUSAL = pattern(
    rf"(?i){_GREETING}\W*(?:no|nope|nah|nein|non|stop|cancel)(?:,? thank(?:s| you))?\s*(?:[.,;:!*_`\n]|-(?!\w)|$)"
)
_PROHIBITION = pattern(
    rf"(?i){_GREETING}\W*(?:please,? )?(?:do not|don.?t|not|never)\b(?! (?:worry|hesitate|mind|bad))"
)
_VERDICT = re.compile(r"\A\s*(approved|rejected)\b", re.IGNORECASE)
_YES = ("once", "allow", "allowed", "yes", "ok", "y", "approved")
_NO = ("deny", "denied", "no", "reject", "rejected")
_NO_OBJECTION = pattern(r"(?i)\W*no (?:problem|worries|objections?)\b")
_ALWAYS = ("always", "allow always", "always for this task")
_FIRST_WORD = pattern(r"(?s)\W*(\w+)[\s`:,.!]*(.*)")


def is_refusal(answer: str, *, at_gate: bool = False) -> bool:
    """Check whether an answer is a no that ends the task. "No problem, go on." is not a no.

    "Do not paint it." is a no only `at_gate`, at a step that waits for a person's consent; elsewhere it may say how to continue.
    """
    return _REFUSAL.match(answer) is not None or (at_gate and _PROHIBITION.match(answer) is not None)


def is_acceptance(answer: str) -> bool:
    """Check whether a person's answer is `done`: the task may end with the work as it is."""
    return answer.strip().strip("`.!").casefold() == "done"


def read_verdict(body: str) -> tuple[Literal["approved", "rejected"], tuple[str, ...]] | None:
    """Return the verdict and the problems in a reply; None if its first word is neither `approved` nor `rejected`."""
    match = _VERDICT.match(body)
    if match is None:
        return None
    lines = [line.strip() for line in body.strip().splitlines()]
    if match[1].lower() == "approved":
        return "approved", ()
    return "rejected", tuple(line for line in lines[1:] if line and not line.startswith(">")) or (lines[0],)


def read_permission(text: str) -> tuple[Literal["allow", "deny"], Literal["once", "task"], str] | None:
    """Return a person's decision about a call, whether it holds once or for the whole task, and the reason. Return None if the
    reply is unclear."""
    if text.strip().partition("\n")[0].strip().strip("`.!").casefold() in _ALWAYS:
        return "allow", "task", ""
    match = _FIRST_WORD.match(text)
    word, reason = ("", "") if match is None else (match[1].casefold(), match[2].strip())
    if word in _YES:
        return "allow", "once", ""
    if word in _NO and not _NO_OBJECTION.match(text):
        return "deny", "once", reason
    return ("deny", "once", text.strip()) if is_refusal(text, at_gate=True) else None
