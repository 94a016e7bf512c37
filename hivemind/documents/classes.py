"""Classify documents and mail threads by rules; each classification carries its reason."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hivemind.documents.formats import Outline
from hivemind.frozen import frozen

_NAMES = (
    ("readme", r"readme"),
    ("changelog", r"change(?:s|log)|history|release[-_ ]?notes|news"),
    ("license", r"licen[cs]e|copying|notice"),
    ("decision", r"adr|decisions?|rfc"),
    ("minutes", r"minutes|meeting|protokoll|standup|retro"),
    ("faq", r"faq|questions"),
    ("guide", r"guide|how-?to|tutorial|getting-?started|manual|handbook|runbook|install(?:ation)?|quickstart"),
    ("reference", r"reference|api|glossary|cheat-?sheet|spec(?:ification)?s?"),
    ("log", r"log|journal|diary"),
    ("policy", r"policy|policies|guidelines?|code-of-conduct|style|contributing|security"),
)
_FORMATS = {"python": "code", "code": "code"}
_CLASS = re.compile(r"[\w-]{1,64}")
_STATUSES = "draft|rejected|superseded|withdrawn|deprecated|obsolete|abandoned|proposed|replaced"
_STATUS = re.compile(rf"\b({_STATUSES})\b", re.IGNORECASE)
_STATUS_LINE = re.compile(rf"^[\W_]*status[\W_]*?[:\n][\W_]*({_STATUSES})\b", re.IGNORECASE | re.MULTILINE)
_STATUS_CHARS = 2_000  # a status line is looked for in this many characters


@frozen
class Classification:
    """A document's class (`name`, one word), the reason for this class, and the document's tags."""

    name: str
    reason: str
    tags: tuple[str, ...]


def classify(path: str, outline: Outline) -> Classification:
    """Classify a document by the first rule that matches: its front matter, format, words in its path, headings."""
    tags = tuple(dict.fromkeys(tag for label in outline.labels if (tag := _tag(label))))
    declared_class = outline.values.get("class") or outline.values.get("type")
    if isinstance(declared_class, str) and _CLASS.fullmatch(declared_class.strip()):
        return Classification(declared_class.strip().casefold(), "its front matter says so", tags)
    if outline.format in _FORMATS:
        return Classification(_FORMATS[outline.format], f"it is written in {outline.format}", tags)
    parts = re.split(r"[/\\]", path.casefold())
    for part in (re.sub(r"\.\w+$", "", parts[-1]), *reversed(parts[:-1])):
        for name, pattern in _NAMES:
            if re.search(rf"(?<![^\W\d_])(?:{pattern})(?![^\W\d_])", part):
                return Classification(name, f"its path has {part!r}", tags)
    if any(piece.kind == "heading" for piece in outline.pieces):
        return Classification("document", "it has headings, and no narrower rule matches", tags)
    return Classification("text", "it has no headings", tags)


def classify_thread(subject: str, bodies: Sequence[str]) -> Classification:
    """Classify a mail thread as question, decision, report or mail."""
    words = " ".join(bodies).casefold()
    tags = tuple(dict.fromkeys(tag for word in re.findall(r"\[([^\]]{1,64})\]", subject) if (tag := _tag(word))))
    first = bodies[0] if bodies else ""
    if "?" in subject or first.rstrip().endswith("?"):
        state = "and was answered" if len(bodies) > 1 else "and was not answered yet"
        return Classification("question", f"it begins with a question {state}", tags)
    if re.search(r"\b(?:decided|decision|we agreed|agreed that|beschlossen)\b", words):
        return Classification("decision", "it says what was decided", tags)
    if re.search(r"\b(?:report|result|finished|done|failed|status)\b", subject.casefold()):
        return Classification("report", "its subject says so", tags)
    return Classification("mail", "no narrower rule matches", tags)


def _tag(label: str) -> str:
    """Turn a label into a tag: lower case, with hyphens between words (`Data Base` → `data-base`). Return "" for a
    label without letters."""
    tag = re.sub(r"[^\w]+", "-", label.casefold()).strip("-_")[:64]
    return tag if re.search(r"[^\W\d_]", tag) else ""


def document_status(outline: Outline) -> str:
    """Return the declared status of a document that is not in force (draft, rejected, superseded …), otherwise "".

    The status is read from the front matter, or from a line or heading "Status" near the beginning.
    """
    declared_status = outline.values.get("status", outline.values.get("state"))
    match = (
        _STATUS.search(declared_status)
        if isinstance(declared_status, str)
        else _STATUS_LINE.search(outline.text[:_STATUS_CHARS])
    )
    if match is None and outline.values.get("draft") is True:
        return "draft"
    return "" if match is None else match[1].lower()
