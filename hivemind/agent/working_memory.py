"""An agent's working memory: the blocks that it may recall, and the selection of those worth their tokens.

It is used at the start of an epoch, by the tool `recall`, and by minds that work by rule.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hivemind.agent import knowledge
from hivemind.agent.opening import materials
from hivemind.agent.relevance import Relevance
from hivemind.boundary import Unreadable
from hivemind.documents import describe_gap
from hivemind.frozen import frozen
from hivemind.fs import DamagedRecord, set_aside
from hivemind.layout import Layout
from hivemind.mail import Message
from hivemind.masking import mask
from hivemind.memory import (
    ContentLoader,
    ContextBuilder,
    FileMemoryBlock,
    MemoryBlock,
    MemorySelector,
    MessageMemoryBlock,
    RelevanceScorer,
    Selection,
    WorkingMemoryManager,
)
from hivemind.memory.blocks import context_entry
from hivemind.memory.selection import Choice
from hivemind.names import is_name
from hivemind.presence.parts import Parts
from hivemind.taskrun.focus import Focus
from hivemind.taskrun.quote_check import is_citation_check

Entry = Mapping[str, Any]
_LEFT_OUT = "Quotes that were called wrong are left out."
_MAX_REJECTED = 20
_MAX_LETTERS = 100  # the newest are candidates for an opening; older ones are in the mailbox


@frozen
class SelectedMemory:
    """A selection for a question: its entries (id, content, metadata), and why each block was selected or rejected.

    `nearest` are the best of the blocks that were not relevant enough.
    """

    entries: Sequence[Entry]
    selection: Selection
    explain: Callable[[MemoryBlock], dict[str, float]]
    relevance: Relevance
    nearest: Sequence[MemoryBlock] = ()

    @property
    def ranking(self) -> list[tuple[bool, Choice]]:
        """The choices, each with True if it became an entry: entries first, then the others, each group by falling score."""
        inside = {str(entry["id"]) for entry in self.entries}
        choices = sorted(self.selection, key=lambda choice: (choice.id not in inside, -choice.score, choice.id))
        return [(choice.id in inside, choice) for choice in choices]

    @property
    def blocks(self) -> list[MemoryBlock]:
        """The selected blocks, best first."""
        return [choice.block for is_in, choice in self.ranking if is_in]

    def reasons(self) -> list[dict[str, Any]]:
        """Return the selected blocks and the best rejected ones, each with score, tokens and reason."""
        rows = [
            {
                "id": choice.id,
                "score": round(choice.score, 4),
                "tokens": choice.tokens,
                "in": is_in,
                "why": choice.reason,
            }
            for is_in, choice in self.ranking
        ]
        return rows[: len(self.entries) + _MAX_REJECTED]


class WorkingMemory:
    """One agent's blocks, saved when it is idle. With `read_only` no file is written (previews)."""

    def __init__(self, hive: Parts, name: str, *, read_only: bool = False) -> None:
        self._hive, self._name, self._read_only = hive, name, read_only
        self._config = hive.agents[name]
        self._path = hive.layout.agent_state(name) / "working-memory.json"
        self.blocks = self._saved()
        self._stamps: dict[str, str] = {}  # of the databases at the last selection, by focus
        self.scorer = RelevanceScorer()
        roots, sources = hive.config.read_roots(hive.layout), knowledge.content_sources(hive)
        self._loader = ContentLoader(hive.layout.root, roots=roots, sources=sources)
        self._selector = MemorySelector(hive.count_tokens, self.scorer, locate=self._loader.path_of, render=materials)
        self._builder = ContextBuilder(self._loader, token_counter=hive.count_tokens, render=materials)

    def _saved(self) -> WorkingMemoryManager:
        if not self._path.exists():
            return WorkingMemoryManager(self._config.max_tokens)
        try:
            return WorkingMemoryManager.load(self._path)
        except (Unreadable, DamagedRecord):  # its content can be sensed again
            if not self._read_only:
                set_aside(self._path)
            return WorkingMemoryManager(self._config.max_tokens)

    # for minds

    def rom(self) -> list[tuple[str, str]]:
        """Return the path and the text of each file with instructions for this agent."""
        blocks = rom_blocks(self._hive, self._name, self._config.rom)
        return [
            (block.location, content.content)
            for block, content in zip(blocks, self._loader.load_many(blocks), strict=True)
        ]

    def answer_entries(self, focus: Focus, questions: Sequence[str]) -> tuple[Sequence[Entry], str]:
        """Return all that the hive knows about the questions, unshortened, for a mind that works by rule.

        The second value has sentences on what the search left out, or is "" if the search was complete."""
        nodes = [
            node
            for question in questions
            for node in knowledge.graph_blocks(self._hive, self._name, question, allow_stale=True)
        ]
        foreign_nodes = [node for node in nodes if focus.work is None or node.metadata["task"] != focus.id]
        documents, is_left_out = knowledge.document_blocks(self._hive, focus, questions)
        blocks = [*documents, *knowledge.memory_blocks(self._hive, self._name, questions), *foreign_nodes]
        entries = [
            context_entry(block, content.content, form=content.form or "full", is_external=content.is_external)
            | ({} if content.error is None else {"content": ""})
            for block, content in zip(blocks, self._loader.load_many(blocks), strict=True)
        ]
        gaps = [
            describe_gap(*self._hive.documents.embedded_counts()) if questions else "",
            _LEFT_OUT if is_left_out else "",
        ]
        for question in questions:
            near = [entry for entry in entries if question in entry["metadata"].get("answers", {})]
            if all(entry["metadata"]["answers"][question] < 1 for entry in near):
                texts = [str(entry["content"]) for entry in near]
                gaps.append(self._hive.documents.language_gap(question, texts))
        return entries, " ".join(filter(None, dict.fromkeys(gaps)))

    def select(
        self, focus: Focus, questions: Sequence[str], tokens: int, is_known: Callable[[str], bool] = lambda _: False
    ) -> SelectedMemory:
        """Return the content of an opening: texts relevant to the task, and its letters. Leave out texts for which `is_known` is
        true."""
        self.has_news(focus)
        relevance = Relevance(self._hive, focus)
        load, factor = self._loader.load_content, relevance.factor
        relevant, nearest = knowledge.relevant_blocks(self._hive, self._name, focus, questions, load, factor)
        letters = [block for block in self.blocks if focus.id and block.metadata.get("task") == focus.id]
        self.scorer.model = relevance.factor if relevance.is_on else None
        entries, selection = self._select_from([*relevant, *letters], questions, tokens, is_known)
        return SelectedMemory(entries, selection, self.scorer.explain, relevance, nearest)

    def has_news(self, focus: Focus) -> bool:
        """Return True if documents or memories may have changed since the last call or selection for the focus."""
        self._hive.knowledge.sync(extra=focus.attachments)
        stores_stamp = stamp_of_stores(self._hive.layout)
        previous_stamp, self._stamps[focus.id] = self._stamps.get(focus.id), stores_stamp
        return stores_stamp != previous_stamp

    def recall(self, focus: Focus, question: str, tokens: int, is_known: Callable[[str], bool]) -> Sequence[Entry]:
        """Return the entries that answer a question, from all blocks and graph nodes, within `tokens` tokens.

        Texts for which `is_known` is true are left out and make room for other entries.
        """
        nodes = knowledge.graph_blocks(self._hive, self._name, question)
        documents, _ = knowledge.document_blocks(self._hive, focus, [question])
        memories = knowledge.memory_blocks(self._hive, self._name, [question])
        blocks = [*documents, *memories, *nodes, *self._blocks_about(question)]
        self.scorer.model = None  # the mind has asked
        return self._select_from(blocks, [question], tokens, is_known)[0]

    def _select_from(
        self, blocks: Iterable[MemoryBlock], questions: Sequence[str], tokens: int, is_known: Callable[[str], bool]
    ) -> tuple[Sequence[Entry], Selection]:
        """Score the blocks, select as many as fit into `tokens`, and load their contents. Return the entries and the
        selection. Texts for which `is_known` is true are removed, and the selection is repeated. Of two blocks with one id the
        later counts."""
        remaining = {block.id: block for block in blocks}
        self.scorer.task_keywords = set(" ".join(questions).lower().split())
        while True:
            selection = self._selector.select(remaining.values(), tokens)
            entries = self._builder.build_context(selection, tokens)
            known_ids = [
                str(entry["id"]) for entry in entries if entry["id"] in remaining and is_known(str(entry["content"]))
            ]
            if not known_ids:
                return entries, selection
            for known_id in known_ids:
                del remaining[known_id]

    def _blocks_about(self, question: str) -> list[MemoryBlock]:
        """Return the kept blocks, mainly letters, that contain half of the question's words."""
        blocks = list(self.blocks)
        return [
            block
            for block, content in zip(blocks, self._loader.load_many(blocks), strict=True)
            if self._hive.memory.coverage(question, f"{getattr(block, 'subject', '')}\n{content.content}")
            >= knowledge.ABOUT
        ]

    # kept blocks

    def keep_message(self, message: Message) -> None:
        """Keep a letter as one block, even if the process dies: it is saved before the letter counts as taken in.

        Requests to check sources, and their verdicts, become no block. Blocks of letters about ended tasks are removed.
        """
        if is_citation_check(message, self._hive.config.workspace):
            return
        block = _message_block(message)
        block.read = True
        previous_block = self.blocks.get(block.id)
        if not (isinstance(previous_block, MessageMemoryBlock) and previous_block.read):
            self.blocks.add_memory(block)
            letters = [block for block in self.blocks if isinstance(block, MessageMemoryBlock)]
            letters.sort(key=lambda letter: (letter.timestamp, letter.id))
            ended = [letter for letter in letters if letter is not block and self._is_over(letter.metadata.get("task"))]
            open_letters = [letter for letter in letters if letter not in ended]
            for letter in (*ended, *open_letters[:-_MAX_LETTERS]):
                self.blocks.remove_memory(letter.id)
            self.save()

    def _is_over(self, task: object) -> bool:
        return isinstance(task, str) and is_name(task) and self._hive.tasks.listing.outcome(task) is not None

    def forget_task(self, task_id: str) -> None:
        """Remove the letters of a task that has ended."""
        for block in list(self.blocks):
            if block.metadata.get("task") == task_id:
                self.blocks.remove_memory(block.id)

    def save(self) -> None:
        """Save the blocks, if they have changed."""
        if not self._read_only:
            self.blocks.save(self._path)


