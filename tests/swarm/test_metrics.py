"""A swarm that answers a monitoring system: what Prometheus' own parser reads, what stays after a restart, who may ask."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.swarm.conftest import Swarm
from tests.waiting import until

Numbers = dict[tuple[str, ...], float]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def ask(port: int, path: str, token: str | None = None) -> tuple[int, str]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:  # nobody listens yet
        return 0, ""


def numbers(port: int) -> Numbers:
    """The samples, by name and values of the labels."""
    status, text = ask(port, "/metrics")
    assert status == 200, text
    families = text_string_to_metric_families(text)
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


def is_ready(port: int) -> bool:
    return ask(port, "/readyz") == (200, "ok\n")


@pytest.fixture
def metered(hive: Swarm) -> tuple[Swarm, int]:
    port = free_port()
    hive.start("up", "--metrics", str(port))
    until(lambda: is_ready(port))
    return hive, port


def test_counters_do_not_fall_when_the_swarm_starts_again_nor_when_a_task_is_deleted(
    metered: tuple[Swarm, int],
) -> None:
    hive, port = metered
    hive.drop("task.md", "---\nrun: true\n---\n```sh\ntrue\n```\n")
    until(lambda: hive.task("task") in ("done", "failed"))
    agent = next(name for name in ("analyst", "researcher") if hive.pid_of(name))
    pid = hive.pid_of(agent)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: hive.pid_of(agent) not in (None, pid))
    before = numbers(port)
    assert before["hivemind_up",] == 1
    assert before["hivemind_agent_restarts_total", agent] == 1
    assert before["hivemind_tasks_ended_total", "done"] + before["hivemind_tasks_ended_total", "failed"] == 1
    assert before["hivemind_task_oldest_seconds", "inbox"] == 0
    hive.run("down")
    assert ask(port, "/metrics") == (0, "")
    shutil.rmtree(hive.root / "tasks" / hive.task("task") / "task")
    hive.start("up", "--metrics", str(port))
    until(lambda: is_ready(port))
    after = numbers(port)
    assert {name: value for name, value in after.items() if name[0].endswith("_total") and value < before[name]} == {}


def test_a_killed_process_of_the_metrics_is_started_again(metered: tuple[Swarm, int]) -> None:
    hive, port = metered
    pid = json.loads((hive.root / ".hive/agents/metrics/status.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: json.loads((hive.root / ".hive/agents/metrics/status.json").read_text())["pid"] != pid)
    until(lambda: is_ready(port))


def test_an_address_of_the_network_wants_the_token(hive: Swarm) -> None:
    port = free_port()
    hive.start("up", "--metrics", f"0.0.0.0:{port}")
    until(lambda: ask(port, "/metrics")[0] == 401)
    path = hive.root / ".hive/metrics.token"
    assert path.stat().st_mode & 0o077 == 0
    assert ask(port, "/healthz", path.read_text().strip()) == (200, "ok\n")
    assert ask(port, "/healthz", "guessed")[0] == 401


@pytest.mark.parametrize("address", ["no-host:1", "70000", "0", "::1:x", ""])
def test_an_address_that_is_none_is_refused_before_the_swarm_starts(hive: Swarm, address: str) -> None:
    hive.run("up", "--metrics", address, status=2)
    assert "--metrics" in hive.errors


def test_a_port_that_is_taken_is_named_before_the_swarm_starts(hive: Swarm) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        hive.run("up", "--metrics", str(taken.getsockname()[1]), status=2)
    assert "cannot listen" in hive.errors
