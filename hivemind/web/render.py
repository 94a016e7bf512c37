"""Render templates as HTML. Secrets in texts are masked, control characters replaced, and HTML escaped, also in Markdown."""

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
from hivemind.masking import mask, strip_controls
from hivemind.words import duration

WEB_FOLDER = Path(__file__).parent
_MAX_CHARS = 40_000  # longer Markdown is cut
_MAX_INLINE = 4_000  # longer paragraphs keep their markup as text: parsing takes quadratic time
_CITATION = re.compile(r"— `(?P<path>[^`]+):\d+(?:-\d+)?`")
_SOURCE = re.compile(r"(?P<path>[^\n:`<>]+\.\w+):(?P<first>\d{1,7})(?:-(?P<last>\d{1,7}))?")


def masked_text(text: object) -> str:
    """Return a text for display: secrets are masked, control characters replaced."""
    return strip_controls(mask(str(text)))


class PageRenderer:
    def __init__(self) -> None:
        self._env = Environment(
            loader=FileSystemLoader(WEB_FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=lambda value: value if hasattr(value, "__html__") else "" if value is None else masked_text(value),
        )
        self._env.filters |= {
            "ago": _age_element, "clock": _time_element, "number": _format_number, "money": _format_money,
            "markdown": self.render_markdown, "path": _quote_segment, "source": self.link_source,
        }  # fmt: skip
        self._env.globals |= {"to": _page_address, "form_number": partial(secrets.token_urlsafe, 12)}
        macros = self._env.get_template("parts.html").module
        self._env.globals |= {
            name: getattr(macros, name) for name in ("act", "answer", "icon", "live", "pager", "state")
        }
        self._markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
        self._markdown.add_render_rule(
            "code_inline", lambda _, tokens, position, *__: self.link_source(tokens[position].content)
        )
        self._markdown.add_render_rule("link_open", _render_link)
        self._markdown.add_render_rule("quote", _render_quote)
        self._markdown.core.ruler.before("inline", "plain", _keep_plain)

    def render_page(self, name: str, context: Mapping[str, Any], block: str | None = None) -> str:
        """Render a template as HTML. If `block` is the name of one of its blocks, render only this block."""
        template = self._env.get_template(name)
        if block is None or block not in template.blocks:
            return template.render(context)
        return "".join(template.blocks[block](template.new_context(dict(context))))

    def render_markdown(self, text: str) -> Markup:
        """Render the beginning of a Markdown text as HTML. Code of the form `PATH:LINES` becomes a link to the file's lines."""
        html = Markup(self._markdown.render(masked_text(text)[:_MAX_CHARS]))  # noqa: S704 - raw HTML is off
        if len(text) <= _MAX_CHARS:
            return html
        return html + Markup('<p class="quiet">… {} characters more</p>').format(_format_number(len(text) - _MAX_CHARS))

    def link_source(self, text: str) -> Markup:
        """Render a text as code. A text of the form `PATH:LINES` becomes a link to the file's lines."""
        text = masked_text(text)
        match = _SOURCE.fullmatch(text)
        code = Markup("<code>{}</code>").format(text)
        if match is None or "://" in text:
            return code
        address = _page_address("/files", path=match["path"], first=match["first"], last=match["last"])
        return Markup('<a href="{}">{}</a>').format(address, code)


def _keep_plain(state: StateCore) -> None:
    """Exclude some texts from Markdown: very long paragraphs, and quotes from a file that is not Markdown."""
    tokens, output_tokens, lines, quote_start = state.tokens, list[Token](), state.src.split("\n"), 0
    for position, token in enumerate(tokens):
        if token.type == "inline" and len(token.content) > _MAX_INLINE:
            token.type = "text"
        if token.type == "blockquote_open" and token.level == 0:
            quote_start = len(output_tokens)
        if (
            token.type == "paragraph_open"
            and token.level == 0
            and position
            and tokens[position - 1].type == "blockquote_close"
        ):
            citation = _CITATION.match(tokens[position + 1].content)
            if citation and format_of(citation["path"]) != "markdown":
                quote_lines = (
                    re.sub(r"^ {0,3}> ?", "", line) for line in lines[slice(*output_tokens[quote_start].map or ())]
                )
                output_tokens[quote_start:] = [
                    Token("quote", "blockquote", 0, content="\n".join(quote_lines).rstrip("\n"))
                ]
        output_tokens.append(token)
    state.tokens = output_tokens


def _render_quote(_: RendererHTML, tokens: Sequence[Token], position: int, *__: Any) -> str:
    """Render a quote that was not parsed as Markdown, with its line breaks."""
    return f"<blockquote><pre>{escape(tokens[position].content)}</pre></blockquote>\n"


def _page_address(path: str, /, **query: object) -> str:
    """Return the address of a page, relative to the `base` of all pages. Query parameters that are None, "" or 0 are left out."""
    parameters = {name: value for name, value in query.items() if value not in (None, "", 0)}
    return f".{path}" + (f"?{urlencode(parameters)}" if parameters else "")


def _render_link(_: RendererHTML, tokens: Sequence[Token], position: int, *__: Any) -> str:
    """Render the opening tag of a link that sends no referrer to the linked site."""
    address = escape(str(tokens[position].attrs.get("href", "")))
    return f'<a href="{address}" rel="noreferrer noopener nofollow">'


def _parse_time(timestamp: datetime | float | str) -> datetime | None:
    """Return a time in this machine's time zone; None if the time is invalid."""
    with suppress(Unreadable), boundary("time"):
        moment = datetime.fromisoformat(timestamp) if isinstance(timestamp, str) else timestamp
        return (moment if isinstance(moment, datetime) else datetime.fromtimestamp(moment, UTC)).astimezone()
    return None


def _time_element(timestamp: datetime | float | str | None, time_format: str = "%Y-%m-%d %H:%M") -> Markup:
    """Render a time as an HTML element, by default to the minute. Return empty markup if the time is None or invalid."""
    moment = _parse_time(timestamp) if timestamp else None
    if moment is None:
        return Markup("")
    return Markup('<time datetime="{}">{}</time>').format(moment.isoformat(), moment.strftime(time_format))


def _age_element(timestamp: datetime | float | str | None) -> Markup:
    """Render the age of a time as an HTML element whose title is the time. Return empty markup if the time is None or invalid."""
    moment = _parse_time(timestamp) if timestamp else None
    if moment is None:
        return Markup("")
    seconds = (datetime.now(UTC) - moment).total_seconds()
    text = "now" if seconds < 120 else duration(seconds)
    return Markup('<time datetime="{}" title="{}" data-ago>{}</time>').format(
        moment.isoformat(), f"{moment:%Y-%m-%d %H:%M:%S}", text
    )


def _format_number(number: float | None) -> str:
    """Format a number: `12,345`, or from a hundred thousand on `123k`, `1.2M`."""
    if number is None:
        return ""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= 100 * size or (size > 1_000 and number >= size):
            return f"{number / size:.{0 if number >= 100 * size else 1}f}{unit}"
    return f"{number:,.0f}"


def _format_money(amount: float) -> str:
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.4f}".rstrip("0").rstrip(".") if amount else ""


@lru_cache(4096)
def _quote_segment(name: str) -> str:
    """Percent-encode a name as one segment of an address."""
    return quote(name, safe="")
