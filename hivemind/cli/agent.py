"""List agents, add one, stop and start one, run one by itself.

examples:
  hivemind agent list
  hivemind agent add writer --role writer
  hivemind agent stop writer
  hivemind agent run writer
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hivemind.cli.command import Answer, Arg, command
from hivemind.cli.opening import known_agent, look_at, open_hive
from hivemind.cli.output import progress, put_out, table, table_lines
from hivemind.cli.text import natural, one_line
from hivemind.errors import UserError

if TYPE_CHECKING:
    from hivemind.agent.preview import Preview
    from hivemind.hive import Hive
    from hivemind.minds.agents import AgentMind

_COLUMNS = ("name", "role", "mind", "state", "pid", "task", "unread")


@command("agent list", look_at, agents=True)
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

    Ends on Ctrl-C or SIGTERM: the current action is finished or dropped, and leases are released.

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
      hivemind agent add thinker --mind 'command: ./think'
      hivemind agent add coder --mind agent:codex
    """
    from hivemind.presence.watching import supervisor_lock
    from hivemind.swarm.agent_files import add_agent

    layout, name = hive.layout, add_agent(hive, name, role=role, mind=mind)
    config = layout.agent_config(name)
    lines = [f"{layout.relative(config)} says what {name} is; its mailbox is mailboxes/{name}/."]
    if hive.agent_files.get(name).runs_program:
        program = _program(hive, name)
        lines.append(f"It runs {program.path} ({program.version()}): hivemind agent try {name} 'Say hello.'")
    if supervisor_lock(layout.locks).holder() is not None and mind != "mcp":
        lines.append("The swarm that is up starts it now.")
    return Answer({"name": name, "config": config, "mailbox": layout.mailbox(name)}, lines)


@command("agent try", open_hive)
def try_out(hive: Hive, name: str, prompt: str) -> Answer:
    """Run one prompt with the coding agent that an agent's file names, and show what it answers.

    It runs in an empty folder, with the agent's own settings and without the hive's tools.

    arguments:
      AGENT  an agent with mind: {agent: ...}
      PROMPT  what it is asked

    examples:
      hivemind agent try coder 'Say hello.'
    """
    program = _program(hive, known_agent(hive, name))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # an end in order removes the folder that it runs in
    with progress() as tell:
        tell(f"waits for {program.path}, at most {program.config.timeout_s:g} s")
        text = program.complete(prompt)
    record = {"program": program.path, "version": program.version(), "text": text}
    return Answer(record, [text.rstrip() or "(It said nothing.)"])


def _program(hive: Hive, name: str) -> AgentMind:
    from hivemind.minds import open_mind
    from hivemind.minds.agents import AgentMind

    found = open_mind(hive.agents[name].mind, root=hive.layout.root)
    if not isinstance(found, AgentMind):
        raise UserError(f"{name} is no coding agent", mend="mind: {agent: codex} makes it one")
    return found


@command("agent stop", open_hive)
def stop(hive: Hive, name: str, *, timeout: Annotated[float, Arg(most=1000000.0)] = 15.0) -> Answer:
    """Have one agent end, and not be started again until `hivemind agent start`.

    It finishes or leaves its current action, as with `hivemind down`; its tasks stay its own and go on when it
    is started. It stays stopped while the swarm is down and up again.

    arguments:
      AGENT  the agent
      --timeout S  how long to wait for its end, in seconds (default: 15)

    examples:
      hivemind agent stop researcher
    """
    from hivemind.cli.swarm import told_end
    from hivemind.swarm.shutdown import stop_agent

    ended = stop_agent(hive, known_agent(hive, name), timeout_s=timeout)
    pid = "" if ended.pid is None else f" (process {ended.pid})"
    line = f"{name} is stopped{pid}: hivemind agent start {name}"
    return told_end(ended, timeout, line, name=name)


@command("agent start", open_hive)
def start(hive: Hive, name: str) -> Answer:
    """Have an agent started again that `hivemind agent stop` has stopped.

    arguments:
      AGENT  the agent

    examples:
      hivemind agent start researcher
    """
    from hivemind.presence.watching import supervisor_lock
    from hivemind.swarm.shutdown import start_agent

    was = start_agent(hive, known_agent(hive, name))
    up = supervisor_lock(hive.layout.locks).holder() is not None
    then = "the swarm that is up starts it now" if up else "hivemind up starts it"
    return Answer({"name": name, "was_stopped": was}, [f"{name}: {then}." if was else f"{name} was not stopped."])


@command("context", look_at)
def context(
    hive: Hive,
    agent: str,
    *,
    why: Annotated[bool, Arg(apart="form")] = False,
    format_: Annotated[Literal["text", "svg"], Arg(apart="form")] = "text",
    output: str | None = None,
) -> Answer | None:
    """Show the opening that an agent would begin a conversation with now.

    With --why: every block that could be chosen, its score and the factors of the score, its tokens, whether it is
    included, and why.

    arguments:
      AGENT  the agent
      --why  explain the choice, block by block
      --format  text (default), or svg: a picture of what fills its budget
      --output FILE  write the picture there, whatever was there before

    examples:
      hivemind context researcher
      hivemind context researcher --why
      hivemind context researcher --format svg --output researcher.svg
    """
    from hivemind.agent.preview import preview_context

    preview = preview_context(hive, known_agent(hive, agent))
    if format_ == "svg":
        from hivemind.web.drawing.bars import budget_parts, draw_budget

        put_out(draw_budget(budget_parts(preview), preview.budget, alone=True), output)
        return None
    if not why:
        messages = (f"--- {one.role}\n{one.text.rstrip(chr(10))}\n" for one in preview.messages)
        return Answer([message.as_record() for message in preview.messages], [*messages, _summary(preview)])
    blocks = preview.choices()
    record = {"target": preview.target, "budget": preview.budget, "tokens": preview.tokens, "blocks": blocks}
    return Answer(record, [*_why_lines(blocks), _summary(preview)])


def _summary(preview: Preview) -> str:
    target = preview.target
    about = f"for {target['kind']} {target['id']}" if target and target["id"] else "with nothing in hand"
    used = f"{preview.tokens:,} of {preview.budget:,} tokens (the tools' descriptions among them)"
    return f"{len(preview.selected.entries)} blocks selected, {used}, {about}."


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
