"""How a person may write a step: one entry of `steps:` (spec 1, *Tasks*; README.md, *Steps*)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any

from pydantic import BeforeValidator, model_validator

from hivemind.tasks.duration import parse_duration
from hivemind.tasks.fields import Proof, Strict, Text, Texts, first_line, listed, moment, named, string
from hivemind.tasks.task import StepKind, TaskStep

__all__ = ["KINDS", "StepForm", "as_step", "as_written"]

KINDS: tuple[StepKind, ...] = ("run", "ask", "write", "mail", "wait")
_WAITS = {"until": "until", "mail": "for mail from", "task": "for task", "human": "for a person:"}


def _line(value: Any, what: str) -> str:
    text = string(value)
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise ValueError(f"{what} is a text, and not empty")
    return text


def _run(value: Any) -> str | list[str]:
    if isinstance(value, list):
        if not value:
            raise ValueError("run: a list begins with the program")
        return [_line(word, "each word of run") if at == 0 else str(string(word)) for at, word in enumerate(value)]
    return _line(value, "run")


def _only(value: dict[str, Any], kind: str, allowed: tuple[str, ...]) -> None:
    for key in value:
        if key not in allowed:
            raise ValueError(f"{kind} knows no {key!r}, only {', '.join(allowed)}")


def _write(value: Any) -> dict[str, str | None]:
    if not isinstance(value, dict):
        return {"path": _line(value, "write"), "text": None}
    _only(value, "write", ("path", "text"))
    text = string(value.get("text"))
    if text is not None and not isinstance(text, str):
        raise ValueError("the text of write is a text")
    return {"path": _line(value.get("path"), "the path of write"), "text": text}


def _mail(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("mail is {to, subject, body}")  # noqa: TRY004 - pydantic words only ValueError
    _only(value, "mail", ("to", "subject", "body"))
    to = listed(value.get("to"))
    if not isinstance(to, list) or not to:
        raise ValueError("mail has a to: one agent or a list")
    body, subject = string(value.get("body", "")), string(value.get("subject", ""))
    if not isinstance(body, str) or not isinstance(subject, str):
        raise ValueError("subject and body of mail are texts")  # noqa: TRY004 - as above
    return {"to": [_line(one, "to") for one in to], "subject": subject, "body": body}


def _wait(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        if len(value) != 1:
            raise ValueError("wait is a duration, a time, or one of {mail: agent}, {task: id}, {human: question}")
        ((kind, what),) = value.items()
        if kind == "human":
            return {"human": _line(what, "the question of wait")}
        if kind in ("mail", "task"):
            return {kind: named("agent name" if kind == "mail" else "id")(what)}
        if kind not in ("seconds", "until"):
            raise ValueError(f"wait knows no {kind!r}, only mail, task, human, seconds, until")
        value = what
    if isinstance(value, date) or (isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d", value.strip())):
        return {"until": moment(value).isoformat()}
    return {"seconds": parse_duration(value)}


def as_step(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    title = value.strip()
    return {"title": title, "ask": title} if title.endswith("?") else {"title": title}


class StepForm(Strict):
    """One entry of `steps:`; a plain text is a step with that title, a question if it ends with `?`."""

    title: Text | None = None
    run: Annotated[Any, BeforeValidator(_run)] = None
    ask: Annotated[Any, BeforeValidator(lambda value: _line(value, "ask"))] = None
    write: Annotated[Any, BeforeValidator(_write)] = None
    mail: Annotated[Any, BeforeValidator(_mail)] = None
    wait: Annotated[Any, BeforeValidator(_wait)] = None
    success_criteria: Texts = ()
    tests: Texts = ()
    proof: Proof | None = None
    once: bool = False
    timeout: Annotated[float, BeforeValidator(parse_duration)] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> StepForm:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) > 1:
            raise ValueError(f"a step does one thing, this one has {' and '.join(given)}: make it {len(given)} steps")
        if not given and not (self.title or "").strip():
            raise ValueError(f"a step has a title or one of {', '.join(KINDS)}")
        return self

    def step(self) -> TaskStep:
        kind = next((kind for kind in KINDS if getattr(self, kind) is not None), None)
        argument = getattr(self, kind) if kind else None
        return TaskStep(
            title=(self.title or "").strip() or _shown(kind, argument),
            kind=kind,
            argument=argument,
            success_criteria=self.success_criteria,
            tests=self.tests,
            proof=self.proof,
            once=self.once,
            timeout=self.timeout,
        )


def _shown(kind: StepKind | None, argument: Any) -> str:
    """A title for a step that was given none."""
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
            ((what, value),) = argument.items()
            text = f"wait {value:g} s" if what == "seconds" else f"wait {_WAITS[what]} {value}"
    return first_line(text)


def as_written(step: TaskStep | Mapping[str, Any] | str) -> Mapping[str, Any] | str:
    """A step as a person would write it; what is no TaskStep is written already."""
    if not isinstance(step, TaskStep):
        return step
    fields: dict[str, Any] = {"title": step.title}
    if step.kind is not None:
        fields[step.kind] = step.argument
    for name in ("success_criteria", "tests"):
        if texts := getattr(step, name):
            fields[name] = list(texts)
    if step.proof is not None:
        fields["proof"] = step.proof
    if step.once:
        fields["once"] = True
    if step.timeout is not None:
        fields["timeout"] = step.timeout
    return fields
