"""Inputs, made of each format's grammar and of odd values, and then damaged as a bad disk or a bad program would."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml
from hypothesis import strategies as st

__all__ = ["inputs"]

# fmt: off
# ruff: noqa: E501 - lists of odd things are read as lists
TEXTS = (
    "", " ", "x", "ann", "bob", "one", "one.s1", "..", "../..", "/", "a/b", "\0", "\x1b[2J", "\u202e", "\ufeff", "\udc80",
    "ß" * 80,     "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2026-13-45", "inf", "nan", "1e400", "-0", "null", "true", "~",
    "(" * 3000, "<" * 500, "[" * 2000, "{{{", "*" * 200, "x" * 70_000, "full", "9" * 5000, "1h30m", "99999999999999w", "²",
)  # fmt: skip
NUMBERS = (0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**400, 0.5, 1e308, -1e308, float("inf"), float("nan"))
_SIMPLE = st.sampled_from(TEXTS) | st.sampled_from(NUMBERS) | st.none() | st.booleans() | st.text(max_size=20)
ODD = st.recursive(
    _SIMPLE,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(TEXTS), inner, max_size=4),
    max_leaves=8,
)
DEEP = st.sampled_from(
    [b"[" * 100_000, b'{"a":' * 50_000, b"- " * 20_000, b"(" * 100_000, b"> " * 20_000, b"<div>" * 20_000]
)


@st.composite
def _damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes as they stand, cut, with zeros at the end, with a piece twice, with bytes exchanged, or with something put in."""
    way = draw(st.sampled_from(("whole", "whole", "cut", "zeros", "twice", "exchanged", "put", "lines")))
    at = draw(st.integers(0, len(content)))
    match way:
        case "cut":
            return content[:at]
        case "zeros":
            return content[:at] + bytes(len(content) - at + draw(st.integers(0, 5000)))
        case "twice":
            return content[:at] + content
        case "exchanged":
            some = draw(st.binary(min_size=1, max_size=8))
            return content[:at] + some + content[at + len(some) :]
        case "put":
            return content[:at] + draw(st.binary(max_size=40) | DEEP) + content[at:]
        case "lines":
            return content.replace(b"\n", draw(st.sampled_from((b"\r\n", b"\r", b"\0", b"\n\n", b" "))))
    return content


def _text(value: object) -> bytes:
    return str(value).encode("utf-8", "surrogatepass")


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


@st.composite
def _exchanged(draw: st.DrawFn, value: Any) -> Any:
    """A value with something odd in place of one of its parts, at any depth, or next to them."""
    if isinstance(value, Mapping) and value and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(value)))
        copy = dict(value)
        match draw(st.sampled_from(("into", "into", "without", "beside"))):
            case "into":
                copy[key] = draw(_exchanged(value[key]))
            case "without":
                del copy[key]
            case "beside":
                copy[draw(st.sampled_from(TEXTS))] = draw(ODD)
        return copy
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        at = draw(st.integers(0, len(value) - 1))
        return [*value[:at], draw(_exchanged(value[at])), *value[at + 1 :]]
    return draw(ODD)


# each format

_STEP = st.one_of(
    st.sampled_from(TEXTS),
    st.fixed_dictionaries(
        {},
        optional={
            "title": ODD, "run": ODD, "ask": ODD, "write": ODD, "mail": ODD, "wait": ODD, "once": ODD, "timeout": ODD,
            "success_criteria": ODD, "tests": ODD, "proof": ODD,
        },
    ),
)  # fmt: skip
_FRONT = st.fixed_dictionaries(
    {},
    optional={
        "id": ODD, "title": ODD, "project": ODD, "priority": ODD, "assignee": ODD, "role": ODD, "dependencies": ODD, "view": ODD,
        "deadline": ODD, "steps": st.lists(_STEP, max_size=3), "max_tokens": ODD, "proof": ODD, "other": ODD, "text": ODD,
    },
)  # fmt: skip


@st.composite
def tasks(draw: st.DrawFn) -> tuple[str, bytes]:
    name = draw(st.sampled_from(("bad.md", "bad.yaml", "bad.txt", "bad", "BAD.YML", "bad.pdf", "é.md", "b" * 200)))
    front = draw(_FRONT)
    try:
        head = yaml.safe_dump(front, allow_unicode=True).encode("utf-8", "surrogatepass")
    except (yaml.YAMLError, UnicodeError):
        head = _json(front) + b"\n"
    text = (
        head
        if name.lower().endswith(("yaml", "yml"))
        else b"---\n" + head + b"---\n" + _text(draw(st.sampled_from(TEXTS)))
    )
    return name, draw(_damaged(text))


