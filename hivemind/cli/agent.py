"""hivemind agent: list them, run one by itself, add one."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from hivemind.cli.hive_of import hive_of, known_agent, look_at
from hivemind.cli.output import print_json, print_table, say
from hivemind.cli.parser import Commands, Parser, add_command, add_group, add_json
from hivemind.cli.text import natural, one_line

__all__ = ["add_to"]

_COLUMNS = ("name", "role", "mind", "state", "pid", "task", "unread")


def add_to(commands: Commands, common: Parser) -> None:
    agent = add_group(
        commands,
        common,
        "agent",
        "list agents, run one by itself, add one",
        examples="  hivemind agent list\n  hivemind agent add writer --role writer\n  hivemind agent run writer",
    )
    listing = add_command(
        agent, common, "list", _list, "list the agents of the hive", examples="  hivemind agent list --json"
    )
    add_json(listing)
    running = add_command(
        agent,
        common,
        "run",
        _run,
        "run one agent in this process, without a supervisor",
        about="It ends with Ctrl-C or SIGTERM: current action finished or left, leases given back.",
        examples="  hivemind agent run researcher",
    )
    running.add_argument("name", metavar="NAME", help="the agent")
    adding = add_command(
        agent,
        common,
        "add",
        _add,
        "add an agent: agents/NAME.yaml and its mailbox",
        examples="  hivemind agent add writer --role writer\n  hivemind agent add claude --mind 'command: ./think'",
    )
    adding.add_argument("name", metavar="NAME", help="its name")
    adding.add_argument("--role", metavar="ROLE", help="the role that tasks may ask for")
    adding.add_argument("--mind", metavar="MIND", help="what it thinks with (default: extractive)")
    add_json(adding)


def _list(arguments: argparse.Namespace) -> int:
    from hivemind.swarm.overview import agents_now

    found = [asdict(agent) for agent in agents_now(look_at(arguments))]
    if arguments.json:
        print_json(found)
    else:
        rows = sorted(found, key=lambda agent: natural(agent["name"]))
        print_table(rows, _COLUMNS, empty="There are no agents: hivemind agent add NAME makes one.")
        for agent in rows:
            if agent["problem"]:
                say(f"{agent['name']}: {one_line(agent['problem'])}")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    from hivemind.swarm.process import run_agent

    hive = hive_of(arguments)
    return run_agent(hive, known_agent(hive, arguments.name))


def _add(arguments: argparse.Namespace) -> int:
    from hivemind.swarm.recruit import add_agent
    from hivemind.swarm.supervisor import supervisor_lock

    hive = hive_of(arguments)
    name = add_agent(hive, arguments.name, role=arguments.role, mind=arguments.mind)
    if arguments.json:
        print_json({"name": name, "config": hive.layout.agent_config(name), "mailbox": hive.layout.mailbox(name)})
        return 0
    say(
        f"{hive.layout.relative(hive.layout.agent_config(name))} says what {name} is; its mailbox is mailboxes/{name}/."
    )
    if supervisor_lock(hive.layout.locks).holder() is not None:
        say(f"The swarm that is up does not know it yet: hivemind down && hivemind up, or hivemind agent run {name}")
    return 0