def stamp_of_stores(layout: Layout) -> str:
    """Return a stamp of the database files that changes with each write, or "" if no database exists."""
    stats = []
    for base in (layout.documents_db, layout.memory_db, layout.graphs_db):
        for path in (f"{base}", f"{base}-wal"):
            with suppress(FileNotFoundError):
                stat = os.stat(path)
                stats.append(f"{stat.st_ino}:{stat.st_size}:{stat.st_mtime_ns}")
    return " ".join(stats)


def _message_block(message: Message) -> MessageMemoryBlock:
    """Return the block of a letter. Its id is the Message-ID: a letter that is taken in twice makes one block."""
    metadata: dict[str, Any] = {"task": message.task, "in_reply_to": message.in_reply_to}
    if message.automatic:
        metadata["automatic"] = True
    origin = message.origin
    if origin != "agent":
        metadata["origin"] = origin
    return MessageMemoryBlock(
        from_agent=message.sender,
        to_agent=message.box,
        subject=mask(message.subject),
        preview=mask(message.preview),
        full_path=message.path,
        message_id=message.id,
        timestamp=message.date,
        metadata={key: value for key, value in metadata.items() if value is not None},
    )


def rom_blocks(hive: Parts, agent: str, extra: Iterable[str]) -> list[FileMemoryBlock]:
    """Return the instructions that an agent always sees: rom/*.md and rom/<agent>/*.md (but no README.md), and the `extra`
    files."""
    layout = hive.layout
    paths: list[Path] = []
    for folder in (layout.rom, layout.rom / agent):
        if folder.is_dir():
            paths += sorted(path for path in folder.glob("*.md") if path.name != "README.md" and path.is_file())
    paths += [Path(os.path.join(layout.root, name)) for name in extra]
    return [FileMemoryBlock.rom(layout.relative(path)) for path in dict.fromkeys(paths)]
