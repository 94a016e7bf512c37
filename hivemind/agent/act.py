"""Act: make the calls that a mind asks for, in order, under the step's lease; each gets its result (spec 8)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from hivemind.errors import HivemindError, is_disk_full
from hivemind.minds import Thought, ToolCall, ToolResult, Turn
from hivemind.taskrun.conversation import INTERRUPTED
from hivemind.taskrun.waits import Parking, disk_full_parking
from hivemind.tools import Session, Tool
from hivemind.tools.excerpt import result_limit
from hivemind.tools.tool import for_mind

if TYPE_CHECKING:
    from hivemind.agent.agent import Agent

_AT_ONCE = 8
_NOT_TWICE = frozenset(
    {"add_task", "apply_patch", "doc_append", "doc_note", "doc_update", "edit_file", "note_step", "run_command"}
)
"""What reads, or is known by its id or its content, may be made again."""
_SHOWN_CHARS = 500
_SHOWN_ITEMS = 20
_log = logging.getLogger(__name__)


def act(agent: Agent, turn: Turn) -> None:
    """Take the step's lease, and make the calls of the thought; of a mind that reads each result stands in the conversation at
    once. Sets why the task rests, or why a turn by rule came to nothing. Raises Parking if another holds the step."""
    thought = turn.thought
    if thought is None:  # a coding agent has made its calls already
        return
    agent.take_lease(turn.focus)
    results = [*turn.results]
    turn.results = results
    if agent.works_by_rule(turn):
        limit = result_limit(agent.config.max_tokens)
        turn.parking = make_calls(agent.session(turn), agent.tools, thought, limit, results.append)
        to_blame = (one.problem for one in results if not one.ok and not one.value.get("interrupted"))
        turn.problem = next(to_blame, None) or _exit(results)
        return
    talk = agent.conversation(turn)

    def tell(result: ToolResult) -> None:
        results.append(result)
        talk.result(result)
        if result.value.get("shown"):
            talk.add_news(f"{result.value['path']}:", [result.value["picture"]], picture=True)
        agent.asked.discard(result.call.id)

    thought = _without_interrupted(agent, turn, thought, tell)
    limit, session = result_limit(agent.most_tokens(turn)), agent.session(turn)
    by_others = agent.read_files.changed(talk, session)
    turn.parking = make_calls(session, agent.tools, thought, limit, tell)
    talk.note_files(
        {name: now for name, now in agent.read_files.changed(talk, session).items() if name not in by_others}
    )


def _exit(results: Sequence[ToolResult]) -> str | None:
    """Why the last command of a turn by rule is no success."""
    status = results[-1].value.get("exit_status") if results else None
    return None if status in (None, 0) else f"the command ended with status {status}"


def _without_interrupted(agent: Agent, turn: Turn, thought: Thought, tell: Callable[[ToolResult], object]) -> Thought:
    """Calls are made in order, so of those that an earlier process left the first may have taken effect: where it must not
    be made twice, it is answered with that."""
    first = thought.actions[0] if thought.actions else None
    if first is None or not turn.taken_up or first.id in agent.asked or first.tool not in _NOT_TWICE:
        return thought
    tell(ToolResult.failure(first, INTERRUPTED))
    return replace(thought, actions=thought.actions[1:])


def make_calls(
    session: Session,
    tools: Mapping[str, Tool],
    thought: Thought,
    limit_chars: int,
    tell: Callable[[ToolResult], object],
) -> Parking | None:
    """Make the calls of a thought; `tell` gets each result as soon as it is there. Adjacent reads run side by side.

    A call that fails does not stop the others, unless the thought is chained. After one that ends the task or hands it over
    the rest are skipped, and say so. Returns why the task rests, if a call says so: that one and the rest have no result yet.
    """
    for reads, some in groupby(thought.actions, lambda call: call.tool in tools and tools[call.tool].is_read_only):
        calls = list(some)
        try:
            for result in _made(session, tools, calls, limit_chars, reads=reads and not thought.chained):
                tell(result)
                if thought.chained and (not result.ok or result.value.get("exit_status") not in (None, 0)):
                    return None
        except Parking as parking:
            return parking
    return None


def _made(
    session: Session, tools: Mapping[str, Tool], calls: Sequence[ToolCall], limit: int, *, reads: bool
) -> Iterator[ToolResult]:
    if reads and len(calls) > 1 and session.focus.work is not None and all(call.tool in _FILES for call in calls):
        with ThreadPoolExecutor(min(len(calls), _AT_ONCE)) as pool:
            yield from pool.map(lambda call: _timed(session, tools, call, limit), calls)
        return
    for call in calls:
        yield _timed(session, tools, call, limit)


_FILES = frozenset({"read_file", "list_files", "search_files"})
"""Reads that touch nothing but files, which threads may do at the same time."""


def _timed(session: Session, tools: Mapping[str, Tool], call: ToolCall, limit: int) -> ToolResult:
    began = time.monotonic()
    return replace(_make(session, tools, call, limit), seconds=time.monotonic() - began)


def _make(session: Session, tools: Mapping[str, Tool], call: ToolCall, limit_chars: int) -> ToolResult:
    """Make one call. Raises Parking."""
    work = session.focus.work
    if work is not None and (work.is_ended or work.handed_to):
        return ToolResult.failure(
            call, "skipped: the task is over" if work.is_ended else "skipped: the task was handed over"
        )
    if call.raw is not None:
        return ToolResult.failure(call, f"the arguments cannot be read as a JSON object: {call.raw[:200]!r}")
    if call.tool not in tools:
        return ToolResult.failure(call, f"there is no tool {call.tool!r}; tools: {', '.join(sorted(tools))}")
    tool = tools[call.tool]
    if work is not None and not tool.is_read_only and (lost := work.lost_lease()) is not None:
        return ToolResult.failure(call, f"refused: {lost}")
    try:
        value = tool.call(session.for_call(call.id), call.arguments)
    except Parking:
        raise
    except Exception as error:  # the boundary of a tool: a fault in one must not end the agent; it is logged and told
        if is_disk_full(error):
            raise disk_full_parking() from None
        if isinstance(error, HivemindError):
            return ToolResult.failure(call, str(for_mind(error, tools)), short(getattr(error, "result", {})))
        _log.exception("%s: the tool %s broke on %s", session.agent, call.tool, session.focus.id)
        return ToolResult.failure(call, f"the tool broke: {type(error).__name__}: {error}")
    return ToolResult(call, tool.render(value, limit_chars), short(value))


def short(result: Mapping[str, Any]) -> dict[str, Any]:
    """The small values of a result, for programs: what a mind needs stands in its text."""
    kept: dict[str, Any] = {}
    for key, value in result.items():
        if isinstance(value, list):
            kept[key] = [item for item in value[:_SHOWN_ITEMS] if len(str(item)) <= _SHOWN_CHARS]
        elif value is None or len(str(value)) <= _SHOWN_CHARS:
            kept[key] = value
    return kept
