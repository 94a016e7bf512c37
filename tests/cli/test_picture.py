"""The live picture: it fits, whatever the swarm and whatever the terminal."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hivemind.cli.picture import picture_lines, tokens_of
from hivemind.cli.text import width
from hivemind.presence.status import AgentStatus
from hivemind.swarm.swarm import SwarmPicture

TASKS = {"inbox": 1, "active": 2, "done": 3, "failed": 4}


def picture(*agents: AgentStatus, seconds: float = 0, watching: str = "inotify") -> SwarmPicture:
    return SwarmPicture(agents, {agent.name: agent.pid for agent in agents if agent.pid}, watching, seconds)


agents = st.builds(
    AgentStatus,
    name=st.text("abcxyz-", min_size=1, max_size=64),
    pid=st.integers(0, 99),
    state=st.sampled_from(["starting", "idle", "working", "stopping", "exited"]),
    task=st.none() | st.text(max_size=80),
    step=st.none() | st.text(max_size=80),
    unread=st.integers(0, 10**6),
    tokens=st.integers(0, 10**9),
    budget=st.none() | st.integers(0, 10**9),
    last_action=st.none() | st.text(max_size=200),
)


@given(st.lists(agents, max_size=60, unique_by=lambda agent: agent.name), st.integers(1, 200), st.integers(1, 60))
def test_the_picture_fits_any_terminal(found: list[AgentStatus], columns: int, rows: int) -> None:
    lines = picture_lines(picture(*found), TASKS, Path("/hive"), columns, rows)
    assert len(lines) <= rows
    assert all(width(line) <= columns for line in lines)


def test_agents_at_work_are_shown_before_idle_ones() -> None:
    idle = [AgentStatus(f"a{number:02}", number + 1, state="idle") for number in range(30)]
    busy = AgentStatus("z", 99, state="working", task="hard")
    lines = picture_lines(picture(*idle, busy), TASKS, Path("/hive"), 100, 12)
    assert any(line.startswith("z ") and "hard" in line for line in lines)
    assert "… and 25 more" in lines


def test_what_a_process_said_that_is_gone_is_not_shown_as_its_successors() -> None:
    old = AgentStatus("researcher", 7, state="working", task="old")
    shown = picture_lines(SwarmPicture((old,), {"researcher": 8}, "inotify", 0), TASKS, Path("/hive"), 100, 12)
    assert "starting" in shown[4]
    assert "old" not in shown[4]
    shown = picture_lines(SwarmPicture((old,), {}, "inotify", 0), TASKS, Path("/hive"), 100, 12)
    assert "down" in shown[4]


def test_the_head_says_where_how_long_and_how() -> None:
    lines = picture_lines(picture(seconds=3723.9, watching="poll (no instance left)"), TASKS, Path("/hive"), 200, 12)
    assert lines[0] == "hivemind  1:02:03  0 of 0 agents up  watching: poll (no instance left)  /hive"
    assert lines[1] == "tasks: 1 waiting, 2 active, 3 done, 4 failed"


def test_tokens_are_said_of_the_budget_if_there_is_one() -> None:
    assert (tokens_of(1200, None), tokens_of(1200, 100_000)) == ("1,200", "1,200 of 100,000")
