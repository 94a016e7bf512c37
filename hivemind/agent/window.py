"""The context window of a turn: the content of each request, and the tokens that a request may have."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from hivemind.agent.opening import RENDERER, escaped, system_message
from hivemind.agent.working_memory import WorkingMemory
from hivemind.config import AgentConfig, key_location
from hivemind.errors import UserError
from hivemind.minds import ToolSchema
from hivemind.minds.pictures import PICTURE_TOKENS
from hivemind.presence.parts import Parts
from hivemind.taskrun.conversation import Conversation
from hivemind.tasks import Task
from hivemind.tools import Tool

SELECTION_SHARE, MAX_SELECTION_TOKENS = 0.3, 1_000
"""The share of an opening that the selection may have, and its tokens at most. The rest can be recalled."""
FULL_SHARE, OPENING_SHARE = 0.75, 0.5
"""The shares of `max_tokens` that end an epoch, and that an opening may have."""
MIN_ROOM = 512


@dataclass
class ContextWindow:
    """The requests of one turn: system message, tools, and the conversation `talk`.

    The system message is the same for every task, until a rule of the hive is changed. It is read once a turn.
    `model_limit` is set if a request about this task was too long for the model.
    """

    hive: Parts
    name: str
    tools: Mapping[str, Tool]
    memory: WorkingMemory
    count: Callable[[str], int]
    talk: Conversation
    task: Task | None
    model_limit: int | None = None

    def __post_init__(self) -> None:
        limits = (self.config.max_tokens, self.model_limit, None if self.task is None else self.task.max_tokens)
        self.max_tokens = min(limit for limit in limits if limit is not None)

    @property
    def config(self) -> AgentConfig:
        return self.hive.agents[self.name]

    @cached_property
    def system(self) -> str:
        return system_message(self.name, self.config, self.tools, self.memory.rom())

    @cached_property
    def schemas(self) -> list[ToolSchema]:
        return [tool.schema() for tool in self.tools.values()]

    @cached_property
    def fixed_tokens(self) -> int:
        """The tokens of the system message and the tools."""
        return self.count(self.system) + self.count(json.dumps(self.schemas))

    @property
    def tokens(self) -> int:
        """The tokens of a request with the conversation so far."""
        messages = self.talk.messages
        text_tokens = sum(self.count(message.text) for message in messages[1:])
        calls = [call for message in messages for call in message.calls]
        call_tokens = sum(self.count(json.dumps(call.as_record())) for call in calls)
        picture_tokens = sum(len(message.parts) for message in messages) * PICTURE_TOKENS
        return self.fixed_tokens + text_tokens + call_tokens + picture_tokens

    @property
    def is_full(self) -> bool:
        """True if the conversation is so long that a new epoch is due."""
        limit, fixed_tokens = self.max_tokens, self.fixed_tokens
        if fixed_tokens < OPENING_SHARE * limit:
            return self.tokens > FULL_SHARE * limit
        return self.tokens - fixed_tokens > FULL_SHARE * (limit - fixed_tokens)

    @property
    def opening_room(self) -> int:
        """The tokens that an opening may have. Raises UserError, with the setting to change, if there are too few."""
        limit, fixed_tokens = self.max_tokens, self.fixed_tokens
        if limit - fixed_tokens >= MIN_ROOM:
            return max(MIN_ROOM // 2, int(limit * OPENING_SHARE) - fixed_tokens)
        layout = self.hive.layout
        location = key_location(layout, self.name, "max_tokens")
        if self.task is not None and self.task.max_tokens == limit:
            location = layout.relative(self.task.path / "task.md")
        raise UserError(
            f"max_tokens: {limit} leaves no room for a turn: tools and rules alone have {fixed_tokens} tokens",
            location=location, remedy=f"at least {fixed_tokens + MIN_ROOM}, or fewer tools in the agent's file",
        )  # fmt: skip

    @property
    def selection_room(self) -> int:
        """The tokens that the selection in an opening may have."""
        return min(MAX_SELECTION_TOKENS, int(self.opening_room * SELECTION_SHARE))

    @property
    def shape(self) -> str:
        """A digest of the system message, the tools, the mind and the form of openings. An epoch ends when it changes."""
        parts = [self.system, self.schemas, self.config.mind, RENDERER]
        return hashlib.sha256(json.dumps(parts, default=str).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def shorten(self) -> None:
        """Limit the conversation to half of its present tokens, because a request was too long for the model."""
        half = (self.tokens - self.fixed_tokens) // 2
        self.max_tokens = min(self.max_tokens, self.fixed_tokens + max(MIN_ROOM, half))

    def known_text_test(self) -> Callable[[str], bool]:
        """Return a function that tells whether the mind has read or written a text in this conversation."""
        texts: list[str] = []
        for message in self.talk.messages:
            texts += [message.text, *(str(value) for call in message.calls for value in call.arguments.values())]
        return lambda content: any(form in text for form in {content.strip(), escaped(content)} for text in texts)
