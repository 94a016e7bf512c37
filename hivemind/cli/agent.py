"""List, add, stop and start agents, run one without a supervisor, try one out.

examples:
  hivemind agent list
  hivemind agent add writer --role writer
  hivemind agent stop writer
  hivemind agent run writer
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hivemind.cli.command import Arg, CommandOutput, command
from hivemind.cli.open_hive import known_agent, open_hive, open_read_only
from hivemind.cli.output import headed_text, print_line, table, table_lines, warn
from hivemind.cli.text import natural_key, one_line
from hivemind.errors import UserError

if TYPE_CHECKING:
    from hivemind.agent.preview import Preview
    from hivemind.hive import Hive
    from hivemind.minds.agents.mind import AgentMind

_COLUMNS = ("name", "role", "mind", "state", "pid", "task", "unread")


@command("agent list", open_read_only, for_agents=True)
def agents(hive: Hive) -> CommandOutput:
    """List the agents of the hive.

    examples:
      hivemind agent list --json
    """
    from hivemind.swarm.overview import agents_now

    agent_fields = [asdict(agent) for agent in agents_now(hive)]
    rows = sorted(agent_fields, key=lambda agent: natural_key(agent["name"]))
    problems = (f"{agent['name']}: {one_line(agent['problem'])}" for agent in rows if agent["problem"])
    empty = "There are no agents: hivemind agent add NAME adds one."
    return CommandOutput(agent_fields, [*table_lines(rows, _COLUMNS, empty=empty), *problems])


@command("agent run", open_hive, fixed_format=True)
def run(hive: Hive, name: str) -> int:
    """Run one agent in this process, without a supervisor.

    On Ctrl-C or SIGTERM the agent finishes or drops its current action, releases its leases and ends.

    arguments:
      AGENT  the agent

    examples:
      hivemind agent run researcher
    """
    from hivemind.swarm.process import run_agent

    return run_agent(hive, known_agent(hive, name))


@command("agent add", open_hive)
def add(hive: Hive, name: str, *, role: str | None = None, mind: str | None = None) -> CommandOutput:
    """Add an agent: agents/NAME.yaml and its mailbox.

    arguments:
      NAME  the agent's name
      --role ROLE  the role that tasks may ask for
      --mind MIND  the agent's mind (default: extractive)

    examples:
      hivemind agent add writer --role writer
      hivemind agent add thinker --mind 'command: ./think'
      hivemind agent add coder --mind agent:codex
    """
    from hivemind.minds.open import check_start
    from hivemind.presence.watching import supervisor_lock
    from hivemind.swarm.agent_files import add_agent

    layout, name = hive.layout, add_agent(hive, name, role=role, mind=mind)
    config = layout.agent_config(name)
    lines = [f"{layout.relative(config)} describes {name}; its mailbox is mailboxes/{name}/."]
    agent = hive.agent_files.get(name)
    try:
        check_start(agent.mind, layout.root)
        if agent.runs_program:
            program = _coding_agent(hive, name)
            lines.append(f"It runs {program.path} ({program.version()}): hivemind agent try {name} 'Say hello.'")
    except UserError as problem:
        lines.append(f"It cannot start yet: {problem}")
    if supervisor_lock(layout.locks).holder() is not None and mind != "mcp":
        lines.append("The running swarm starts the agent now.")
    return CommandOutput({"name": name, "config": config, "mailbox": layout.mailbox(name)}, lines)


@command("agent try", open_hive)
def try_out(
    hive: Hive, name: str, prompt: str, *, timeout: Annotated[float, Arg(maximum=1000000.0)] = 120.0
) -> CommandOutput:
    """Run one prompt with an agent's coding agent. Show the answer, its cost, and the program with its version.

    The coding agent runs in an empty folder, with the settings of the agent's file and without the hive's tools. Every
    permission that it asks for is refused. Errors are shown at once, even if it tries again. Without an answer the exit
    status is 1.

    arguments:
      AGENT  an agent with mind: {agent: ...}
      PROMPT  the prompt
      --timeout S  how long to wait for the answer, in seconds (default: 120)

    examples:
      hivemind agent try coder 'Say hello.'
    """
    from hivemind.minds.meter import with_price
    from hivemind.taskrun.report import TaskUsage

    program = _coding_agent(hive, known_agent(hive, name))
    warn(f"waits for {program.path}, at most {min(timeout, program.config.timeout_s):g} s")
    version, began_at = program.version(), time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # KeyboardInterrupt removes the folder that it runs in
    trial = program.try_prompt(prompt, timeout, lambda problem: warn(f"{program.name}: {one_line(problem)}"))
    usage = trial.usage if trial.usage.money else with_price(trial.usage, program.prices)
    cost = TaskUsage(1, usage.tokens, usage.money, time.monotonic() - began_at, usage.unpriced, usage.cached).summary
    about = {
        "program": program.path,
        "version": version,
        "protocol": "Agent Client Protocol" if program.profile.protocol == "acp" else "its own lines",
        "offers": trial.announcement,
        "mode": program.config.mode or program.profile.mode,
        "box": program.box_summary,
        "cost": cost if usage.tokens or usage.money else "not reported",
    }
    if trial.refused_calls:
        about["refused"] = "; ".join(map(one_line, trial.refused_calls))
    lines = headed_text(about.items(), trial.text or "(The answer is empty.)")
    return CommandOutput({**about, "usage": usage.as_record(), "text": trial.text}, lines, 0 if trial.text else 1)


def _coding_agent(hive: Hive, name: str) -> AgentMind:
    from hivemind.agent.metering import open_agents_mind
    from hivemind.minds.agents.mind import AgentMind

    mind = open_agents_mind(hive.agents[name], hive.config, hive.layout)
    if not isinstance(mind, AgentMind):
        raise UserError(f"{name} is not a coding agent", remedy="set mind: {agent: codex} in its file")
    return mind


@command("agent stop", open_hive)
def stop(hive: Hive, name: str, *, timeout: Annotated[float, Arg(maximum=1000000.0)] | None = None) -> CommandOutput:
    """Stop one agent until `hivemind agent start`.

    The agent finishes or drops its current action, as with `hivemind down`. It keeps its tasks and continues them when
    it is started again. A restart of the swarm does not start it.

    arguments:
      AGENT  the agent
      --timeout S  how long to wait until the agent's process has ended, as with `down` (default: 15)

    examples:
      hivemind agent stop researcher
    """
    from hivemind.cli.swarm import shutdown_output
    from hivemind.swarm.shutdown import stop_agent

    shutdown = stop_agent(hive, known_agent(hive, name), timeout_s=timeout)
    pid = "" if shutdown.pid is None else f" (process {shutdown.pid})"
    line = f"{name} is stopped{pid}: hivemind agent start {name}"
    return shutdown_output(shutdown, line, name=name)


@command("agent start", open_hive)
def start(hive: Hive, name: str) -> CommandOutput:
    """Start an agent that was stopped by `hivemind agent stop`.

    arguments:
      AGENT  the agent

    examples:
      hivemind agent start researcher
    """
    from hivemind.presence.watching import supervisor_lock
    from hivemind.swarm.shutdown import start_agent

    was_stopped = start_agent(hive, known_agent(hive, name))
    is_up = supervisor_lock(hive.layout.locks).holder() is not None
    next_start = "the running swarm starts it now" if is_up else "hivemind up starts it"
    return CommandOutput(
        {"name": name, "was_stopped": was_stopped},
        [f"{name}: {next_start}." if was_stopped else f"{name} was not stopped."],
    )


@command("context", open_read_only)
def context(
    hive: Hive,
    agent: str,
    task: str | None = None,
    *,
    why: Annotated[bool, Arg(exclusive_group="form")] = False,
    format_: Annotated[Literal["text", "svg"], Arg(exclusive_group="form")] = "text",
) -> CommandOutput | None:
    """Show the opening with which an agent would begin a conversation now.

    With --why: every candidate block with its score, the factors of the score, its tokens, and the reason why it is
    included or not. Also shows how likely each block is to be used, and the learned weights behind that estimate.

    arguments:
      AGENT  the agent
      TASK  a task (default: the task that it works on, else the next waiting one)
      --why  explain the selection, block by block
      --format  text (default), or svg: a picture of how the budget is used

    examples:
      hivemind context researcher
      hivemind context researcher --why
      hivemind context researcher --format svg > researcher.svg
    """
    from hivemind.agent.preview import preview_context

    preview = preview_context(hive, known_agent(hive, agent), task)
    if format_ == "svg":
        from hivemind.web.drawing.bars import budget_parts, draw_budget

        print_line(draw_budget(budget_parts(preview), preview.budget, is_standalone=True))
        return None
    if not why:
        messages = (f"--- {message.role}\n{message.text.rstrip(chr(10))}\n" for message in preview.messages)
        return CommandOutput(
            [message.as_record() for message in preview.messages], [*messages, _selection_summary(preview)]
        )
    blocks = preview.choices()
    use_lines = [*preview.use_lines()]
    fields = {"target": preview.target, "budget": preview.budget, "tokens": preview.tokens, "blocks": blocks}
    lines = [*_block_lines(blocks), *map(one_line, use_lines), _selection_summary(preview)]
    return CommandOutput({**fields, "use": use_lines}, lines)


def _selection_summary(preview: Preview) -> str:
    target = preview.target
    subject = f"for {target['kind']} {target['id']}" if target and target["id"] else "without a task or letter"
    usage = f"{preview.tokens:,} of {preview.budget:,} tokens (including the tools' descriptions)"
    return f"{len(preview.selected.entries)} blocks selected, {usage}, {subject}."


def _block_lines(blocks: list[dict[str, Any]]) -> Iterator[str]:
    rows = [
        [one_line(block["block"]), "yes" if block["in"] else "no", f"{block['score']:.3f}", f"{block['tokens']:,}"]
        for block in blocks
    ]
    head, *lines = table([["BLOCK", "IN", "SCORE", "TOKENS"], *rows], None)
    yield head
    for line, choice in zip(lines, blocks, strict=True):
        parts = " × ".join(f"{name} {factor:.3g}" for name, factor in choice["parts"].items())
        yield line
        yield f"    {one_line(choice['because'])}; score: {parts}"
        if choice["use"]:
            yield f"    {choice['use']}"
