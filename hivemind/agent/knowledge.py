"""The hive's knowledge about a question, as blocks: passages, notes, memories, nodes of the tasks' graphs."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from hivemind.documents import Node, Passage, title_of
from hivemind.errors import UserError
from hivemind.longterm import MemorySearchResult, format_namespace, parse_namespace, shorten
from hivemind.memory import ContextMemoryBlock, KnowledgeMemoryBlock, MemoryBlock, Priority, SourceContent
from hivemind.memory.loading import Source
from hivemind.minds.extractive import Question, plan_steps
from hivemind.presence.parts import Parts
from hivemind.reasoning import SHARED
from hivemind.search import Confidence, merge_hits
from hivemind.search.words import significant_words
from hivemind.taskrun.focus import Focus
from hivemind.taskrun.project import Project, earlier_results
from hivemind.tools.documents import DOCUMENTS
from hivemind.tools.memory import namespaces_of, run_with_repair
from hivemind.words import GENERIC_WORDS

ABOUT = 0.5
"""A text is about a question if it contains at least this share of the question's words."""
RELEVANT, RELEVANT_MEMORY = 0.9, 1.0
"""The least confidence of a passage and of a memory that an opening shows unasked. Chosen by benchmarks/opening."""
SUNK = 0.75
"""The least factor, learned from use, of a text that an opening shows unasked."""
_MAX_NEAR, _MAX_RELEVANT, _MAX_NEAREST = 24, 6, 5
PASSAGE = "passage"
"""The prefix of the location of a passage, which names a node and the quoted characters: `passage:n7:0-120`."""
PER_QUESTION = 6
_NODES = 12
_ANSWERING = ("decision", "note")
_PARTS = 2  # of documents with several passages, for each question
_PART_TOKENS = 800  # of one part, at most

SOURCE = "memory"
"""The prefix of a memory's location: `memory:memories/researcher-1/pref_food`."""
_MAX_TOKENS = 1_000
_MAX_HITS = 20
_ATTACHMENT_WORDS = "attached attachment file document letter log note text angehängt Anhang Anlage Datei Notiz steht"
_MAX_QUERY_CHARS = 2_000  # a letter may be as long as a book
_log = logging.getLogger(__name__)


def memory_blocks(hive: Parts, agent: str, questions: Sequence[str]) -> list[KnowledgeMemoryBlock]:
    """Return the memories of the agent and its workspace about the questions, the best first, within 1,000 tokens.

    A memory that does not fit is skipped. The search writes no file, not even a new database.
    """
    if not "".join(questions).strip() or not hive.memory.database.was_made:
        return []

    def search() -> list[tuple[int, str, MemorySearchResult]]:
        names = namespaces_of(hive, agent)
        hits: list[tuple[int, str, MemorySearchResult]] = []
        for question in questions:
            results = hive.memory.search_in(names, question[:_MAX_QUERY_CHARS], limit=_MAX_HITS)
            hits += [(rank, question, hit) for rank, hit in enumerate(results)]
        return hits

    try:
        ranked_hits = sorted(run_with_repair(hive, search), key=lambda ranked_hit: ranked_hit[0])
    except (UserError, OSError) as error:  # another version, or no room to restore it: memories are optional
        _log.warning("%s: memories are not available: %s", agent, error)
        return []
    now, remaining_tokens = datetime.now(UTC), _MAX_TOKENS
    blocks: dict[str, KnowledgeMemoryBlock] = {}
    for _, question, hit in ranked_hits:
        location = f"{SOURCE}:{format_namespace((*hit.namespace, hit.key))}"
        if location not in blocks:
            remembered_at = hit.updated_at.isoformat(timespec="seconds")
            metadata: dict[str, Any] = {"remembered": remembered_at, "answers": {}, "why": hit.why}
            blocks[location] = KnowledgeMemoryBlock(
                timestamp=now - timedelta(microseconds=len(blocks)),
                id=location,
                topic=hit.key,
                location=location,
                relevance_score=hit.similarity or min(1.0, hit.score),
                metadata={"origin": "agent", **metadata, "tokens": hive.count_tokens(hit.content)},
            )
        if hit.confidence is not None:
            metadata = blocks[location].metadata
            metadata["why"] = metadata["why"] if metadata["answers"] else hit.confidence.reason
            metadata["answers"][question] = round(hit.confidence.value, 2)
    fitting_blocks = []
    for block in blocks.values():
        if block.metadata["tokens"] <= remaining_tokens:
            remaining_tokens -= block.metadata["tokens"]
            fitting_blocks.append(block)
    return fitting_blocks


