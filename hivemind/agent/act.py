"""Act: make the calls that a mind asks for, in order, under the step's lease. Each call gets a result."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from typing import Any

from hivemind.agent.lease import FocusLease
from hivemind.agent.news import ReadFiles
from hivemind.agent.window import ContextWindow
from hivemind.errors import HivemindError, is_disk_full
from hivemind.minds import Thought, ToolCall, ToolResult, Turn
from hivemind.taskrun.conversation import INTERRUPTED, Conversation
from hivemind.taskrun.waits import ACCEPTANCE, Parking, disk_full_parking
from hivemind.taskrun.worktree import WorktreeProblem
from hivemind.tools import ToolContext
from hivemind.tools.excerpt import result_limit
from hivemind.tools.steps import block
from hivemind.tools.tool import for_mind

_MAX_THREADS = 8
_NOT_REPEATABLE = frozenset(
    {"add_task", "apply_patch", "doc_append", "doc_note", "doc_update", "edit_file", "note_step", "run_command"}
)
"""Tools that may not be called again after an interruption. All other tools only read, or recognise a repeated call by
its id or content."""
_SHOWN_CHARS = 500
_SHOWN_ITEMS = 20
_log = logging.getLogger(__name__)


def act(
    turn: Turn,
    context: ToolContext,
    window: ContextWindow | None,
    lease: FocusLease,
    read_files: ReadFiles,
    open_calls: set[str],
) -> None:
    """Take the step's lease and make the calls of the turn's thought. Set the turn's `results` and, if a call must wait, its
    `parking`.

    With a `window`, append each result to the conversation at once. Without one, the mind works by rule: a failed call sets the
    turn's `problem`. `open_calls` has the ids of the calls that this process asked for and that have no result. Raises Parking if
    another agent holds the step.
    """
    thought = turn.thought
    if thought is None:  # a coding agent has made its calls already
        return
    if window is not None and not turn.taken_up:
        open_calls |= {call.id for call in thought.actions}
    lease.take(context.focus)
    results = turn.results = [*turn.results]
    if window is None:
        limit = result_limit(context.config.max_tokens)
        turn.parking = make_calls(context, thought, limit, results.append)
        problems = (result.problem for result in results if not result.ok and not result.value.get("interrupted"))
        turn.problem = next(problems, None) or _command_problem(results)
        return
    talk = window.talk

    def record(result: ToolResult) -> None:
        results.append(result)
        talk.result(result)
        if result.value.get("shown"):
            talk.add_news(f"{result.value['path']}:", [result.value["picture"]], picture=True)
        open_calls.discard(result.call.id)

    first = thought.actions[0] if thought.actions else None
    if first is not None and first.id not in open_calls and first.tool in _NOT_REPEATABLE:
        # An earlier process made these calls in order: only the first may have taken effect.
        record(ToolResult.failure(first, INTERRUPTED))
        thought = replace(thought, actions=thought.actions[1:])
    changed_before = read_files.changed_files(talk, context)
    turn.parking = make_calls(context, thought, result_limit(window.max_tokens), record)
    changed = read_files.changed_files(talk, context)
    talk.note_files({name: digest for name, digest in changed.items() if name not in changed_before})


def _command_problem(results: Sequence[ToolResult]) -> str | None:
    """Return a sentence with the exit status if the last call was a command that failed, else None."""
    status = results[-1].value.get("exit_status") if results else None
    return None if status in (None, 0) else f"the command ended with status {status}"


def ask_operator(turn: Turn, context: ToolContext, talk: Conversation, reason: str) -> None:
    """Ask the operator whether an overlong task shall go on; `reason` begins the question. Block the step in focus until the
    answer. Without a step, set the turn's `parking`."""
    step = context.focus.step
    talk.add_news(f"{reason} The operator is asked whether the task shall go on.")
    if step is None:
        turn.parking = Parking(f"{reason} hivemind task say {context.focus.id} TEXT lets the task go on.")
        return
    try:
        block(context, step, f"{reason} Shall it go on?", ACCEPTANCE)
    except HivemindError as error:
        turn.parking = error if isinstance(error, Parking) else Parking(f"{reason} ({error})")


