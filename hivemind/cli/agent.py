"""List agents, run one by itself, add one.

examples:
  hivemind agent list
  hivemind agent add writer --role writer
  hivemind agent run writer
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hivemind.cli.command import Answer, command
from hivemind.cli.opening import known_agent, look_at, open_hive
from hivemind.cli.output import table, table_lines
from hivemind.cli.text import natural, one_line

if TYPE_CHECKING:
    from hivemind.agent.preview import Preview
    from hivemind.hive import Hive

_COLUMNS = ("name", "role", "mind", "state", "pid", "task", "unread")


@command("agent list", look_at)
def agents(hive: Hive) -> Answer:
    """List the agents of the hive.

    examples:
      hivemind agent list --json
    """
    from hivemind.swarm.overview import agents_now

    found = [asdict(agent) for agent in agents_now(hive)]
    rows = sorted(found, key=lambda agent: natural(agent["name"]))
    problems = (f"{agent['name']}: {one_line(agent['problem'])}" for agent in rows if agent["problem"])
    empty = "There are no agents: hivemind agent add NAME makes one."
    return Answer(found, [*table_lines(rows, _COLUMNS, empty=empty), *problems])


@command("agent run", open_hive, own_form=True)
def run(hive: Hive, name: str) -> int:
    """Run one agent in this process, without a supervisor.

    It ends with Ctrl-C or SIGTERM: current action finished or left, leases given back.

    arguments:
      AGENT  the agent

    examples:
      hivemind agent run researcher
    """
    from hivemind.swarm.process import run_agent

    return run_agent(hive, known_agent(hive, name))


@command("agent add", open_hive)
def add(hive: Hive, name: str, *, role: str | None = None, mind: str | None = None) -> Answer:
    """Add an agent: agents/NAME.yaml and its mailbox.

    arguments:
      NAME  its name
      --role ROLE  the role that tasks may ask for
      --mind MIND  what it thinks with (default: extractive)

    examples:
      hivemind agent add writer --role writer
      hivemind agent add claude --mind 'command: ./think'
    """
    from hivemind.presence.watching import supervisor_lock
    from hivemind.swarm.recruit import add_agent

    layout, name = hive.layout, add_agent(hive, name, role=role, mind=mind)
    config = layout.agent_config(name)
    lines = [f"{layout.relative(config)} says what {name} is; its mailbox is mailboxes/{name}/."]
    if supervisor_lock(layout.locks).holder() is not None:
        lines.append(
            f"The swarm that is up does not know it yet: hivemind down && hivemind up, or hivemind agent run {name}"
        )
    return Answer({"name": name, "config": config, "mailbox": layout.mailbox(name)}, lines)


@command("context", look_at)
def context(hive: Hive, agent: str, *, why: bool = False) -> Answer:
    """Show the opening that an agent would begin a conversation with now.

    With --why: every block there was to choose from, its score and the parts that it is the product of, its
    tokens, whether it is in, and because of what.

    arguments:
      AGENT  the agent
      --why  explain the choice, block by block

    examples:
      hivemind context researcher
      hivemind context researcher --why
    """
    from hivemind.agent.preview import preview_context

    preview = preview_context(hive, known_agent(hive, agent))
    if not why:
        messages = (f"--- {one.role}\n{one.text.rstrip(chr(10))}\n" for one in preview.messages)
        return Answer([message.as_record() for message in preview.messages], [*messages, _summary(preview)])
    blocks = sorted(_choices(preview), key=lambda one: (not one["in"], -one["score"], one["block"]))
    record = {"target": preview.target, "budget": preview.budget, "tokens": preview.tokens, "blocks": blocks}
    return Answer(record, [*_why_lines(blocks), _summary(preview)])


def _summary(preview: Preview) -> str:
    target = preview.target
    about = f"for {target['kind']} {target['id']}" if target and target["id"] else "with nothing in hand"
    used = f"{preview.tokens:,} of {preview.budget:,} tokens (the tools' descriptions among them)"
    return f"{len(preview.selected.entries)} blocks selected, {used}, {about}."


def _choices(preview: Preview) -> Iterator[dict[str, Any]]:
    inside = {entry["id"] for entry in preview.selected.entries}
    for choice in preview.selected.selection:
        yield {
            "block": choice.id,
            "type": choice.block.type.value,
            "priority": choice.block.priority.name.lower(),
            "in": choice.id in inside,
            "score": choice.score,
            "parts": preview.selected.explain(choice.block),
            "tokens": choice.tokens,
            "because": choice.reason,
        }


def _why_lines(blocks: list[dict[str, Any]]) -> Iterator[str]:
    rows = [
        [one_line(one["block"]), "yes" if one["in"] else "no", f"{one['score']:.3f}", f"{one['tokens']:,}"]
        for one in blocks
    ]
    head, *lines = table([["BLOCK", "IN", "SCORE", "TOKENS"], *rows], None)
    yield head
    for line, one in zip(lines, blocks, strict=True):
        parts = " × ".join(f"{name} {value:.3g}" for name, value in one["parts"].items())
        yield line
        yield f"    {one_line(one['because'])}; score: {parts}"
