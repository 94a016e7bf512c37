"""Recall: the hive's knowledge about the questions in focus."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from hivemind.agent.opening import Entry, materials, source_of
from hivemind.agent.working_memory import WorkingMemory
from hivemind.minds import ToolResult
from hivemind.minds.extractive import questions_in
from hivemind.taskrun.focus import Focus

_LEAD_CHARS = 300
_HEADING = re.compile(r"^#+ .*\n+", re.MULTILINE)


def recall(focus: Focus, memory: WorkingMemory) -> tuple[Sequence[Entry], str, Sequence[ToolResult]]:
    """Return three values for a mind that works by rule: what the hive knows about the questions in focus, a text on what the
    search left out, and the results of the turn before.

    A mind that reads conversations gets a selection in its opening instead, and asks for more with the tool `recall`.
    """
    results = () if focus.work is None else focus.work.conversation.last_results
    questions = questions_of(focus)
    return *memory.answer_entries(focus, questions), results


def answer(
    memory: WorkingMemory, focus: Focus, is_known: Callable[[str], bool], question: str, tokens: int
) -> dict[str, Any]:
    """Answer the tool `recall`: return `sources` and `text` of what the hive knows about the question, in at most `tokens`
    tokens. Texts for which `is_known` is true are left out."""
    entries = memory.recall(focus, question, tokens, is_known)
    return {"sources": [source_of(entry) for entry in entries], "text": materials(entries)}


def questions_of(focus: Focus) -> list[str]:
    """Return the questions in focus: those of an `ask` step, of a step without an action, or of a person's letter."""
    if focus.message is not None:
        message = focus.message
        asks = message.is_from_person or focus.stranger
        return [question.text for question in questions_in(message.subject, message.answer)] if asks else []
    if focus.step is None or focus.step.is_implicit or focus.step.todo.kind not in ("ask", None):
        return []
    return [str(focus.step.todo.argument or focus.step.todo.title)]


def subjects_of(focus: Focus) -> list[str]:
    """Return the texts for which an opening's content is selected: the questions in focus, or else the task's title and its
    first paragraphs, without headings."""
    lead, *paragraphs = _HEADING.sub("", focus.text).strip().split("\n\n")
    for paragraph in paragraphs:
        if len(lead) + len(paragraph) > _LEAD_CHARS:
            break
        lead += f"\n\n{paragraph}"
    return questions_of(focus) or [f"{focus.title}\n{lead[:_LEAD_CHARS]}"]