_HEADERS = (
    "From", "To", "Cc", "Subject", "Date", "Message-ID", "In-Reply-To", "References", "X-Hive-Task", "X-Hive-Step", "X-Hive-Hops",
    "X-Hive-Lane", "X-Hive-Seal", "Importance", "Auto-Submitted", "X-Hive-Unanswered", "MIME-Version", "Content-Type", "Content-Transfer-Encoding", "X",
)  # fmt: skip
_VALUES = (
    "ann@hive", "Ann <ann@hive>", "=?utf-8?q?=C3?=", "=?x?b?////?=", "=?utf-8?b?" + "A" * 3000 + "?=", "<a@b>" * 500, "(" * 3000, ":" * 3000,
    "text/plain; charset=utf-7", "text/plain; charset=utf-16", "text/html", "multipart/mixed; boundary=b", "multipart/mixed",
    'multipart/mixed; boundary=""', "message/rfc822", 'text/plain; charset="' + "x" * 500 + '"', "base64", "quoted-printable", "8bit",
    "Fri, 99 Foo 99999 99:99:99 +9999", "Thu, 1 Jan 1970 00:00:00 -9999", "1 " + "0" * 64, "high", "auto-replied", "é", "\x1b[2J",
    "undisclosed:;", '"' * 999, "," * 3000, "a@b," * 2000, "attachment; filename*0*=" + "x" * 300, "99999999999999999999", "-1",
)  # fmt: skip


@st.composite
def letters(draw: st.DrawFn) -> tuple[str, bytes]:
    lines = draw(
        st.lists(st.tuples(st.sampled_from(_HEADERS), st.sampled_from(_VALUES) | st.text(max_size=30)), max_size=8)
    )
    head = "".join(f"{name}: {value}\n" for name, value in lines)
    body = draw(
        st.sampled_from(("", "A text.\n", "--b\n\nx\n--b--\n", "--b\n" * 3000, "=E9=", "+AGE-", "\r", "AAAA=" * 50))
    )
    name = draw(st.sampled_from(("1763765432.M1P1Q1R00000000.host", "by-hand", "a b", "ü", "x:2,S", "x,U=1", "1.2.3")))
    return name, draw(_damaged(_text(f"{head}\n{body}")))


def files(contents: Mapping[str, bytes]) -> st.SearchStrategy[tuple[str, bytes]]:
    @st.composite
    def damage(draw: st.DrawFn) -> tuple[str, bytes]:
        name = draw(st.sampled_from(sorted(contents)))
        text = contents[name]
        lines = text.splitlines()
        value = None
        for load in (json.loads, yaml.safe_load) if not name.endswith((".md", ".txt")) else ():
            try:
                value = load(lines[-1] if name.endswith("jsonl") and lines else text)
                break
            except (ValueError, yaml.YAMLError, UnicodeError):
                continue
        if isinstance(value, dict | list) and draw(st.booleans()):
            before = b"\n".join(lines[:-1]) + b"\n" if name.endswith("jsonl") and len(lines) > 1 else b""
            text = before + _json(draw(_exchanged(value))) + b"\n"
        return name, draw(_damaged(text))

    return damage()


_KINDS = (
    "step.added", "step.defined", "step.noted", "step.verified", "step.done", "step.reopened", "step.blocked", "step.deleted",
    "evidence.captured", "lease.claimed", "lease.renewed", "lease.released", "lease.taken_over", "lease.expired", "agent.started",
    "agent.exited", "agent.heartbeat", "focus.set", "task.claimed", "task.done", "task.parked", "task.failed", "lane.published",
    "branch.created", "branch.merged", "paths.reserved", "paths.released", "unknown", "", "\0",
)  # fmt: skip
_FIELDS = (
    "task_id", "step_id", "agent_id", "position", "title", "success_criteria", "tests", "proof", "meta", "steps", "text", "checkpoint",
    "checkpoints", "evidence", "warnings", "reason", "commit_id", "ttl_seq", "generation", "incarnation", "patterns", "shared",
    "reservations", "card", "lane", "branch", "base", "base_seq", "into", "until", "asks", "from_agent_id",
)  # fmt: skip


