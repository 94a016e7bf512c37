"""Arguments that many commands take."""

from __future__ import annotations

from typing import Annotated

from hivemind.cli.command import Arg

__all__ = ["AgentName", "Box", "MessageId", "NodeName", "Person", "TaskId", "TaskIds"]

TaskId = Annotated[str, Arg("the task's id", "TASK", completes="tasks")]
TaskIds = Annotated[list[str], Arg("the task's id", "ID", completes="tasks")]
AgentName = Annotated[str, Arg("the agent", "NAME", completes="agents")]
Person = Annotated[str, Arg("for whom: an agent, or human (default)", "NAME", completes="mailboxes")]
Box = Annotated[str, Arg("whose mailbox (default: human, yours)", "BOX", completes="mailboxes", default="human")]
MessageId = Annotated[str, Arg("the message's id, as `mail list` shows it", "ID")]
NodeName = Annotated[str, Arg("a node's id, or PATH or PATH:LINE of a file", "NODE", completes="files")]
