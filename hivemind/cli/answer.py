"""The answer of a view as a person reads it: the capsule first, then what is in view, then what was left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from hivemind.cli.story import event_line
from hivemind.cli.text import card_line, fit, one_line

__all__ = ["answer_lines", "signal_lines"]

Answer = Mapping[str, Any]
Typed = Callable[[Mapping[str, Any]], str]
_MARKS = {"open": "[ ]", "done": "[x]", "blocked": "[!]"}
_PLURALS = {"hypothesis": "Hypotheses", "evidence": "Evidence", "summary": "Summaries"}  # the others take an s
_LEFT_OUT = {
    "TEXT_CUT": "the ends of long texts",
    "TRACE_TRIMMED": "actions",
    "NOTES_TRIMMED": "notes",
    "EVENTS_TRIMMED": "events",
    "CARDS_TRIMMED": "cards",
    "STATS_DROPPED": "steps and numbers",
    "SIGNALS_TRIMMED": "signals",
    "LISTS_DROPPED": "how many there are of each",
    "CAPSULE_CUT": "parts of the capsule",
}


def answer_lines(answer: Answer, typed: Typed, columns: int | None = None) -> Iterator[str]:
    """The lines of `resume`, `snapshot` and `watch`; `typed` makes a call into what a person can type.

    What is listed is cut to `columns`; the capsule, whose calls a person copies, never is.
    """
    if "capsule" not in answer:
        yield "Nothing fits into so small a budget."
        return
    yield from _capsule(answer, typed)
    for title, lines in _sections(answer):
        for at, line in enumerate(lines):
            if at == 0:
                yield ""
                yield f"{title}:"
            yield f"  {line}" if columns is None else fit(f"  {line}", columns)
    yield from _left_out(answer)


def signal_lines(signals: list[dict[str, Any]], typed: Typed) -> Iterator[str]:
    """The lines of `signals`: each with what would help."""
    if not signals:
        yield "Nothing calls for attention."
    for one in signals:
        yield f"{one['severity']:8} {one['code']}: {one_line(one['message'])}"
        action = one.get("action")
        if action is not None:
            yield f"         {one_line(action['title'])} ({action['priority']}): {one_line(typed(action))}"


def _sections(answer: Answer) -> Iterator[tuple[str, Iterable[str]]]:
    """(title, lines) of each list that there may be."""
    yield "Steps", map(_step_line, answer.get("steps", ()))
    yield "Lanes", map(_lane_line, answer.get("lanes", ()))
    yield from _cards(answer).items()
    yield "Notes", (f"{_by(note)}: {_text(note)}" for note in _shown(answer, "notes"))
    yield "Actions", (f"{_by(one)}  {one_line(one['kind'])}: {_text(one)}" for one in _shown(answer, "trace"))
    yield "Events", map(event_line, _shown(answer, "events"))


def _capsule(answer: Answer, typed: Typed) -> Iterator[str]:
    capsule = answer["capsule"]
    yield from _where(answer, capsule["where"])
    yield from _step_detail(answer, capsule)
    head = "Why"
    for one in capsule.get("why", ()):
        yield _headed(head, f"{one['severity']} {one['code']}: {one['message']}")
        head = ""
    if answer.get("task", {}).get("over"):
        yield _headed("Next", "nothing, the task is over")
    for head, name in (("Next", "primary"), ("Or", "backup")):
        call = capsule.get("next", {}).get(name)
        if call is not None:
            yield _headed(head, typed(call))
    signals = _shown(answer, "signals")
    if len(signals) > len(capsule.get("why", ())):
        yield _headed("Signals", f"{len(signals)} in all: {typed({'tool': 'signals'})}")


def _where(answer: Answer, where: Answer) -> Iterator[str]:
    """Task, place and step; under a small budget the two of them are ids alone."""
    target, step = where.get("target"), where.get("step_focus")
    yield _headed("Task", "none in focus: name one, or an agent" if target is None else _titled(target))
    place = [f"{name} {where[name]}" for name in ("workspace", "lane", "branch") if name in where]
    now = [f"{name} {answer[key]}" for name, key in (("event", "seq"), ("card line", "card_seq")) if key in answer]
    yield _headed("Where", ", ".join([*place, *now]))
    if step is None:
        return
    lease = step.get("lease") if isinstance(step, dict) else None
    yield _headed("Step", _titled(step) + ("" if lease is None else f", {_leased(lease)}"))


def _step_detail(answer: Answer, capsule: Answer) -> Iterator[str]:
    """What the step is about, and what it still lacks: the call that would finish it knows of a missing proof too."""
    detail = dict(answer.get("step", {}))
    detail |= {key: value for key, value in (capsule.get("next", {}).get("primary") or {}).items() if key == "lacks"}
    for head, name in (("Criteria", "success_criteria"), ("Tests", "tests"), ("Lacks", "lacks")):
        if detail.get(name):
            yield _headed(head, "; ".join(detail[name]))


def _titled(one: Any) -> str:
    return str(one) if not isinstance(one, dict) else f"{one['id']}: {one['title']}"


def _leased(lease: Answer) -> str:
    return f"leased by {lease['agent_id']} to event {lease['expires_seq']} (generation {lease['generation']})"


def _headed(head: str, text: str) -> str:
    return f"{head + ':' if head else '':9} {one_line(text)}"


def _step_line(step: Answer) -> str:
    return f"{_MARKS.get(step['status'], '[?]')} {step['path']} {one_line(step['title'])}"


def _lane_line(lane: Answer) -> str:
    return f"{lane['lane']}: {lane['cards']} cards, {lane['open']} open, {lane['pinned']} pinned"


def _cards(answer: Answer) -> dict[str, list[str]]:
    """Pinned ones, then those of the step in focus, then the others by kind; in each group as the view has them."""
    focus = answer.get("step", {}).get("id")
    groups: dict[str, list[str]] = {"Pinned": [], "Of this step": []}
    for card in _shown(answer, "cards"):
        groups.setdefault(_group(card, focus), []).append(_card_line(card))
    return groups


def _group(card: Answer, focus: str | None) -> str:
    if card.get("pinned") or "pinned" in card.get("tags", ()):
        return "Pinned"
    if focus is not None and card.get("step") == focus:
        return "Of this step"
    kind = str(card["kind"])
    return _PLURALS.get(kind, f"{kind.capitalize()}s")


def _card_line(card: Answer) -> str:
    marks = [] if card["status"] == "open" else [card["status"]]
    marks += [] if card["lane"] == "shared" else [card["lane"]]
    marks += {False: ["folded"], "Flushed": ["flushed"]}.get(card.get("active", True), [])
    return card_line(card["id"], card["kind"], [*marks, *card.get("tags", ())], card["title"], card["text"])


def _by(one: Answer) -> str:
    return f"{one['seq']:>6}  {one_line(str(one['agent'] or '-'))}"


def _text(one: Answer) -> str:
    return one_line(str(one["text"]))


def _shown(answer: Answer, name: str) -> list[dict[str, Any]]:
    """What is there of a list; one that was emptied holds only the number of what was in it."""
    return [one for one in answer.get(name, ()) if one.get("type") != "summary"]


def _left_out(answer: Answer) -> Iterator[str]:
    told = [_LEFT_OUT.get(code, code) for code in answer.get("degradation", ())]
    counts = answer.get("stats", {}).get("cards", {})
    unseen = sum(counts.values()) - counts.get("task", 0) - len(_shown(answer, "cards"))
    if told or unseen > 0:
        yield ""
    if unseen > 0:
        where = "" if answer.get("view") == "full" else "; --view full has them all"
        yield f"{unseen} more card{'s' if unseen > 1 else ''} not in this view{where}."
    if told:
        yield f"Left out to keep within {answer['budget']['max_chars']} bytes: {', '.join(told)}."
