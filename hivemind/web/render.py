"""Templates: every text masked as in the log, harmless and escaped; Markdown without raw HTML; times, numbers, links."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markupsafe import Markup, escape

from hivemind.boundary import Unreadable, boundary
from hivemind.documents.formats.reading import format_of
from hivemind.masking import harmless, mask
from hivemind.words import duration

HERE = Path(__file__).parent
_MAX_CHARS = 40_000  # of a text that is rendered as Markdown
_MAX_INLINE = 4_000  # characters of a paragraph whose markup is looked at: looking takes the square of their number
_CITATION = re.compile(r"— `(?P<path>[^`]+):\d+(?:-\d+)?`")
_SOURCE = re.compile(r"(?P<path>[^\s:`<>]+\.\w+):(?P<first>\d{1,7})(?:-(?P<last>\d{1,7}))?")


def told(text: object) -> str:
    """A text as onlookers see it: secrets masked as in the log, nothing in it that steers who shows it."""
    return harmless(mask(str(text)))


class Render:
    """Makes pages of templates."""

    def __init__(self) -> None:
        self._env = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=lambda value: value if hasattr(value, "__html__") else "" if value is None else told(value),
        )
        self._env.filters |= {
            "ago": _ago, "clock": _clock, "number": _number, "money": _money, "markdown": self.markdown, "path": _path,
            "source": self.source,
        }  # fmt: skip
        self._env.globals |= {"to": _to, "form_number": partial(secrets.token_urlsafe, 12)}
        macros = self._env.get_template("parts.html").module
        self._env.globals |= {
            name: getattr(macros, name) for name in ("act", "answer", "icon", "live", "pager", "state")
        }
        self._markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
        self._markdown.add_render_rule("code_inline", lambda _, tokens, at, *__: self.source(tokens[at].content))
        self._markdown.add_render_rule("link_open", _link)
        self._markdown.add_render_rule("quote", _verbatim)
        self._markdown.core.ruler.before("inline", "plain", _keep_plain)

    def page(self, name: str, context: Mapping[str, Any], block: str | None = None) -> str:
        """A whole page, or one block of it."""
        template = self._env.get_template(name)
        if block is None or block not in template.blocks:
            return template.render(context)
        return "".join(template.blocks[block](template.new_context(dict(context))))

    def markdown(self, text: str) -> Markup:
        """Markdown as HTML; what is written as `PATH:LINES` leads to those lines. Of a long text the beginning."""
        html = Markup(self._markdown.render(told(text)[:_MAX_CHARS]))  # noqa: S704 - raw HTML is off
        if len(text) <= _MAX_CHARS:
            return html
        return html + Markup('<p class="quiet">… {} characters more</p>').format(_number(len(text) - _MAX_CHARS))

    def source(self, text: str) -> Markup:
        """A text as code; what is of the form `PATH:LINES` leads to those lines."""
        text = told(text)
        found = _SOURCE.fullmatch(text)
        code = Markup("<code>{}</code>").format(text)
        if found is None or "://" in text:
            return code
        address = _to("/files", path=found["path"], first=found["first"], last=found["last"])
        return Markup('<a href="{}">{}</a>').format(address, code)


def _keep_plain(state: StateCore) -> None:
    """Leave as it stands what is no Markdown: a quote of a text file, which its citation follows, and an endless paragraph."""
    tokens, kept, lines, begin = state.tokens, list[Token](), state.src.split("\n"), 0
    for at, token in enumerate(tokens):
        if token.type == "inline" and len(token.content) > _MAX_INLINE:
            token.type = "text"
        if token.type == "blockquote_open" and token.level == 0:
            begin = len(kept)
        if token.type == "paragraph_open" and token.level == 0 and at and tokens[at - 1].type == "blockquote_close":
            citation = _CITATION.match(tokens[at + 1].content)
            if citation and format_of(citation["path"]) != "markdown":
                quoted = (re.sub(r"^ {0,3}> ?", "", line) for line in lines[slice(*kept[begin].map or ())])
                kept[begin:] = [Token("quote", "blockquote", 0, content="\n".join(quoted).rstrip("\n"))]
        kept.append(token)
    state.tokens = kept


def _verbatim(_: RendererHTML, tokens: Sequence[Token], at: int, *__: Any) -> str:
    """A quote with its own line breaks."""
    return f"<blockquote><pre>{escape(tokens[at].content)}</pre></blockquote>\n"


def _to(path: str, /, **query: object) -> str:
    """Return a page's address relative to the `base` of every page, without the query's empty parts."""
    given = {name: value for name, value in query.items() if value not in (None, "", 0)}
    return f".{path}" + (f"?{urlencode(given)}" if given else "")


def _link(_: RendererHTML, tokens: Sequence[Token], at: int, *__: Any) -> str:
    """A link leaves nothing of ours with another site."""
    address = escape(str(tokens[at].attrs.get("href", "")))
    return f'<a href="{address}" rel="noreferrer noopener nofollow">'


def _moment(when: datetime | float | str) -> datetime | None:
    """A time in this machine's zone; None for what says none."""
    with suppress(Unreadable), boundary("time"):
        moment = datetime.fromisoformat(when) if isinstance(when, str) else when
        return (moment if isinstance(moment, datetime) else datetime.fromtimestamp(moment, UTC)).astimezone()
    return None


def _clock(when: datetime | float | str | None, form: str = "%Y-%m-%d %H:%M") -> Markup:
    """A time, to the minute."""
    moment = _moment(when) if when else None
    if moment is None:
        return Markup("")
    return Markup('<time datetime="{}">{}</time>').format(moment.isoformat(), moment.strftime(form))


def _ago(when: datetime | float | str | None) -> Markup:
    """How long ago that was; the time itself is its title."""
    moment = _moment(when) if when else None
    if moment is None:
        return Markup("")
    seconds = (datetime.now(UTC) - moment).total_seconds()
    text = "now" if seconds < 120 else duration(seconds)
    return Markup('<time datetime="{}" title="{}" data-ago>{}</time>').format(
        moment.isoformat(), f"{moment:%Y-%m-%d %H:%M:%S}", text
    )


def _number(value: float | None) -> str:
    """`12,345`; from a hundred thousand on `123k`, `1.2M`."""
    if value is None:
        return ""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if value >= 100 * size or (size > 1_000 and value >= size):
            return f"{value / size:.{0 if value >= 100 * size else 1}f}{unit}"
    return f"{value:,.0f}"


def _money(value: float) -> str:
    return f"{value:,.2f}" if value >= 1 else f"{value:.4f}".rstrip("0").rstrip(".") if value else ""


@lru_cache(4096)
def _path(name: str) -> str:
    """A name as a part of an address."""
    return quote(name, safe="")
