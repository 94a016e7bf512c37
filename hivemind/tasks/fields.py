"""The fields that the forms of a task and of a step are made of: how a person may write a name, a date, a list."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, time
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.names import check_name

__all__ = [
    "TITLE_LENGTH",
    "Agent",
    "Id",
    "Proof",
    "Strict",
    "Text",
    "Texts",
    "first_line",
    "listed",
    "moment",
    "named",
    "string",
]

TITLE_LENGTH = 200


def string(value: Any) -> Any:
    """Numbers and dates that YAML made of `id: 42` or `title: 2026-11-21` are text again."""
    if isinstance(value, int | float | date) and not isinstance(value, bool):
        return str(value)
    return value


def listed(value: Any) -> Any:
    return [value] if isinstance(value, str | int | float) and not isinstance(value, bool) else value


def named(what: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        try:
            return check_name(string(value), what)
        except UserError as error:
            raise ValueError(str(error)) from None

    return check


def moment(value: Any) -> datetime:
    """A date alone means until its end; a time without a zone is UTC."""
    with suppress(Unreadable), boundary("date"):
        if isinstance(value, str):
            text = value.strip()
            value = date.fromisoformat(text) if len(text) == len("2026-11-21") else datetime.fromisoformat(text)
        if isinstance(value, datetime):
            return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        if isinstance(value, date):
            return datetime.combine(value, time(23, 59, 59), UTC)
    shown = value.isoformat() if isinstance(value, date) else repr(value)
    raise ValueError(f"{shown} is no date in the years 1 to 9999: write 2026-11-21 or 2026-11-21T18:00Z")


Text = Annotated[str, BeforeValidator(string)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(listed)]
Id = Annotated[str, BeforeValidator(named("id"))]
Agent = Annotated[str, BeforeValidator(named("agent name"))]
Proof = Literal["off", "warn", "require"]


class Strict(BaseModel):
    """A form in which an unknown key is an error and a key with nothing after it counts as left out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _blank_keys(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: _off(key, item) for key, item in value.items() if item is not None}


def _off(key: object, value: Any) -> Any:
    """YAML reads the `off` of `proof: off` as False."""
    return "off" if key == "proof" and value is False else value


def first_line(text: str) -> str:
    """The first line that is not empty, without the marks of a Markdown heading."""
    start = len(text) - len(text.lstrip())
    line = text[start : start + 4 * TITLE_LENGTH].splitlines()[0] if start < len(text) else ""
    line = line.lstrip("#").strip() or line.strip()
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"