def content_sources(hive: Parts) -> dict[str, Source]:
    """Return, by the prefix of a block's location, the function that loads the block: a memory, a part of a document, or a
    passage.

    The function gets the rest of the location and `max_tokens`, to which it shortens the content (None: no limit).
    """

    def memory(reference: str, max_tokens: int | None) -> str:
        *namespace, key = parse_namespace(reference)
        entry = hive.memory.get(namespace, key)
        if entry is None:
            raise UserError("the memory was deleted meanwhile")
        return entry.content if max_tokens is None else shorten(entry.content, hive.count_tokens, max_tokens)

    def part(node_id: str, max_tokens: int | None) -> SourceContent:
        room = _PART_TOKENS if max_tokens is None else min(max_tokens, _PART_TOKENS)
        excerpt = hive.documents.shown(node_id, room)
        return SourceContent(excerpt.text, excerpt.form)

    def passage(reference: str, max_tokens: int | None) -> SourceContent:
        node_id, _, span = reference.rpartition(":")
        text = hive.knowledge.passage_at(node_id)[slice(*map(int, span.split("-")))]
        if max_tokens is None or hive.count_tokens(text) <= max_tokens:
            return SourceContent(text, "full")
        return part(node_id, max_tokens)

    return {SOURCE: memory, DOCUMENTS: part, PASSAGE: passage}


def relevant_blocks(
    hive: Parts,
    agent: str,
    focus: Focus,
    questions: Sequence[str],
    text_of: Callable[[MemoryBlock], str],
    factor: Callable[[MemoryBlock], float],
) -> tuple[list[KnowledgeMemoryBlock], list[KnowledgeMemoryBlock]]:
    """Return what the hive knows about a task: the relevant blocks, and the best of the others.

    Blocks are passages, notes, memories, and results of earlier tasks that landed in the task's files. A block is relevant if its
    confidence is high enough. Its learned `factor` raises the confidence if it is above 1, and excludes the block if it is below
    `SUNK`. Relevant blocks come surest first; `text_of` returns a block's text, which is listed once.

    Copies of the project's files are not searched, because the agent has those files.
    """
    projects = [] if focus.work is None else focus.work.projects
    results, copies = earlier_results(hive, projects, focus.text), _copies(hive, projects)
    documents, _ = document_blocks(hive, focus, questions, results, without=copies, limit=_MAX_NEAR)
    rankings, others = list[list[KnowledgeMemoryBlock]](), list[KnowledgeMemoryBlock]()
    for blocks, least in ((documents, RELEVANT), (memory_blocks(hive, agent, questions), RELEVANT_MEMORY)):
        rankings.append([])
        for block in sorted(blocks, key=lambda block: -confidence_of(block).value):
            confidence, share = confidence_of(block).value, factor(block)
            is_relevant = share >= SUNK and confidence * max(1.0, share) >= least
            (rankings[-1] if is_relevant else others).append(block)
    relevant = merge_hits(
        rankings, _MAX_RELEVANT, confidence=confidence_of, text=text_of,
        origin=lambda block: block.metadata.get("path") or block.id,
    )  # fmt: skip
    others = [block for block in others if confidence_of(block).value]
    return relevant, sorted(others, key=lambda block: -confidence_of(block).value)[:_MAX_NEAREST]


def _copies(hive: Parts, projects: Sequence[Project]) -> list[str]:
    """Return the documents that are copies of a file of a project. Only documents of the same size as a file there are read."""
    sizes = {size for project in projects for size in project.sizes}
    paths = {path: hive.layout.root / path for path, size in hive.knowledge.sizes().items() if size in sizes}
    return [
        name
        for name, path in paths.items()
        if path.is_file() and any(project.contains(path.read_bytes()) for project in projects)
    ]


