"""Recall: what the hive knows about the question in focus becomes candidates for the context; they live for that cycle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from hivemind.agent.opening import materials, quoted, source_of
from hivemind.documents import Passage, title_of
from hivemind.layout import HUMAN
from hivemind.memory import ContextMemoryBlock, Given, KnowledgeMemoryBlock, Priority
from hivemind.memory.loading import Source
from hivemind.minds import Turn
from hivemind.minds.extractive import questions_in
from hivemind.presence.parts import Parts
from hivemind.reasoning import SHARED, NodeHit
from hivemind.taskrun.focus import Focus
from hivemind.tools.documents import DOCUMENTS

if TYPE_CHECKING:
    from hivemind.agent.agent import Agent
    from hivemind.agent.working_memory import WorkingMemory

__all__ = ["PASSAGE", "answer", "document_sources", "noted", "questions_of", "recall", "recalled", "subjects_of"]

PASSAGE = "passage"
"""What a location begins with that names the passage that is quoted with a node."""

PER_QUESTION = 6
_ASKED_CHARS = 2_000
_NODES = 12
_ANSWERING = ("decision", "note")
_EDGE = 24  # characters by which a quote's beginning and end are found within its lines
_PARTS = 2  # parts of documents for each question, of which several passages were found,
_PART_TOKENS = 800  # and the most that one of them is shown of
_EXTRACTED = frozenset({".pdf", ".html", ".htm", ".xhtml"})  # whose passages are no lines of the file


def recall(agent: Agent, turn: Turn) -> None:
    """For a mind that works by rule: what the hive knows about the question in focus, and the results of the turn before.
    For one that reads `select` asks, at the start of an epoch."""
    if agent.works_by_rule(turn):
        turn.found = agent.memory.found(turn.focus, questions_of(turn.focus))
        turn.before = agent.conversation(turn).before


def answer(memory: WorkingMemory, focus: Focus, said: Iterable[str], question: str, tokens: int) -> dict[str, Any]:
    """For the tool `recall`: what answers a question and does not stand in what was `said` already, with its sources."""
    texts = list(said)

    def stands(content: str) -> bool:
        return any(form in text for form in {content.strip(), quoted(content)} for text in texts)

    entries = memory.recall(focus, question, tokens, stands)
    return {"sources": [source_of(entry) for entry in entries], "text": materials(entries)}


def document_sources(hive: Parts) -> dict[str, Source]:
    """What gives a context the content of blocks that name a node, expanded to the length that is left (spec 5)."""

    def part(node_id: str, max_tokens: int | None) -> Given:
        room = _PART_TOKENS if max_tokens is None else min(max_tokens, _PART_TOKENS)
        shown = hive.documents.shown(node_id, room)
        return Given(shown.text, shown.form)

    def passage(node_id: str, max_tokens: int | None) -> Given:
        text = hive.knowledge.passage_at(node_id)
        if max_tokens is None or hive.count_tokens(text) <= max_tokens:
            return Given(text, "full")
        return part(node_id, max_tokens)

    return {DOCUMENTS: part, PASSAGE: passage}


def questions_of(focus: Focus) -> list[str]:
    """What a focus asks: the question of an `ask` step (or of one that says nothing else), or those of a person's mail."""
    if focus.message is not None:
        message = focus.message
        return questions_in(message.subject, message.body) if message.sender == HUMAN or focus.stranger else []
    if focus.step is None or focus.step.is_implicit or focus.step.todo.kind not in ("ask", None):
        return []
    return [str(focus.step.todo.argument or focus.step.todo.title)]


def subjects_of(focus: Focus) -> list[str]:
    """What the opening of a conversation is selected for: what the focus asks, else what it says."""
    return questions_of(focus) or [f"{focus.title}\n{focus.text}"[:_ASKED_CHARS]]


