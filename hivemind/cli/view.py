"""Show an agent's view of a task: its state, the reasons, and the next calls.

Views are read-only. --agent, --all-lanes or --view audit show the drafts in an agent's lane.

examples:
  hivemind view resume what-is-a-lease
  hivemind view resume --agent researcher --budget 2000 --json
  hivemind view signals what-is-a-lease --all-lanes
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hivemind.boundary import boundary
from hivemind.cli.command import CommandOutput, Positive, command
from hivemind.cli.open_hive import open_read_only, without_hive
from hivemind.frozen import frozen
from hivemind.names import check_name

if TYPE_CHECKING:
    from hivemind.hive import Hive


def _view_output(view: Any) -> CommandOutput:
    """Return a view as the output of a command: compact JSON for `--json`, YAML with escaped control characters for people."""
    import json

    import yaml

    from hivemind.views import render

    with boundary("view"):
        plain_view = json.loads(render(view))
    text = yaml.safe_dump(plain_view, sort_keys=False, allow_unicode=True, width=100) if plain_view else "Nothing.\n"
    return CommandOutput(view, text.splitlines(), to_json=render)


@frozen(kw_only=True)
class ViewArguments:
    """Options that select a view.

    arguments:
      --step ID  only this step; focus: the first open step that is not blocked
      --agent AGENT  as this agent sees it: with its focus and its lane
      --all-lanes  also drafts in other agents' lanes
      --limit N  at most N cards or signals
    """

    step: str | None = None
    agent: str | None = None
    all_lanes: bool = False
    limit: Positive | None = None

    def look(self, hive_path: str | None, task: str | None, view_function: Callable[..., Any], **options: Any) -> Any:
        """Open the hive, call `view_function` of `hivemind.views` with these options, and return the view."""
        hive = open_read_only(hive_path)
        return view_function(
            hive, task=_known_task(hive, task), agent_id=self.agent, step=self.step, all_lanes=self.all_lanes,
            limit=self.limit, **options,
        )  # fmt: skip


@frozen(kw_only=True)
class BoundedViewArguments(ViewArguments):
    """Options that select a view and limit its size.

    arguments:
      --view VIEW  smart (default), focus_only, explore, audit or full
      --budget N  at most N bytes of JSON; the summary at the top is cut last
    """

    view: str = "smart"
    budget: int | None = None

    def output(
        self, hive_path: str | None, task: str | None, view_function: Callable[..., Any], **options: Any
    ) -> CommandOutput:
        """Return the view as the output of a command."""
        return _view_output(
            self.look(hive_path, task, view_function, view=self.view, context_budget=self.budget, **options)
        )


@command("view resume", without_hive)
def resume(hive_path: str | None, task: str | None = None, *, bounds: BoundedViewArguments) -> CommandOutput:
    """Show all information for continuing a task.

    arguments:
      TASK  the task's id (default: what the agent has in focus)

    examples:
      hivemind view resume what-is-a-lease --step focus --agent researcher
    """
    from hivemind.views import resume

    return bounds.output(hive_path, task, resume)


@command("view snapshot", without_hive)
def snapshot(hive_path: str | None, task: str | None = None, *, bounds: BoundedViewArguments) -> CommandOutput:
    """Show a task at a glance: without notes, actions and events.

    arguments:
      TASK  the task's id (default: what the agent has in focus)

    examples:
      hivemind view snapshot what-is-a-lease
    """
    from hivemind.views import snapshot

    return bounds.output(hive_path, task, snapshot)


@command("view watch", without_hive)
def watch(
    hive_path: str | None,
    task: str | None = None,
    *,
    bounds: BoundedViewArguments,
    since: int = 0,
    since_card: int | None = None,
) -> CommandOutput:
    """Show the changes since an earlier view.

    Pass `seq` and `card_seq` of the previous view (--json) as --since and --since-card.

    arguments:
      TASK  the task's id (default: what the agent has in focus)
      --since SEQ  events after this one (default: all)
      --since-card SEQ  cards, notes, actions after this line of graph.jsonl

    examples:
      hivemind view watch what-is-a-lease --since 120 --since-card 14
    """
    from hivemind.views import watch

    return bounds.output(hive_path, task, watch, since_seq=since, since_card_seq=since_card)


@command("view signals", without_hive)
def signals(hive_path: str | None, task: str | None = None, *, arguments: ViewArguments) -> CommandOutput:
    """List the signals, the most serious first, with proposed calls.

    arguments:
      TASK  the task's id (default: what the agent has in focus)

    examples:
      hivemind view signals what-is-a-lease --all-lanes
    """
    from hivemind.views import signals

    return _view_output(arguments.look(hive_path, task, signals))


def _known_task(hive: Hive, text: str | None) -> str | None:
    """Return the task's id, after a check that the hive or its journal has the task. Return None for None. Raises UserError."""
    if text is None:
        return None
    task = check_name(text, "task id")
    is_in_journal = hive.journal.view(lambda state: state.rows(task) is not None)
    return task if is_in_journal else hive.tasks.get(task).id