def confidence_of(block: MemoryBlock) -> Confidence:
    return Confidence(max(block.metadata.get("answers", {}).values(), default=0.0), "")


def document_blocks(
    hive: Parts,
    focus: Focus,
    questions: Sequence[str],
    more_files: Sequence[str] = (),
    *,
    without: Collection[str] = (),
    limit: int = PER_QUESTION,
) -> tuple[list[KnowledgeMemoryBlock], bool]:
    """Return blocks for the quotable passages that answer the questions, at most `limit` per question. The second value is True
    if one of the best passages was left out because somebody called it wrong.

    The passages are from knowledge/ (but not from the files `without`), from the task's attachments and from `more_files`. Better
    passages get newer timestamps: of two blocks with equal scores the newer is selected first.
    """
    if not questions:
        return [], False
    hive.knowledge.sync(extra=[*focus.attachments, *more_files])
    scope = [hive.layout.knowledge, *focus.attachments, *map(Path, more_files)]
    blocks: dict[str, KnowledgeMemoryBlock] = {}
    now, is_left_out = datetime.now(UTC), False
    plan = {question.text: question for question in plan_steps(focus.title, focus.text)}
    for question in questions:
        planned = plan.get(question, Question(question))
        search = partial(
            hive.knowledge.search_completely, planned.search_text, limit, context=planned.context, without=without
        )
        passages, is_wrong_among_best = search(scope)
        if focus.attachments:
            attached = search(focus.attachments)[0] or hive.knowledge.beginnings(focus.attachments, limit)
            passages = _with_attachments_first(hive, planned.search_text, passages, attached)
        is_left_out |= is_wrong_among_best
        best_score = max((passage.score for passage in passages), default=0.0)
        for rank, passage in enumerate(passages):
            block = _passage_block(passage, question, best_score, now - timedelta(microseconds=rank), hive.count_tokens)
            merged_block = blocks.setdefault(block.id, block)
            merged_block.metadata["answers"] |= block.metadata["answers"]
        for block in [*_note_blocks(hive, question, scope, now), *_part_blocks(hive, passages, now)]:
            merged_block = blocks.setdefault(block.id, block)
            merged_block.metadata.get("answers", {}).update(block.metadata.get("answers", {}))
    return list(blocks.values()), is_left_out


def _with_attachments_first(
    hive: Parts, question: str, passages: list[Passage], attached: list[Passage]
) -> list[Passage]:
    """Put the passages of a task's own attachments first that have all words of the question, unless another is sure; they
    are at least likely. If nothing answers, the nearest of them comes first."""
    level = passages[0].confidence.level if passages else "weak"
    if level == "sure" or not attached:
        return passages
    first = [
        replace(
            passage,
            confidence=Confidence(max(1.0, passage.confidence.value), f"{passage.confidence.reason}; it is attached"),
        )
        for passage in attached
        if _has_all_words(hive, passage, question)
    ] or attached[: level == "weak"]
    nodes = {passage.node_id for passage in first}
    others = [passage for passage in passages if passage.node_id not in nodes]
    best_score = max((passage.score for passage in others), default=0.0) + 1.0
    return [*(replace(passage, score=best_score) for passage in first), *others]


def _has_all_words(hive: Parts, passage: Passage, question: str) -> bool:
    """Check that a passage and the name of its file have all words of a question that are not generic. Words for an
    attachment count as its name."""
    words = " ".join(word for word in significant_words(question) if word not in GENERIC_WORDS)
    text = " ".join((passage.text, *passage.titles, os.path.basename(passage.path), _ATTACHMENT_WORDS))
    return bool(words) and hive.memory.coverage(words, text) == 1


