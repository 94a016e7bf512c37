"""A transcript as one page for a browser: no script, nothing loaded, light and dark, everything escaped."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from hivemind.masking import harmless
from hivemind.taskrun.transcript import Entry, Transcript

__all__ = ["transcript_page"]

_LONG = 1_500
_NAMED_CHARS = 80
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}: transcript</title>
<style>
:root {{ background: var(--paper); color: var(--ink); color-scheme: light dark;
  --ink: #1b1f24; --paper: #fff; --soft: #f3f4f6; --line: #79828e; --link: #0b57d0; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e6e8eb; --paper: #15181c; --soft: #1f242a; --line: #8b95a1; --link: #8ab4f8; }}
}}
body {{ margin: 0 auto; max-width: 60rem; padding: 1rem; font: 1rem/1.5 sans-serif; }}
a {{ color: var(--link); }}
pre {{ margin: 0 0 .75rem; padding: .5rem .75rem; background: var(--soft); font-size: .875rem; white-space: pre-wrap; }}
pre, summary, p, li {{ overflow-wrap: anywhere; }}
p {{ margin: .25rem 0; }}
details {{ margin: .5rem 0; border-left: 3px solid var(--line); padding-left: .75rem; }}
:focus-visible {{ outline: 3px solid var(--link); outline-offset: 2px; }}
</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p>Task <code>{task}</code>, {state}: {totals}.</p>
</header>
<nav>
<h2>Contents</h2>
<ul>
{contents}</ul>
</nav>
<main>
<h2>Conversation</h2>
{entries}</main>
</body>
</html>
"""


def transcript_page(task_id: str, title: str, state: str, transcript: Transcript) -> str:
    """The whole page: each entry can be folded, and turns and epochs are reached from the table of contents."""
    entries = list(enumerate(transcript.entries))
    return _PAGE.format(
        title=_told(title), task=_told(task_id), state=_told(state), totals=_told(transcript.in_words),
        contents="".join(_link(at, one) for at, one in entries if one.kind in ("epoch", "turn")),
        entries="".join("".join(_entry(at, one)) for at, one in entries),
    )  # fmt: skip


def _told(text: str) -> str:
    return escape(harmless(text))


def _link(at: int, entry: Entry) -> str:
    said = " ".join([", ".join(call["tool"] for call in entry.calls), *str(entry.record.get("text", "")).split()])
    name, about = entry.heading.partition(",")[0], said.strip()[:_NAMED_CHARS]
    return f'<li><a href="#e{at}">{_told(name)}</a> {_told(about)}</li>\n'


def _entry(at: int, entry: Entry) -> Iterator[str]:
    when = str(entry.record.get("at", ""))[:19].replace("T", " ")
    is_open = "" if entry.kind == "epoch" else " open"
    yield f'<details id="e{at}"{is_open}>\n<summary><strong>{_told(entry.heading)}</strong> {_told(when)}</summary>\n'
    for name, text in entry.parts:
        if len(text) > _LONG:
            yield f"<details>\n<summary>{_told(name)} ({len(text):,} characters)</summary>\n{_pre(text)}</details>\n"
        else:
            yield (f"<p>{_told(name)}</p>\n" if name else "") + _pre(text)
    yield "</details>\n"


def _pre(text: str) -> str:
    return f"<pre>{_told(text)}</pre>\n"
