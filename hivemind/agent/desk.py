"""The desk: an agent's working memory, and the context that is laid out on it for one turn."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from typing import Any

from hivemind.agent.act import Acted
from hivemind.agent.capsule import capsule_entry
from hivemind.agent.digests import entry_digests
from hivemind.agent.recall import document_sources, questions_of, recall
from hivemind.agent.remembering import SOURCE, memory_source, retrieve
from hivemind.agent.required_blocks import Essentials, forget_others, place_essentials
from hivemind.agent.sense import message_block, rom_blocks, status_blocks, task_blocks
from hivemind.agent.usage import Usages
from hivemind.boundary import Unreadable
from hivemind.config import place_of_key
from hivemind.errors import UserError
from hivemind.fs import LogDamaged
from hivemind.masking import masked
from hivemind.memory import (
    ContentLoader,
    ContextMemoryBlock,
    HistoryMemoryBlock,
    MemoryBlock,
    MemoryCycle,
    MemoryJanitor,
    MemoryType,
    MessageMemoryBlock,
    Priority,
    RelevanceScorer,
    Selection,
    TaskMemoryBlock,
    WorkingMemoryManager,
)
from hivemind.memory.entry import piece
from hivemind.memory.loading import Source
from hivemind.memory.weighing import Weigher
from hivemind.minds import Mind, Thought, ToolSchema, Usage
from hivemind.presence.agent_log import AgentLog
from hivemind.presence.parts import Parts
from hivemind.taskrun.focus import Focus
from hivemind.taskrun.task_run import TaskRun
from hivemind.views import resume, snapshot

__all__ = ["Desk"]

_TIDY_ABOVE = 200
_LOGGED_OUT = 20
_ALL_LOGGED = 2000
_CAPSULE_BYTES = 4000
_VIEW_BYTES = 12_000
_VIEW_SHARE = 0.2
_BYTES_A_TOKEN = 3
_LEAST_ROOM = 512  # tokens, for what a turn is about


class Desk:
    """Blocks in, context out. Saved when the agent rests, so that a restart remembers what it had in mind.

    The mind of `usages` keeps the conversations of tasks, where it can. With `looking` nothing is written: for a preview.
    """

    def __init__(
        self,
        hive: Parts,
        name: str,
        schemas: Sequence[ToolSchema],
        usages: Usages | None = None,
        *,
        looking: bool = False,
    ) -> None:
        self._hive, self._name = hive, name
        self._usages, self._looking = usages, looking
        self._config = hive.agents[name]
        self._folder = hive.layout.agent_state(name)
        self._schemas = schemas
        self.memory = self._remembered()
        self.scorer = RelevanceScorer()
        sources: dict[str, Source] = {
            SOURCE: memory_source(lambda: hive.memory, hive.count_tokens),
            **document_sources(hive),
        }
        loader = ContentLoader(hive.layout.root, roots=hive.config.read_roots(hive.layout), sources=sources)
        self._weigher = Weigher(hive.count_tokens, loader.path_of)
        self._turn = MemoryCycle(self.memory, loader, token_counter=hive.count_tokens, scorer=self.scorer)
        self._janitor = MemoryJanitor(
            task_ended=lambda task: not (hive.layout.active / task).is_dir(),
            file_exists=lambda location: os.path.exists(loader.path_of(location)),
        )
        self._cycle = 0
        self._passing: list[str] = []
        self._context: list[dict[str, Any]] = []
        self._chosen: list[dict[str, Any]] = []
        self._essentials: Essentials | None = None
        self.selection: Selection | None = None
        self.budget = self._config.max_tokens
        self.tokens = 0
        self._most: int | None = None
        self.used = Usage()  # what the last turn has used, its memory's own questions among it

    @cached_property
    def _schema_tokens(self) -> int:
        """Counted when a context is first laid out: an agent that has nothing to do never needs it."""
        return self._hive.count_tokens(json.dumps(list(self._schemas)))

    def _remembered(self) -> WorkingMemoryManager:
        path = self._folder / "memory"
        if not path.exists():
            return WorkingMemoryManager(self._config.max_tokens)
        try:
            return WorkingMemoryManager.load(path)
        except (
            Unreadable,
            LogDamaged,
        ):  # half a write: it only held what can be sensed again; kept for whoever wants to look
            if not self._looking:
                path.rename(path.with_name(f"memory.damaged-{time.time_ns()}"))
            return WorkingMemoryManager(self._config.max_tokens)

    def shorten(self) -> None:
        """From now on contexts have at most half the entries of the last one (in tokens; the tools' schemas stay)."""
        self._most = self._schema_tokens + (self.tokens - self._schema_tokens) // 2

    def _mind(self, work: TaskRun) -> Mind | None:
        return None if self._usages is None else self._usages.mind_of(work)

    # laying out

    def lay_out(self, focus: Focus, works: Collection[TaskRun]) -> list[dict[str, Any]]:
        """The context for a turn: recall, score, select, build.

        Writes what is folded of the task's conversation, nothing else. Raises UserError if ROM alone is too much, Parking
        if what is to be folded is in another agent's hands.
        """
        self._cycle += 1
        now = datetime.now(UTC)
        self._place(focus, works, now)
        questions = " ".join(questions_of(focus))
        self.scorer.task_keywords = set(questions.lower().split())
        self.budget = min(self._config.max_tokens, self._task_bound(focus), self._most or self._config.max_tokens)
        capsule = self._look(focus)
        room = self._room(focus, capsule)
        self._essentials = None if focus.work is None else self._stand(focus.work, focus, room)
        turn = self._turn.run(self.budget, reserved=self._schema_tokens, first=[capsule], now=now)
        self._context, self.selection = turn.context, turn.selection
        self._chosen = self._choices(turn.selection)
        self.tokens = self._hive.count_tokens(json.dumps(self._context)) + self._schema_tokens
        return self._context

    def _look(self, focus: Focus) -> dict[str, Any]:
        """The capsule as a context entry; the rest of the agent's view of its task becomes a block."""
        if focus.work is None:
            answer = snapshot(self._hive, agent_id=self._name, context_budget=_CAPSULE_BYTES)
        else:
            task = focus.work.task
            view = task.view or self._config.view
            room = max(0, self.budget - self._schema_tokens) * _VIEW_SHARE * _BYTES_A_TOKEN
            answer = resume(
                self._hive, agent_id=self._name, task=task.id, view=view, graph=focus.work.trail.store,
                context_budget=min(_VIEW_BYTES, _CAPSULE_BYTES + int(room)),
            )  # fmt: skip
        capsule = answer.pop("capsule")
        answer.pop("steps", None)  # they stand in every context anyway, all of them
        if focus.work is None:
            capsule["where"]["target"] = focus.target
            capsule["next"]["primary"] = focus.next_call()
        elif answer.get("cards"):
            rest = json.dumps(answer, ensure_ascii=False)
            told = {"task_id": focus.id}
            self.memory.add_memory(
                ContextMemoryBlock(
                    id=f"context:view:{focus.id}",
                    context_type="view",
                    summary=rest,
                    metadata=told,
                    priority=Priority.LOW,
                )
            )
        return capsule_entry(capsule)

    def _room(self, focus: Focus, capsule: dict[str, Any]) -> int:
        """The tokens left for what the turn is about. Raises UserError that names the budget which leaves too few."""
        fixed = self._schema_tokens + self._hive.count_tokens(piece(capsule))
        fixed += sum(self._weigher.tokens(block) for block in self.memory.blocks_by_type(MemoryType.ROM))
        if self.budget - fixed >= _LEAST_ROOM:
            return self.budget - fixed
        if self.budget == self._most:
            where = "what the mind takes at most"
        elif focus.work is not None and self.budget == focus.work.task.max_tokens:
            where = self._text_of(focus.work)
        else:
            where = place_of_key(self._hive.layout, self._name, "max_tokens")
        raise UserError(
            f"max_tokens: {self.budget} leaves no room for a turn: tools, capsule and ROM alone have {fixed} tokens",
            where=where, mend=f"at least {fixed + _LEAST_ROOM}, or fewer tools in the agent's file",
        )  # fmt: skip

    def _text_of(self, work: TaskRun) -> str:
        path = work.task.path
        return self._hive.layout.relative(path / ("task.md" if (path / "task.md").exists() else "task.yaml"))

    def _stand(self, work: TaskRun, focus: Focus, room: int) -> Essentials:
        """See to it that the context has what it must have; gives what that is."""
        conversation = work.conversation(self._mind(work), looking=self._looking)
        if focus.tool == "finish_task":
            conversation.settle()
        return place_essentials(self.memory, focus, conversation, room, self._weigher, self._text_of(work))

    def _task_bound(self, focus: Focus) -> int:
        bound = focus.work.task.max_tokens if focus.work is not None else None
        return bound or self._config.max_tokens

    def _place(self, focus: Focus, works: Collection[TaskRun], now: datetime) -> None:
        """Bring the blocks up to date: ROM, tasks, the message, statuses, what is recalled for this turn only."""
        forget_others(self.memory, focus)
        keep = {f"task:{work.task.id}" for work in works}
        for block in self.memory.blocks_by_type(MemoryType.TASK):
            if block.id not in keep:
                self.memory.remove_memory(block.id)
        passing: list[MemoryBlock] = [*rom_blocks(self._hive, self._name, self._config.rom)]
        passing += task_blocks(works, focus)
        passing += recall(self._hive, focus)
        passing += retrieve(self._hive, self._name, focus)
        counts = {str(state): count for state, count in self._hive.tasks.counts().items()}
        unread = self._hive.mail.unread(self._name)
        mailbox = {"unread": unread, "digest": self._hive.mail.digest(self._name)} if unread > 1 else {"unread": unread}
        passing += status_blocks({"mailbox": mailbox, "task_queue": counts, "system_health": self._health()}, now)
        if focus.message is not None:
            block = message_block(focus.message)
            block.metadata.update(questions=questions_of(focus), answered=focus.heard, stranger=focus.stranger)
            passing.append(block)
        for old in self._passing:
            self.memory.remove_memory(old)
        self._passing = [block.id for block in passing if block.type in (MemoryType.KNOWLEDGE, MemoryType.ROM)]
        for block in passing:
            self.memory.add_memory(block)

    def _health(self) -> dict[str, Any]:
        return {"agent": self._name, "blocks": len(self.memory), "cycle": self._cycle}

    # afterwards

    def useless(self, problem: str) -> Thought:
        """What a mind that can't be understood amounts to: no action, and the reason where the next context shows it."""
        self.memory.add_memory(HistoryMemoryBlock(action_type="think", action_detail="", result=f"error: {problem}"))
        return Thought(f"({problem})")

    def tidy(self, focus: Focus, acted: Acted, thought: Thought) -> None:
        """Results become blocks; Context blocks are derived; the turn is written to the log; the janitor comes by."""
        if focus.work is not None:
            self._forget_history(focus)
        for block in acted.blocks:
            self.memory.add_memory(block)
        self._derive(focus)
        self._log(focus, acted, thought)
        if focus.message is not None and (known := self.memory.get(f"message:{focus.message.id}")) is not None:
            assert isinstance(known, MessageMemoryBlock)
            known.read = True
            self.save()  # before the message is recorded as taken in: its block is never lost and never made twice
        if len(self.memory) > _TIDY_ABOVE or (focus.work is not None and focus.work.ended):
            self._janitor.tidy(self.memory)

    def _forget_history(self, focus: Focus) -> None:
        """What was done in the turn before stands in the task's conversation now."""
        for block in self.memory.blocks_by_type(MemoryType.HISTORY):
            if block.metadata.get("target") == focus.id:
                self.memory.remove_memory(block.id)

    def _derive(self, focus: Focus) -> None:
        """A conversation context for the message in focus (a task has its own), a project context for the task's project."""
        mine = [
            block
            for block in self.memory.blocks_by_type(MemoryType.HISTORY)
            if isinstance(block, HistoryMemoryBlock) and block.metadata.get("target") == focus.id
        ]
        if mine and focus.message is not None:
            done = ", ".join(block.action_type for block in mine[-8:])
            self.memory.add_memory(
                ContextMemoryBlock(
                    id=f"context:conversation_context:{focus.id}",
                    context_type="conversation_context",
                    summary=f"Done about {focus.id} so far: {done}",
                    related_ids=[f"{focus.kind}:{focus.id}", *(block.id for block in mine[-8:])],
                )
            )
        project = focus.work.task.project if focus.work is not None else None
        if project is not None:
            tasks = [
                block.id
                for block in self.memory.blocks_by_type(MemoryType.TASK)
                if isinstance(block, TaskMemoryBlock) and block.project == project
            ]
            self.memory.add_memory(
                ContextMemoryBlock(
                    id=f"context:project_context:{project}",
                    context_type="project_context",
                    summary=f"Project {project}: {len(tasks)} tasks in hand",
                    related_ids=tasks,
                )
            )

    def _log(self, focus: Focus, acted: Acted, thought: Thought) -> None:
        """The turn, whole: what was selected and why, what was asked, what came back, what was done."""
        digest = hashlib.sha256(json.dumps(self._context).encode()).hexdigest()
        record: dict[str, Any] = {
            "kind": "cycle",
            "time": round(time.time(), 3),
            "agent": self._name,
            "cycle": self._cycle,
            "focus": {**focus.target, "next": focus.tool, "step": focus.step.id if focus.step else None},
            "selected": self._chosen,
            "asked": {
                "mind": self._config.mind,
                "context_sha256": digest,
                "tokens": self.tokens,
                "entries": entry_digests(self._context, focus.id),
            },
            "thought": thought.text,
            "actions": list(acted.records),
        }
        if acted.parking is not None:
            record["parked"] = acted.parking.reason
        if acted.problem is not None:
            record["problem"] = acted.problem
        if left := [
            {"tool": one.tool, "arguments": dict(one.arguments)} for one in thought.actions[len(acted.records) :]
        ]:
            record["unused"] = left
        record = masked(record)
        if focus.work is not None:
            self._log_of(focus.work, record)
            focus.work.trace(record["actions"], focus.step)
        else:
            record |= self._cost(None)
            AgentLog(self._folder).note(record)

    def _log_of(self, work: TaskRun, record: dict[str, Any]) -> None:
        """A turn about a task: first into its log, then, unless it ended the task, into its graph."""
        conversation = work.conversation(self._mind(work))
        if self._essentials is not None:
            record["essentials"] = self._essentials.as_dict()
        asked = conversation.take_tokens()
        if asked and self._usages is not None and not self._usages.metered:
            self._usages.book(work, Usage(asked))
        record |= self._cost(work)
        conversation.number(record)
        work.log(record)
        if work.ended:
            work.close()
        else:
            conversation.add(record)

    def _cost(self, work: TaskRun | None) -> dict[str, Any]:
        """What the turn has used, for its record; `metered` if its requests stand in the log, too."""
        self.used = Usage() if self._usages is None else self._usages.take(work)
        told: dict[str, Any] = {"tokens": self.used.tokens, "money": self.used.money}
        if self.used.unpriced:
            told["unpriced"] = self.used.unpriced
        if self._usages is not None and self._usages.metered:
            told["metered"] = True
        return told

    def _choices(self, selection: Selection) -> list[dict[str, Any]]:
        """Each block that was chosen, and the best of those that were not: score, tokens, form, reason."""
        forms = {entry["id"]: entry["metadata"].get("form") for entry in self._context}
        # Those that are in come first. Of very many others only those that nearly went in are worth their line.
        among = selection if len(self.memory) <= _ALL_LOGGED else islice(selection, len(selection.blocks))
        rows: list[dict[str, Any]] = [
            {
                "id": choice.id,
                "score": round(choice.score, 4),
                "tokens": choice.tokens,
                "form": forms.get(choice.id),
                "why": choice.reason,
            }
            for choice in among
        ]
        inside = [row for row in rows if row["form"] is not None]
        outside = [row for row in rows if row["form"] is None]
        outside.sort(key=lambda row: (-row["score"], row["id"]))
        return inside + outside[:_LOGGED_OUT]

    def save(self) -> None:
        """Save what changed since the last time; called before mail is taken in, and when there is nothing to do."""
        self.memory.save(self._folder / "memory", durable=self._hive.config.durable)
