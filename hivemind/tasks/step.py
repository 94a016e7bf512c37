"""The steps of a task file, and the parsing of the fields that tasks and steps share (README.md, *The text*)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time
from typing import Annotated, Any, Literal

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.names import check_name
from hivemind.pattern import pattern
from hivemind.schema import BeforeValidator, Field, StrictModel, model_validator

TITLE_LENGTH = 200
StepKind = Literal["run", "ask", "write", "mail", "wait"]
KINDS: tuple[StepKind, ...] = ("run", "ask", "write", "mail", "wait")
_WAITS = {"until": "until", "mail": "for mail from", "task": "for task", "human": "for a person:"}
MAX_SECONDS = 366 * 86_400.0
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_PART = pattern(r"(\d+(?:\.\d+)?)\s*(ms|[smhdw])", re.IGNORECASE)
_DURATION = pattern(rf"(?:{_PART.pattern}\s*)+", re.IGNORECASE)
_NUMBER = pattern(r"\d+(?:\.\d+)?")


# fields


def string(value: Any) -> Any:
    """Turn the number or date that YAML made of `id: 42` or `title: 2026-11-21` back into text."""
    if isinstance(value, int | float | date) and not isinstance(value, bool):
        return str(value)
    return value


def as_list(value: Any) -> Any:
    return [value] if isinstance(value, str | int | float) and not isinstance(value, bool) else value


def name_check(kind: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        try:
            return check_name(string(value), kind)
        except UserError as error:
            raise ValueError(str(error)) from None

    return check


def moment(value: Any) -> datetime:
    """Parse a time, or a date, which means the end of that day. Times without a time zone are in UTC."""
    with suppress(Unreadable), boundary("date"):
        if isinstance(value, str):
            text = value.strip()
            value = date.fromisoformat(text) if len(text) == len("2026-11-21") else datetime.fromisoformat(text)
        if isinstance(value, datetime):
            return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        if isinstance(value, date):
            return datetime.combine(value, time(23, 59, 59), UTC)
    text_value = value.isoformat() if isinstance(value, date) else repr(value)
    raise ValueError(f"{text_value} is not a date in the years 1 to 9999: write 2026-11-21 or 2026-11-21T18:00Z")


Text = Annotated[str, BeforeValidator(string)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(as_list)]
Id = Annotated[str, BeforeValidator(name_check("id"))]
Agent = Annotated[str, BeforeValidator(name_check("agent name"))]
Proof = Literal["off", "warn", "require"]


class Strict(StrictModel):
    """A form in which a key without a value counts as missing."""

    @model_validator(mode="before")
    @classmethod
    def _blank_keys(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        fields = {key: item for key, item in value.items() if item is not None}
        return {**fields, "proof": "off"} if fields.get("proof") is False else fields  # as YAML reads `proof: off`


def first_line(text: str) -> str:
    """Return the first line that is not empty, without the marks of a Markdown heading."""
    start = len(text) - len(text.lstrip())
    line = text[start : start + 4 * TITLE_LENGTH].splitlines()[0] if start < len(text) else ""
    line = line.lstrip("#").strip() or line.strip()
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"


def parse_duration(value: object) -> float:
    """Return a duration in seconds, from 0 to a year. Raises ValueError."""
    seconds = math.nan
    with suppress(Unreadable), boundary("duration"):
        if isinstance(value, str):
            text = value.strip()
            if _NUMBER.fullmatch(text):
                seconds = float(text)
            elif len(text) <= 64 and _DURATION.fullmatch(text):
                seconds = sum(float(number) * _UNITS[unit.lower()] for number, unit in _PART.findall(text))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            seconds = float(value)
    if not 0 <= seconds <= MAX_SECONDS:
        raise ValueError(f"{value!r} is not a duration: write 250ms, 2s, 5m, 1h30m or 2d (a year at most)")
    return seconds


# a step


@frozen
class TaskStep:
    """One step as the task's author wrote it. `timeout` is in seconds. If `proof` is None, the task's `proof` applies.

    `argument` depends on `kind`:

    * run: a text (for a shell) or a list of words (a program and its arguments).
    * ask: the question.
    * write: `{"path", "text"}`; a text of None writes the answers so far.
    * mail: `{"to": [..], "subject", "body"}`.
    * wait: exactly one of `{"seconds"}`, `{"until"}` (ISO 8601, UTC), `{"mail"}`, `{"task"}`, `{"human"}`.
    * None: None.
    """

    title: str
    kind: StepKind | None = None
    argument: Any = None
    success_criteria: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    proof: Proof | None = None
    once: bool = False
    timeout: float | None = None


def _line(value: Any, label: str) -> str:
    text = string(value)
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise ValueError(f"{label} must be a text that is not empty")
    return text


def _run(value: Any) -> str | list[str]:
    if isinstance(value, list):
        if not value:
            raise ValueError("run: a list must begin with the program")
        return [_line(word, "each word of run") if at == 0 else str(string(word)) for at, word in enumerate(value)]
    return _line(value, "run")


def _wait(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        if len(value) != 1:
            raise ValueError("wait must be a duration, a time, or one of {mail: agent}, {task: id}, {human: question}")
        ((kind, argument),) = value.items()
        if kind == "human":
            return {"human": _line(argument, "the question of wait")}
        if kind in ("mail", "task"):
            return {kind: name_check("agent name" if kind == "mail" else "id")(argument)}
        if kind not in ("seconds", "until"):
            raise ValueError(f"wait knows no {kind!r}, only mail, task, human, seconds, until")
        value = argument
    if isinstance(value, date) or (isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d", value.strip())):
        return {"until": moment(value).isoformat()}
    try:
        return {"seconds": parse_duration(value)}
    except ValueError as error:
        raise ValueError(f"{error}, or a time: 2026-11-21T18:00Z") from None


def as_step(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    title = value.strip()
    return {"title": title, "ask": title} if title.endswith("?") else {"title": title}


_Line = Annotated[str, BeforeValidator(lambda value: _line(value, "it"))]


class _Write(Strict):
    path: _Line
    text: Text | None = None


class _Mail(Strict):
    to: Annotated[list[_Line], BeforeValidator(as_list)] = Field(min_length=1)
    subject: Text = ""
    body: Text = ""


class StepForm(Strict):
    """An entry of `steps:`. A plain text is a step with that title, or a question if the text ends with `?`."""

    title: Text | None = None
    run: Annotated[Any, BeforeValidator(_run)] = None
    ask: Annotated[Any, BeforeValidator(lambda value: _line(value, "ask"))] = None
    write: (
        Annotated[_Write, BeforeValidator(lambda value: value if isinstance(value, dict) else {"path": value})] | None
    ) = None
    mail: _Mail | None = None
    wait: Annotated[Any, BeforeValidator(_wait)] = None
    success_criteria: Texts = ()
    tests: Texts = ()
    proof: Proof | None = None
    once: bool = False
    timeout: Annotated[float, BeforeValidator(parse_duration)] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> StepForm:
        kinds = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(kinds) > 1:
            raise ValueError(f"a step does one thing, this one has {' and '.join(kinds)}: make it {len(kinds)} steps")
        if not kinds and not (self.title or "").strip():
            raise ValueError(f"a step has a title or one of {', '.join(KINDS)}")
        return self

    def step(self) -> TaskStep:
        kind = next((kind for kind in KINDS if getattr(self, kind) is not None), None)
        argument = getattr(self, kind) if kind else None
        argument = dict(argument) if isinstance(argument, StrictModel) else argument
        title = (self.title or "").strip() or _default_title(kind, argument)
        criteria, tests = self.success_criteria, self.tests
        return TaskStep(title, kind, argument, criteria, tests, self.proof, self.once, self.timeout)


def _default_title(kind: StepKind | None, argument: Any) -> str:
    match kind:
        case "ask":
            text = str(argument)
        case "run":
            text = "run " + (argument if isinstance(argument, str) else " ".join(argument))
        case "write":
            text = f"write {argument['path']}"
        case "mail":
            text = f"mail {', '.join(argument['to'])}"
        case _:
            ((wait_kind, value),) = argument.items()
            text = f"wait {value:g} s" if wait_kind == "seconds" else f"wait {_WAITS[wait_kind]} {value}"
    return first_line(text)


def as_written(step: TaskStep | Mapping[str, Any] | str) -> Mapping[str, Any] | str:
    """Return a step as a person would write it."""
    if not isinstance(step, TaskStep):
        return step
    fields: dict[str, Any] = {"title": step.title}
    if step.kind is not None:
        fields[step.kind] = step.argument
    more: dict[str, Any] = {"success_criteria": list(step.success_criteria), "tests": list(step.tests)}
    more |= {"proof": step.proof, "once": step.once or None, "timeout": step.timeout}
    return fields | {key: field for key, field in more.items() if field not in (None, [])}