def recalled(hive: Parts, focus: Focus, questions: Sequence[str], *, weak: bool = True) -> list[KnowledgeMemoryBlock]:
    """Passages of knowledge/ and the task's attachments for each question, as blocks that point at their lines; with `weak`
    those too that are only the nearest to it.

    Best first, and newest: where scores are equal, the newer block is selected first.
    """
    if not questions:
        return []
    attachments = [] if focus.work is None else list(focus.work.task.attachments)
    hive.knowledge.sync(extra=attachments)
    scope = [hive.layout.knowledge, *attachments]
    blocks: dict[str, KnowledgeMemoryBlock] = {}
    now = datetime.now(UTC)
    for question in questions:
        passages = hive.knowledge.search(question, limit=PER_QUESTION, scope=scope)
        passages = [one for one in passages if weak or one.confidence.level != "weak"]
        best = max((passage.score for passage in passages), default=0.0)
        for rank, passage in enumerate(passages):
            block = _block(passage.quoted(), question, best, now - timedelta(microseconds=rank), passage.is_cut)
            known = blocks.get(block.id)
            if known is not None:
                known.metadata["answers"] |= block.metadata["answers"]
            else:
                block.metadata["tokens"] = hive.count_tokens(passage.text)
                blocks[block.id] = block
        for block in _parts(hive, passages, now):
            blocks.setdefault(block.id, block)
    return list(blocks.values())


def _parts(hive: Parts, passages: Sequence[Passage], now: datetime) -> list[KnowledgeMemoryBlock]:
    """The parts of documents of which several passages were found: all of such a part matters (seed 003, *Summary
    Attraction*), and goes in as far as there is room."""
    parents = Counter(node.parent_id for one in passages if (node := hive.documents.find(one.node_id)) is not None)
    found = []
    for parent_id, count in parents.most_common(_PARTS):
        node = None if parent_id is None or count < 2 else hive.documents.find(parent_id)
        if node is None:
            continue
        source = hive.documents.source(node.id)
        found.append(
            KnowledgeMemoryBlock(
                timestamp=now,
                id=f"knowledge:{DOCUMENTS}:{node.id}",
                topic=title_of(node),
                location=f"{DOCUMENTS}:{node.id}",
                relevance_score=0.0,
                priority=Priority.LOW,
                metadata={
                    "path": None if source is None else source.path,
                    "tokens": min(_PART_TOKENS, hive.documents.size(node.id)[1]),
                    "why": f"{count} of the passages found stand in it",
                },
            )
        )
    return found


def noted(hive: Parts, agent: str, question: str) -> list[ContextMemoryBlock]:
    """Nodes of the tasks' graphs that answer a question, folded ones too: published ones, and those of the agent's own lane.

    Decisions and notes can be quoted as answers; evidence is quoted from its file, and a note that has a question for its title
    is what was found for it before."""
    lanes = (SHARED, hive.agents[agent].lane or f"agent/{agent}")
    hits = {hit.text: hit for hit in hive.graph_index.find(question, limit=_NODES).hits if hit.lane in lanes}
    return [
        ContextMemoryBlock(
            id=f"graph:{hit.task}:{hit.node_id}",
            context_type="graph",
            summary=hit.text,
            confidence=min(1.0, hit.score),
            metadata={
                "path": f"{hit.path} node {hit.node_id}",
                "origin": "agent",
                "why": hit.confidence.reason,
                "task": hit.task,
                "answers": {question: round(hit.confidence.value, 2)} if _is_answer(hit) else {},
            },
        )
        for hit in hits.values()
    ]


def _is_answer(hit: NodeHit) -> bool:
    return hit.kind in _ANSWERING and not hit.title.rstrip().endswith("?")


def _block(passage: Passage, question: str, best: float, timestamp: datetime, is_cut: bool) -> KnowledgeMemoryBlock:
    edges = {"begins": passage.text[:_EDGE], "ends": passage.text[-_EDGE:]} if is_cut else {}
    return KnowledgeMemoryBlock(
        timestamp=timestamp,
        id=f"knowledge:{passage.path}:{passage.start_line}-{passage.end_line}",
        topic=passage.titles[-1] if passage.titles else passage.path,
        subtopic=passage.titles[-2] if len(passage.titles) > 1 else None,
        location=f"{PASSAGE}:{passage.node_id}"
        if PurePath(passage.path).suffix.lower() in _EXTRACTED
        else passage.path,
        relevance_score=min(1.0, passage.score / best) if best > 0 else 0.5,
        metadata={
            "path": passage.path,
            "lines": f"{passage.start_line}-{passage.end_line}",
            "start_line": passage.start_line,
            "end_line": passage.end_line,
            "digest": passage.digest,
            "answers": {question: round(passage.confidence.value, 2)},
            "why": passage.confidence.reason,
            **edges,
        },
    )