def make_calls(
    context: ToolContext, thought: Thought, limit_chars: int, report: Callable[[ToolResult], object]
) -> Parking | None:
    """Make the calls of a thought in order and `report` each result at once. Adjacent calls that only read files run in parallel.

    `limit_chars` bounds the text of each result. If the thought is `chained`, stop after a failed call. After a call that ended
    the task or handed it over, the next calls are skipped, and their results say so.

    Return None once the calls are made. If a call must wait, return its Parking; that call and those after it have no result yet.
    """
    tools = context.tools

    def is_read(call: ToolCall) -> bool:
        return call.tool in tools and tools[call.tool].is_read_only

    for reads, call_group in groupby(thought.actions, is_read):
        calls = list(call_group)
        try:
            for result in _results_of(context, calls, limit_chars, reads=reads and not thought.chained):
                report(result)
                if thought.chained and (not result.ok or result.value.get("exit_status") not in (None, 0)):
                    return None
        except Parking as parking:
            return parking
    return None


def _results_of(context: ToolContext, calls: Sequence[ToolCall], limit: int, *, reads: bool) -> Iterator[ToolResult]:
    if reads and len(calls) > 1 and context.focus.work is not None and all(call.tool in _FILE_READS for call in calls):
        with ThreadPoolExecutor(min(len(calls), _MAX_THREADS)) as pool:
            yield from pool.map(lambda call: _make_timed(context, call, limit), calls)
        return
    for call in calls:
        yield _make_timed(context, call, limit)


_FILE_READS = frozenset({"read_file", "list_files", "search_files"})
"""Tools that only read files: threads can run them in parallel."""


def _make_timed(context: ToolContext, call: ToolCall, limit: int) -> ToolResult:
    started_at = time.monotonic()
    return replace(_make_call(context, call, limit), seconds=time.monotonic() - started_at)


def _make_call(context: ToolContext, call: ToolCall, limit_chars: int) -> ToolResult:
    """Make one call and return its result, with at most `limit_chars` of text. A refusal is a failed result. Raises Parking,
    WorktreeProblem."""
    work, tools = context.focus.work, context.tools
    if work is not None and (work.is_ended or work.handed_to):
        return ToolResult.failure(call, f"skipped: the task {'is over' if work.is_ended else 'was handed over'}")
    if call.raw is not None:
        return ToolResult.failure(call, f"the arguments cannot be read as a JSON object: {call.raw[:200]!r}")
    if call.tool not in tools:
        return ToolResult.failure(call, f"there is no tool {call.tool!r}; tools: {', '.join(sorted(tools))}")
    tool = tools[call.tool]
    if work is not None and not tool.is_read_only and (lease_problem := work.lost_lease()) is not None:
        return ToolResult.failure(call, f"refused: {lease_problem}")
    try:
        value = tool.call(context.for_call(call.id), call.arguments)
    except (Parking, WorktreeProblem):
        raise
    except Exception as error:  # the boundary of a tool: its faults are logged and reported to the mind
        if is_disk_full(error):
            raise disk_full_parking() from None
        if isinstance(error, HivemindError):
            return ToolResult.failure(call, str(for_mind(error, tools)), small_values_of(getattr(error, "result", {})))
        _log.exception("%s: the tool %s broke on %s", context.agent, call.tool, context.focus.id)
        return ToolResult.failure(call, f"the tool broke: {type(error).__name__}: {error}")
    return ToolResult(call, tool.render(value, limit_chars), small_values_of(value))


def small_values_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a result that are short enough for programs to use as they are. A mind reads the result's text
    instead."""
    small_values: dict[str, Any] = {}
    for key, value in result.items():
        if isinstance(value, list):
            small_values[key] = [item for item in value[:_SHOWN_ITEMS] if len(str(item)) <= _SHOWN_CHARS]
        elif value is None or len(str(value)) <= _SHOWN_CHARS:
            small_values[key] = value
    return small_values
