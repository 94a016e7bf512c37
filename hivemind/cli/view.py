"""Show where a task stands for an agent, why, and what comes next.

Nothing is written by looking. What an agent has in its own lane is seen with --agent, --all-lanes or --view audit.

examples:
  hivemind view resume what-is-a-lease
  hivemind view resume --agent researcher --budget 2000 --json
  hivemind view signals what-is-a-lease --all-lanes
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hivemind.boundary import boundary
from hivemind.cli.command import Answer, Positive, command
from hivemind.cli.opening import anywhere, look_at
from hivemind.frozen import frozen
from hivemind.names import check_name

if TYPE_CHECKING:
    from hivemind.hive import Hive


def _answer(found: Any) -> Answer:
    """What a view found: as JSON in the form that its budget counts; for a person as YAML, which escapes what steers."""
    import json

    import yaml

    from hivemind.views import render

    with boundary("view"):
        plain = json.loads(render(found))
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100) if plain else "Nothing.\n"
    return Answer(found, text.splitlines(), form=render)


@frozen(kw_only=True)
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


@frozen(kw_only=True)
class Bounds(Place):
    """And how much of it.

    arguments:
      --view VIEW  smart (default), focus_only, explore, audit or full
      --budget N  at most N bytes of JSON; the summary at the top is cut last
    """

    view: str = "smart"
    budget: int | None = None

    def answer(self, at: str | None, task: str | None, views: Callable[..., Any], **more: Any) -> Answer:
        """The same as an answer."""
        return _answer(self.look(at, task, views, view=self.view, context_budget=self.budget, **more))


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

    return _answer(place.look(at, task, signals))


def _known_task(hive: Hive, text: str | None) -> str | None:
    """The id of a task that lies in the hive, or that the journal tells of. Raises UserError for any other."""
    if text is None:
        return None
    task = check_name(text, "task id")
    told = hive.journal.view(lambda state: state.rows(task) is not None)
    return task if told else hive.tasks.get(task).id
