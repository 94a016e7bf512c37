"""The form of a task file: front matter and text, validated (README.md, *The text*)."""

from __future__ import annotations

import os
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, Literal

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.frontmatter import ParsedText, parse, split, validate
from hivemind.frozen import frozen
from hivemind.fs import DeadlyInputs
from hivemind.outcome import Outcome
from hivemind.pattern import pattern
from hivemind.schema import BeforeValidator, Field, model_validator
from hivemind.tasks.recurrence import Every
from hivemind.tasks.step import (
    Agent,
    Id,
    Proof,
    StepForm,
    Strict,
    Text,
    as_list,
    as_step,
    first_line,
    moment,
    name_check,
)
from hivemind.tasks.task import TaskBudget, TaskProblem, TaskReview
from hivemind.tokens import MIN_CONTEXT
from hivemind.trace_context import TRACEPARENT

PRIORITIES = {"critical": 1, "high": 2, "medium": 3, "normal": 3, "low": 4}
DEFAULT_PRIORITY = 3
MAX_CANDIDATES = 8
SHORT_FORM = pattern(
    r"(?:(?:id|assignee|role): (?!(?:yes|no|on|off|true|false|null)\n)[a-z][a-z0-9-]{0,63}\n"
    rf"|priority: (?:{'|'.join(PRIORITIES)}|[1-9]?[0-9])\n)+"
)
"""The front matter that `hivemind task add` writes, read and written without YAML and pydantic: importing them takes longer
than a short command."""
_UNCLOSED = pattern(r"\A\ufeff?---[ \t]*\r?\n[A-Za-z_]+[ \t]*:")


def _priority(value: Any) -> Any:
    if isinstance(value, str):
        priority = PRIORITIES.get(value.strip().lower())
        if priority is None and not value.strip().isdigit():
            raise ValueError(f"{value!r} is not a priority: write {', '.join(PRIORITIES)}, or 0 (first) to 99 (last)")
        return int(value) if priority is None else priority
    return value


def _as_budget(value: Any) -> Any:
    if not isinstance(value, int | dict) or isinstance(value, bool):
        raise ValueError("write a number of tokens, or {tokens: …, money: …}")  # noqa: TRY004 - pydantic takes no other
    return {"tokens": value} if isinstance(value, int) else value


def _as_events(value: Any) -> Any:
    return () if value in ("never", False) else as_list(value)


def _as_candidates(value: Any) -> Any:
    count = len({str(name).strip().lower() for name in value}) if isinstance(value, list | tuple) else value
    if type(count) is not int or not 2 <= count <= MAX_CANDIDATES:
        raise ValueError(f"write how many agents, 2 to {MAX_CANDIDATES}, or a list of their names, each once")
    return value


def _as_every(value: Any) -> Any:
    if not isinstance(value, str):  # YAML makes a number of 17:30
        raise ValueError('write it in quotes: every: "17:30"')  # noqa: TRY004 - pydantic takes no other
    Every.parse(value)
    return value


def _as_traceparent(value: Any) -> Any:
    if TRACEPARENT.fullmatch(str(value)) is None:
        raise ValueError("write it by W3C Trace Context: 00-TRACE-SPAN-01, with 32 and 16 hexadecimal digits")
    return value


class TaskForm(Strict):
    id: Id | None = None
    title: Text | None = None
    project: Text | None = None
    priority: Annotated[int, BeforeValidator(_priority)] = Field(DEFAULT_PRIORITY, ge=0, le=99)
    assignee: Agent | None = None
    role: Annotated[str, BeforeValidator(name_check("role"))] | None = None
    candidates: Annotated[int | tuple[Agent, ...], BeforeValidator(_as_candidates)] = 0
    where: Annotated[str, BeforeValidator(name_check("name of a hive"))] | None = None
    dependencies: Annotated[tuple[Id, ...], BeforeValidator(as_list)] = ()
    deadline: Annotated[datetime, BeforeValidator(moment)] | None = None
    steps: tuple[Annotated[StepForm, BeforeValidator(as_step)], ...] = ()
    proof: Proof = "off"
    view: Literal["focus_only", "smart", "explore", "audit", "full"] | None = None
    max_tokens: int | None = Field(None, ge=MIN_CONTEXT)
    fresh: bool = False
    review: TaskReview | None = None
    finish: Literal["explicit", "implicit"] = "explicit"
    budget: Annotated[TaskBudget, BeforeValidator(_as_budget)] = TaskBudget.model_construct()
    notify: Annotated[tuple[Outcome, ...] | None, BeforeValidator(_as_events)] = None
    every: Annotated[str, BeforeValidator(_as_every)] | None = None
    until: Annotated[datetime, BeforeValidator(moment)] | None = None
    missed: Literal["once", "all"] = "once"
    traceparent: Annotated[str | None, BeforeValidator(_as_traceparent)] = None

    @model_validator(mode="after")
    def _check_candidates(self) -> TaskForm:
        if self.candidates and (self.assignee or self.where):
            raise ValueError("candidates: says which agents of this hive do it: leave assignee and where out")
        return self


class _YamlForm(TaskForm):
    """The form of a task file that is all YAML: the keys of front matter, and the text under `text:`."""

    text: Text = ""


@frozen
class ParsedTask:
    """A task as its author wrote it. `name` is the name of its file in error messages."""

    form: TaskForm
    title: str
    text: str
    front_matter: ParsedText | None
    name: str

    def location(self, key: str) -> str:
        """Return `file:line` of a key of the front matter."""
        return self.name if self.front_matter is None else f"{self.name}:{self.front_matter.line((key, '<key>'))}"