@st.composite
def events(draw: st.DrawFn, next_seq: int) -> tuple[str, bytes]:
    event = {
        "seq": draw(st.sampled_from((next_seq, next_seq, next_seq, next_seq + 1, next_seq - 1, *NUMBERS))),
        "kind": draw(st.sampled_from(_KINDS)),
        **draw(st.dictionaries(st.sampled_from(_FIELDS), ODD, max_size=6)),
    }
    return "", draw(_damaged(_json(event if draw(st.integers(0, 5)) else [event]) + b"\n"))


_DOCUMENTS = {
    "bad.md": "# A\n\n## B\ntext\n\n```\ncode\n```\n\n* a\n  * b\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n[x]: y\n",
    "bad.html": "<html><head><title>x</title></head><body><h1>A</h1><p>b<table><tr><td>c</table><script>x</script></body></html>",
    "bad.toml": '[[node]]\nid = "a"\ntext = "b"\norder = 1.0\ntags = ["x"]\n',
    "bad.rst": "Title\n=====\n\nSection\n-------\n\n.. note:: x\n\n::\n\n  code\n",
    "bad.py": 'class A:\n    """Doc."""\n\n    def f(self, x: int) -> str:\n        return "x"\n',
    "bad.js": "export class A { f(x) { return `a${x}` } }\n",
    "bad.txt": "A text.\n\nAnother.\n",
    "bad.csv": "a,b\n1,2\n",
    "bad.json": '{"a": [1, {"b": null}]}',
    "bad.pdf": "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj "
    "3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R>>endobj 4 0 obj<</Length 9>>stream\nBT (x) Tj ET\n"
    "endstream endobj\ntrailer<</Root 1 0 R/Size 5>>\n%%EOF\n",
}


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, bytes]:
    name = draw(st.sampled_from(sorted(_DOCUMENTS)))
    text = _DOCUMENTS[name]
    for _ in range(draw(st.integers(0, 2))):
        piece = draw(st.sampled_from(text.split() or ["x"]))
        text = text.replace(piece, draw(st.sampled_from((*TEXTS, piece * 2, piece * 1000))), 1)
    return name, draw(_damaged(_text(text)))


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, bytes]:
    calls = [
        {"tool": "finish_step", "arguments": {"step": "one.s1", "text": "x"}},
        {"tool": "reply_mail", "arguments": {"body": "x"}},
    ]
    return "", draw(_damaged(_json(draw(_exchanged({"text": "A thought.", "calls": calls})))))


_METHODS = (
    "tools/call",
    "tools/list",
    "resources/read",
    "resources/list",
    "prompts/get",
    "initialize",
    "ping",
    "x",
    "logging/setLevel",
)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, bytes]:
    names = ("claim_task", "send_mail", "view", "read_file", "search", "note", "task_list", "finish_step", "x", "")
    params = {"name": draw(st.sampled_from(names)), "arguments": draw(ODD), "uri": draw(st.sampled_from(TEXTS))}
    request = {"jsonrpc": "2.0", "id": 1, "method": draw(st.sampled_from(_METHODS)), "params": params}
    return "", draw(_damaged(_json(draw(_exchanged(request)))))


_PATHS = (
    "/",
    "/journal?before=9",
    "/do/add",
    "/do/read",
    "/do/\0",
    "/mail/human/x%2F..",
    "/static/app.css",
    "/%09/evil.example",
    "//x",
    "",
)
_HEADERS = ("Host: evil.example", "Origin: http://evil.example", "Content-Length: 9", "Content-Length: 99999999999", "Content-Length: -1",
            "Transfer-Encoding: chunked", "Expect: 100-continue", "Upgrade: websocket", "Connection: close", "Cookie: \0", "HX-Request: true",
            "Content-Type: multipart/form-data", "Content-Type: multipart/form-data; boundary=b",
            "Content-Type: application/x-www-form-urlencoded")  # fmt: skip
_FORM = '--b\r\nContent-Disposition: form-data; name="{}"{}\r\n\r\n{}\r\n'
_BRACKETS = st.sampled_from(
    [b"[[](" * 250_000, b"![" * 500_000, b"*a **b " * 100_000, b"\n- a" * 100_000, b"`a``b" * 100_000]
)


