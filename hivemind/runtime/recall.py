"""Recall: what the hive knows about the question in focus becomes candidates for the context; they live for that cycle."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from hivemind.documents import Passage
from hivemind.layout import HUMAN
from hivemind.memory import KnowledgeMemoryBlock
from hivemind.minds.extractive import questions_in
from hivemind.runtime.focus import Focus
from hivemind.runtime.parts import Parts

__all__ = ["questions_of", "recall"]

PER_QUESTION = 6


def questions_of(focus: Focus) -> list[str]:
    """What a focus asks: the question of an `ask` step (or of one that says nothing else), or those of a person's mail."""
    if focus.message is not None:
        message = focus.message
        return questions_in(message.subject, message.body) if message.sender == HUMAN else []
    if focus.step is None or focus.step.todo.kind not in ("ask", None):
        return []
    return [str(focus.step.todo.argument or focus.step.todo.title)]


def recall(hive: Parts, focus: Focus) -> list[KnowledgeMemoryBlock]:
    """Passages of knowledge/ and the task's attachments for each question in focus, as blocks that point at their lines.

    Best first, and newest: where scores are equal, the newer block is selected first.
    """
    questions = questions_of(focus)
    if not questions:
        return []
    attachments = [] if focus.work is None else list(focus.work.task.attachments)
    hive.knowledge.sync(extra=attachments)
    scope = [hive.layout.knowledge, *attachments]
    blocks: dict[str, KnowledgeMemoryBlock] = {}
    now = datetime.now(UTC)
    for question in questions:
        passages = hive.knowledge.search(question, limit=PER_QUESTION, scope=scope)
        best = max((passage.score for passage in passages), default=0.0)
        for rank, passage in enumerate(passages):
            block = _block(passage, question, best, now - timedelta(microseconds=rank))
            known = blocks.get(block.id)
            if known is not None:
                known.metadata["questions"].append(question)
            else:
                told = json.dumps(block.metadata)
                block.metadata["tokens"] = hive.count_tokens(passage.text) + hive.count_tokens(told)
                blocks[block.id] = block
    return list(blocks.values())


def _block(passage: Passage, question: str, best: float, timestamp: datetime) -> KnowledgeMemoryBlock:
    return KnowledgeMemoryBlock(
        timestamp=timestamp,
        id=f"knowledge:{passage.path}:{passage.start_line}-{passage.end_line}",
        topic=passage.titles[-1] if passage.titles else passage.path,
        subtopic=passage.titles[-2] if len(passage.titles) > 1 else None,
        location=passage.path,
        relevance_score=min(1.0, passage.score / best) if best > 0 else 0.5,
        metadata={
            "lines": f"{passage.start_line}-{passage.end_line}",
            "start_line": passage.start_line,
            "end_line": passage.end_line,
            "digest": passage.digest,
            "questions": [question],
            "why": passage.why,
        },
    )
