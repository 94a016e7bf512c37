"""Show where a task stands for an agent, why, and what comes next.

Nothing is written by looking. What an agent has in its own lane is seen with --agent, --all-lanes or --view audit.

examples:
  hivemind view resume what-is-a-lease
  hivemind view resume --agent researcher --budget 2000 --json
  hivemind view signals what-is-a-lease --all-lanes
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from hivemind.cli.command import Answer, Positive, command
from hivemind.cli.log import event_line
from hivemind.cli.opening import anywhere, look_at
from hivemind.cli.output import headed
from hivemind.cli.refusal import as_command
from hivemind.cli.text import card_line, fit, is_terminal, one_line, terminal_size
from hivemind.names import check_name

if TYPE_CHECKING:
    from hivemind.hive import Hive

View = Mapping[str, Any]
Typed = Callable[[Mapping[str, Any]], str]
_MARKS = {"open": "[ ]", "done": "[x]", "blocked": "[!]"}


def answer_lines(answer: View, typed: Typed, columns: int | None = None) -> Iterator[str]:
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


def _sections(answer: View) -> Iterator[tuple[str, Iterable[str]]]:
    """(title, lines) of each list that there may be."""
    steps, lanes = answer.get("steps", ()), answer.get("lanes", ())
    yield "Steps", (f"{_MARKS.get(one['status'], '[?]')} {one['path']} {one_line(one['title'])}" for one in steps)
    yield "Lanes", ("{lane}: {cards} cards, {open} open, {pinned} pinned".format_map(one) for one in lanes)
    focus = answer.get("step", {}).get("id")
    of_step = [one for one in _shown(answer, "cards") if focus is not None and one.get("step") == focus]
    yield "Cards of this step", map(_card_line, of_step)
    yield "Cards", (_card_line(one) for one in _shown(answer, "cards") if one not in of_step)
    yield "Notes", (f"{_by(note)}: {_text(note)}" for note in _shown(answer, "notes"))
    yield "Actions", (f"{_by(one)}  {one_line(one['kind'])}: {_text(one)}" for one in _shown(answer, "trace"))
    yield "Events", map(event_line, _shown(answer, "events"))


def _capsule(answer: View, typed: Typed) -> Iterator[str]:
    capsule = answer["capsule"]
    yield from _where(answer, capsule["where"])
    yield from _step_detail(answer, capsule)
    head = "Why"
    for one in capsule.get("why", ()):
        yield headed(head, f"{one['severity']} {one['code']}: {one['message']}")
        head = ""
    if answer.get("task", {}).get("over"):
        yield headed("Next", "nothing, the task is over")
    for head, name in (("Next", "primary"), ("Or", "backup")):
        call = capsule.get("next", {}).get(name)
        if call is not None:
            yield headed(head, typed(call))
    signals = _shown(answer, "signals")
    if len(signals) > len(capsule.get("why", ())):
        yield headed("Signals", f"{len(signals)} in all: {typed({'tool': 'signals'})}")


def _where(answer: View, where: View) -> Iterator[str]:
    """Task, place and step; under a small budget the two of them are ids alone."""
    target, step = where.get("target"), where.get("step_focus")
    yield headed("Task", "none in focus: name one, or an agent" if target is None else _titled(target))
    place = [f"{name} {where[name]}" for name in ("workspace", "lane", "branch") if name in where]
    now = [f"{name} {answer[key]}" for name, key in (("event", "seq"), ("card line", "card_seq")) if key in answer]
    yield headed("Where", ", ".join([*place, *now]))
    if step is None:
        return
    lease = step.get("lease") if isinstance(step, dict) else None
    yield headed("Step", _titled(step) + ("" if lease is None else f", {_leased(lease)}"))


def _step_detail(answer: View, capsule: View) -> Iterator[str]:
    """What the step is about, and what it still lacks: the call that would finish it knows of a missing proof too."""
    detail = dict(answer.get("step", {}))
    detail |= {key: value for key, value in (capsule.get("next", {}).get("primary") or {}).items() if key == "lacks"}
    for head, name in (("Criteria", "success_criteria"), ("Tests", "tests"), ("Lacks", "lacks")):
        if detail.get(name):
            yield headed(head, "; ".join(detail[name]))


def _titled(one: Any) -> str:
    return str(one) if not isinstance(one, dict) else f"{one['id']}: {one['title']}"


def _leased(lease: View) -> str:
    return f"leased by {lease['agent_id']} to event {lease['expires_seq']} (generation {lease['generation']})"


def _card_line(card: View) -> str:
    marks = [] if card["status"] == "open" else [card["status"]]
    marks += [] if card["lane"] == "shared" else [card["lane"]]
    marks += {False: ["folded"], "Flushed": ["flushed"]}.get(card.get("active", True), [])
    return card_line(card["id"], card["kind"], [*marks, *card.get("tags", ())], card["title"], card["text"])


def _by(one: View) -> str:
    return f"{one['seq']:>6}  {one_line(str(one['agent'] or '-'))}"


def _text(one: View) -> str:
    return one_line(str(one["text"]))


def _shown(answer: View, name: str) -> list[dict[str, Any]]:
    """What is there of a list; one that was emptied holds only the number of what was in it."""
    return [one for one in answer.get(name, ()) if one.get("type") != "summary"]


def _left_out(answer: View) -> Iterator[str]:
    told = [code.lower().replace("_", " ") for code in answer.get("degradation", ())]
    counts = answer.get("stats", {}).get("cards", {})
    unseen = sum(counts.values()) - counts.get("task", 0) - len(_shown(answer, "cards"))
    if told or unseen > 0:
        yield ""
    if unseen > 0:
        where = "" if answer.get("view") == "full" else "; --view full has them all"
        yield f"{unseen} more card{'s' if unseen > 1 else ''} not in this view{where}."
    if told:
        yield f"Left out to keep within {answer['budget']['max_chars']} bytes: {', '.join(told)}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a view is a view of.

    arguments:
      --step ID  only this step; focus: the first open one that is not blocked
      --agent AGENT  as this agent sees it: with its focus and its lane
      --all-lanes  also drafts in other agents' lanes
      --limit N  at most N cards or signals
    """

    step: str | None = None
    agent: str | None = None
    all_lanes: bool = False
    limit: Positive | None = None

    def look(self, at: str | None, task: str | None, views: Callable[..., Any], **more: Any) -> Any:
        """What one of the `views` finds there."""
        hive = look_at(at)
        return views(
            hive, task=_known_task(hive, task), agent_id=self.agent, step=self.step, all_lanes=self.all_lanes,
            limit=self.limit, **more,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds(Place):
    """And how much of it.

    arguments:
      --view VIEW  smart (default), focus_only, explore, audit or full
      --budget N  at most N bytes of JSON; the summary at the top is cut last
    """

    view: str = "smart"
    budget: int | None = None

    def answer(self, at: str | None, task: str | None, views: Callable[..., Any], **more: Any) -> Answer:
        """The same as an answer: as JSON in the form that its budget counts, or for a person."""
        from hivemind.views import render

        found = self.look(at, task, views, view=self.view, context_budget=self.budget, **more)
        typed = partial(as_command, agent=self.agent, task=found.get("task", {}).get("id"), hive=at)
        return Answer(found, answer_lines(found, typed, terminal_size()[0] if is_terminal() else None), form=render)


@command("view resume", anywhere)
def resume(at: str | None, task: str | None = None, *, bounds: Bounds) -> Answer:
    """Show everything that is needed to continue a task.

    arguments:
      TASK  the task's id (default: what the agent has in focus)

    examples:
      hivemind view resume what-is-a-lease --step focus --agent researcher
    """
    from hivemind.views import resume

    return bounds.answer(at, task, resume)


@command("view snapshot", anywhere)
def snapshot(at: str | None, task: str | None = None, *, bounds: Bounds) -> Answer:
    """Show the same at a glance: without notes, actions and events.

    arguments:
      TASK  the task's id (default: what the agent has in focus)

    examples:
      hivemind view snapshot what-is-a-lease
    """
    from hivemind.views import snapshot

    return bounds.answer(at, task, snapshot)


@command("view watch", anywhere)
def watch(
    at: str | None, task: str | None = None, *, bounds: Bounds, since: int = 0, since_card: int | None = None
) -> Answer:
    """Show what is new since an earlier look.

    Pass `seq` and `card_seq` of the previous answer (--json) as --since and --since-card.

    arguments:
      TASK  the task's id (default: what the agent has in focus)
      --since SEQ  events after this one (default: all)
      --since-card SEQ  cards, notes, actions after this line of graph.jsonl

    examples:
      hivemind view watch what-is-a-lease --since 120 --since-card 14
    """
    from hivemind.views import watch

    return bounds.answer(at, task, watch, since_seq=since, since_card_seq=since_card)


@command("view signals", anywhere)
def signals(at: str | None, task: str | None = None, *, place: Place) -> Answer:
    """List what needs attention, the most serious first, and what would help.

    arguments:
      TASK  the task's id (default: what the agent has in focus)

    examples:
      hivemind view signals what-is-a-lease --all-lanes
    """
    from hivemind.views import signals

    found = place.look(at, task, signals)
    return Answer(found, signal_lines(found, partial(as_command, agent=place.agent, task=task, hive=at)))


def _known_task(hive: Hive, text: str | None) -> str | None:
    """The id of a task that lies in the hive, or that the journal tells of. Raises UserError for any other."""
    if text is None:
        return None
    task = check_name(text, "task id")
    told = hive.journal.view(lambda state: task in state.tasks or task in state.by_task)
    return task if told else hive.tasks.get(task).id