@st.composite
def pages(draw: st.DrawFn) -> tuple[str, bytes]:
    if draw(st.integers(0, 3)) == 0:
        return "text", draw(_BRACKETS | DEEP | st.sampled_from(TEXTS).map(_text))
    line = f"{draw(st.sampled_from(('GET', 'POST', 'HEAD', 'PUT', 'x')))} /ROOT{draw(st.sampled_from(_PATHS))} HTTP/1.1"
    head = [line, "Host: localhost", *draw(st.lists(st.sampled_from(_HEADERS), max_size=4))]
    names = st.sampled_from(("number", "text", "box", "id", "from", "files", ""))
    parts = [_FORM.format(draw(names), draw(st.sampled_from(("", '; filename="../x"'))), draw(st.sampled_from(TEXTS)))
             for _ in range(draw(st.integers(0, 4)))]  # fmt: skip
    body = draw(st.sampled_from(("number=1&text=x", "3\r\nabc\r\n", "".join(parts) + "--b--\r\n")))
    return "", draw(_damaged(_text("\r\n".join(head) + "\r\n\r\n" + body)))


_FILES = (
    "a",
    "a/b",
    "a/b/c",
    "task.md",
    "attachments",
    "attachments/task.md",
    "TASK.MD/x",
    "files/a",
    "files/a/b",
    "graph.json",
    "../x",
)
_ROWS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "letters": {
        "id": ODD, "name": ODD, "base": ODD, "reason": ODD, "state": st.sampled_from(("open", "ended")), "giver": st.sampled_from(("hive", "munich")),
        "raw": st.none() | letters().map(lambda letter: letter[1].decode("latin-1")),
    },
    "tasks": {
        "id": ODD, "key": ODD, "assignee": ODD, "role": ODD, "maker": ODD, "priority": ODD, "body": ODD, "once": st.booleans(),
        "head": _exchanged({"title": "T", "steps": ["First?"], "priority": 1}).map(json.dumps) | DEEP.map(bytes.decode) | ODD,
        "names": st.lists(st.none() | st.sampled_from((*_FILES, *TEXTS)), max_size=4), "contents": st.lists(st.none() | st.just("x"), max_size=4),
    },
    "results": {
        "body": ODD, "state": st.sampled_from(("done", "failed")), "taker": st.none() | st.just("munich"),
        "names": st.lists(st.none() | st.sampled_from((*_FILES, *TEXTS)), max_size=4), "contents": st.lists(st.none() | st.just("x"), max_size=4),
    },
    "events": {
        "seq": ODD, "at": st.sampled_from(("infinity", "-infinity", "290000-01-01", "4000-01-01 BC")),
        "event": ODD.map(json.dumps) | DEEP.map(bytes.decode) | ODD,
    },
    "hives": {
        "name": ODD, "agents": _exchanged({"ann": "worker", "bob": None}).map(json.dumps) | DEEP.map(bytes.decode),
        "overview": _exchanged({"agents": {"ann": "idle"}, "tasks": {"inbox": 1}}).map(json.dumps), "events": ODD,
        "seen": st.sampled_from(("infinity", "-infinity", "290000-01-01", "4000-01-01 BC")),
    },
}  # fmt: skip


@st.composite
def rows(draw: st.DrawFn) -> tuple[str, bytes]:
    """Columns of a row of linked hives that somebody has put something odd into."""
    table = draw(st.sampled_from(sorted(_ROWS)))
    return table, json.dumps(draw(st.fixed_dictionaries({}, optional=_ROWS[table]))).encode()


def inputs(door: str, contents: Mapping[str, bytes]) -> st.SearchStrategy[tuple[str, bytes]]:
    """(name, bytes) for a door; `there` are the files of the hive that is asked."""
    [log] = (data for name, data in contents.items() if name == ".hive/journal/journal.jsonl")
    next_seq = sum(_count(line) for line in log.splitlines()[1:]) + 1
    return {
        "task": tasks(), "letter": letters(), "file": files(contents), "journal": events(next_seq), "knowledge": documents(),
        "mind": answers(), "mcp": requests(), "page": pages(), "row": rows(),
    }[door]  # fmt: skip


def _count(line: bytes) -> int:
    events = json.loads(line)
    return len(events) if isinstance(events, list) else 1