_PLAIN = TaskForm.model_construct()
_MAGIC = {
    b"%PDF-": "a PDF", b"PK\x03\x04": "a ZIP archive or an office document", b"\x89PNG": "a picture (PNG)",
    b"GIF8": "a picture (GIF)", b"\xff\xd8\xff": "a picture (JPEG)", b"{\\rtf": "a document (RTF)",
    b"\x1f\x8b": "compressed (gzip)",
    b"\x7fELF": "a program", b"%!PS": "a document (PostScript)", b"\xd0\xcf\x11\xe0": "an office document",
    b"BZh": "compressed (bzip2)", b"\xfd7zXZ": "compressed (xz)", b"7z\xbc\xaf": "an archive (7z)", b"Rar!": "an archive (RAR)",
}  # fmt: skip
"""The first bytes of files that are not text. Without this check, some would be read as text."""
_SHORT_BYTES = 4096
_HOW_TO_ATTACH = "say what to do with it: hivemind task add TEXT --attach FILE, or drop it in a folder with a task.md"


class NoText(TaskProblem):
    """A drop that is not text: a picture, a document, an archive."""


def is_yaml(name: str) -> bool:
    """Check that a file of this name is all YAML, without front matter."""
    return name.lower().endswith((".yaml", ".yml"))


def has_front_matter(raw: bytes, name: str) -> bool:
    """Check that a text begins with front matter, or is a YAML file."""
    return raw.startswith((b"---", b"\xef\xbb\xbf")) or is_yaml(name)


def read_text(raw: bytes, name: str) -> ParsedTask:
    """Parse a task file. The ending of `name` tells whether the whole file is YAML.

    Raises TaskProblem for an empty task and for invalid front matter, with line and field if they are known; NoText if
    the file is not text.
    """
    try:
        with boundary("task", name):
            return (_read_short if len(raw) <= _SHORT_BYTES else _read)(_decode(raw, name), name)
    except TaskProblem:
        raise
    except UserError as error:
        raise TaskProblem(error.message, location=error.location, remedy=error.remedy) from None


def _read(text: str, name: str) -> ParsedTask:
    if is_yaml(name):
        front_matter = parse(text, name)
        form = validate(_YamlForm, front_matter)
        return _parsed_task(form, form.text, front_matter, name)
    head, body, _ = split(text)
    if head is None:
        if _UNCLOSED.match(text):
            raise TaskProblem("the front matter never ends", location=f"{name}:1", remedy="close it with a line ---")
        return _parsed_task(_PLAIN, body, None, name)
    pairs: list[Any] = [line.split(": ") for line in head.splitlines()] if SHORT_FORM.fullmatch(head) else []
    fields: dict[str, Any] = {key: int(value) if value.isdigit() else value for key, value in pairs}
    if pairs and len(fields) == len(pairs):  # without a repeated key
        lines: dict[Any, int] = {(): 2}
        for number, key in enumerate(fields, 2):
            lines |= {(key,): number, (key, "<key>"): number}
        short_form = TaskForm.model_construct(
            **{**fields, "priority": _priority(fields.get("priority", DEFAULT_PRIORITY))}
        )
        return _parsed_task(short_form, body, ParsedText(fields, lines, name), name)
    front_matter = parse(head, name, 2)
    return _parsed_task(validate(TaskForm, front_matter), body, front_matter, name)


_read_short = lru_cache(maxsize=128)(_read)  # a task is parsed when it waits, when it is claimed and when it ends


class TextReader:
    """Reads the texts of tasks. Refuses a text after two processes have died while reading it."""

    def __init__(self, crashes: DeadlyInputs, max_bytes: int, *, has_lander: bool = True) -> None:
        self.max_bytes = max_bytes
        self._has_lander = has_lander
        self._crashes = crashes

    def read(self, raw: bytes, name: str, file_stat: os.stat_result) -> ParsedTask:
        """Parse a text. `file_stat` identifies the version of the file. Raises TaskProblem for an invalid text.

        Also raises TaskProblem for a task with candidates in a hive without a lander, which would have to choose one of them.
        """
        if not has_front_matter(raw, name):  # plain text
            return read_text(raw, name)
        try:
            with self._crashes.reading("task", name, f"{file_stat.st_size} {file_stat.st_mtime_ns}"):
                task = read_text(raw, name)
        except Unreadable as error:
            raise TaskProblem(error.message, location=error.location, remedy=error.remedy) from None
        if task.form.candidates and not self._has_lander:
            message = "candidates: one of several branches is to land, and this hive has no root where work lands"
            remedy = "list a root with worktree: true and land: ask or auto in hive.yaml, or take candidates: out"
            raise TaskProblem(message, location=task.location("candidates"), remedy=remedy)
        return task


def _decode(raw: bytes, name: str) -> str:
    if kind := next((kind for magic, kind in _MAGIC.items() if raw.startswith(magic)), None):
        raise NoText(f"is {kind}, not text", location=name, remedy=_HOW_TO_ATTACH)
    mend = f"save it as UTF-8 text, or {_HOW_TO_ATTACH}"
    if b"\0" in raw:
        raise NoText(f"is not text (a NUL at byte {raw.index(0)})", location=name, remedy=mend)
    try:
        return raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise NoText(f"is not UTF-8 text (byte {error.start})", location=f"{name}:{line}", remedy=mend) from None


def _parsed_task(form: TaskForm, text: str, front_matter: ParsedText | None, name: str) -> ParsedTask:
    title = (form.title or "").strip() or first_line(text)
    if not title:
        if not form.steps:
            message = "is empty: no title, no text, no steps"
            raise TaskProblem(message, location=name, remedy="write what to do")
        title = form.steps[0].step().title
    return ParsedTask(form, title, text, front_matter, name)