def _note_blocks(hive: Parts, question: str, scope: Sequence[Path], now: datetime) -> list[KnowledgeMemoryBlock]:
    """Return the notes on documents in `scope` that answer a question. No file has their text, so they are quoted like
    memories."""
    blocks = []
    for node, confidence in hive.documents.notes(question, PER_QUESTION):
        if confidence.level != "weak" and hive.knowledge.is_among(node.id, scope):
            root = hive.documents.source(hive.documents.root_of(node.id).id)
            path = f"{root.path} note {node.id}" if root else None
            block = _node_block(node, now, confidence.reason, node.token_count, path)
            block.metadata |= {"remembered": node.updated_at, "answers": {question: round(confidence.value, 2)}}
            blocks.append(block)
    return blocks


def _part_blocks(hive: Parts, passages: Sequence[Passage], now: datetime) -> list[KnowledgeMemoryBlock]:
    """Return a block for each part of a document that contains several passages, because the whole part then matters."""
    nodes = [hive.documents.find(passage.node_id) for passage in passages]
    parents = Counter(node.parent_id for node in nodes if node is not None)
    blocks = []
    for parent_id, count in parents.most_common(_PARTS):
        node = None if parent_id is None or count < 2 else hive.documents.find(parent_id)
        if node is not None:
            source, tokens = hive.documents.source(node.id), hive.documents.size(node.id)[1]
            reason = f"it contains {count} of the passages"
            blocks.append(_node_block(node, now, reason, tokens, source.path if source else None))
    return blocks


def _node_block(node: Node, now: datetime, reason: str, tokens: int, path: str | None) -> KnowledgeMemoryBlock:
    """Return a block for a part of a document: a node and its descendants, which have `tokens` tokens. `reason` says why it is
    shown."""
    return KnowledgeMemoryBlock(
        timestamp=now,
        id=f"knowledge:{DOCUMENTS}:{node.id}",
        topic=title_of(node),
        location=f"{DOCUMENTS}:{node.id}",
        relevance_score=0.0,
        priority=Priority.LOW,
        metadata={"path": path, "tokens": min(_PART_TOKENS, tokens), "why": reason},
    )


def graph_blocks(hive: Parts, agent: str, question: str, *, allow_stale: bool = False) -> list[ContextMemoryBlock]:
    """Return the nodes of task graphs that answer a question, folded ones too, if they are published or in the agent's lane.

    With `allow_stale`, the search skips the update of the index from the graphs of active tasks. Decisions and notes count as
    answers, unless the title is a question.
    """
    lanes = (SHARED, hive.agents[agent].lane or f"agent/{agent}")
    search_result = hive.graph_index.find(question, limit=_NODES, quick=allow_stale)
    blocks = []
    for hit in {hit.text: hit for hit in search_result.hits if hit.lane in lanes}.values():
        is_answer = hit.kind in _ANSWERING and not hit.title.rstrip().endswith("?")
        metadata = {
            "path": f"{hit.path} node {hit.node_id}", "origin": "agent", "why": hit.confidence.reason, "task": hit.task,
            "answers": {question: round(hit.confidence.value, 2)} if is_answer else {},
        }  # fmt: skip
        block_id, score = f"graph:{hit.task}:{hit.node_id}", min(1.0, hit.score)
        block = ContextMemoryBlock(
            id=block_id, context_type="graph", summary=hit.text, confidence=score, metadata=metadata
        )
        blocks.append(block)
    return blocks


def _passage_block(
    passage: Passage, question: str, best_score: float, timestamp: datetime, count: Callable[[str], int]
) -> KnowledgeMemoryBlock:
    citation, span = passage.cite(), "-".join(map(str, passage.quote))
    lines = f"{citation.start_line}-{citation.end_line}"
    return KnowledgeMemoryBlock(
        timestamp=timestamp,
        id=f"knowledge:{passage.path}:{lines}#{passage.node_id}.{passage.quote[0]}",
        topic=passage.titles[-1] if passage.titles else passage.path,
        subtopic=passage.titles[-2] if len(passage.titles) > 1 else None,
        location=f"{PASSAGE}:{passage.node_id}:{span}",
        relevance_score=min(1.0, passage.score / best_score) if best_score > 0 else 0.5,
        metadata={
            "path": passage.path, "lines": lines, "citation": asdict(citation),
            "answers": {question: round(passage.confidence.value, 2)}, "why": passage.confidence.reason,
            "tokens": count(citation.text),
        },
    )  # fmt: skip
