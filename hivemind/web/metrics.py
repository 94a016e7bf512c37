"""The numbers of a hive that an operator watches, in Prometheus' text form, and whether the hive is healthy and ready.

Gauges are read from the hive's present state. Counters are sums over its records (`PageIndex`), so they do not fall when the
swarm starts again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress

from hivemind import __version__
from hivemind.embedding import EmbedderUnavailable
from hivemind.errors import HivemindError
from hivemind.frozen import frozen
from hivemind.hive import Hive
from hivemind.layout import HUMAN
from hivemind.swarm.overview import embedding_progress
from hivemind.web.site import Site
from hivemind.web.snapshot import Snapshot

MONITOR_PATHS = ("/metrics", "/healthz", "/readyz")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of Prometheus' text form."""
_STATES = ("inbox", "active", "parked")

Labels = Mapping[str, str]


@frozen
class MetricFamily:
    """A metric, its help text and its samples. The name of a counter ends in `_total`."""

    name: str
    help: str
    samples: tuple[tuple[Labels, float], ...]

    @property
    def text(self) -> str:
        kind = "counter" if self.name.endswith("_total") else "gauge"
        lines = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {kind}"]
        for labels, value in self.samples:
            pairs = ",".join(f'{name}="{_escape(text)}"' for name, text in labels.items())
            lines.append(f"{self.name}{{{pairs}}} {value!r}" if pairs else f"{self.name} {value!r}")
        return "\n".join(lines) + "\n"


class Monitor:
    """The answers to a monitoring system about the hive of a site. Thread-safe: answers are built one at a time."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def answer(self, path: str) -> tuple[int, str, str]:
        """Return HTTP status, media type and text of the answer for one of `MONITOR_PATHS`. The status is 503 if there
        is a problem."""
        try:
            with self._site.mutex:
                if path == "/metrics":
                    return 200, CONTENT_TYPE, self.metrics()
                problems = [] if path == "/healthz" else list(_readiness_problems(self._site.watch.snapshot()))
                if path == "/healthz":
                    self._site.hive.journal.view(lambda _: None)
        except (HivemindError, OSError) as error:
            problems = [str(error)]
        text = "".join(f"{problem}\n" for problem in problems) or "ok\n"
        return 503 if problems else 200, "text/plain; charset=utf-8", text

    def metrics(self) -> str:
        """Return all metrics. Raises UserError or OSError if the hive cannot be read."""
        return "".join(family.text for family in self._families(self._site.watch.snapshot()))

    def _families(self, snapshot: Snapshot) -> Iterator[MetricFamily]:
        overview = snapshot.overview
        yield _gauge("info", "The program's version.", {"version": __version__, "hive": overview.workspace}, 1)
        yield _gauge("up", "1 while a supervisor runs.", {}, int(overview.supervisor is not None))
        yield _gauge("disk_full", "1 while work waits for room on the disk.", {}, int(overview.disk_full))
        yield _family("tasks", "Tasks by state; active ones include parked ones.", "state", overview.tasks)
        ages = dict.fromkeys(_STATES, 0.0)
        for task in snapshot.open_tasks:
            age = (snapshot.taken_at - task.since).total_seconds()
            for state in {task.state.value, "parked" if task.parked is not None else task.state.value}:
                ages[state] = max(ages.get(state, 0.0), age)
        yield _family("task_oldest_seconds", "How long the oldest task has been in its state.", "state", ages)
        states = Counter[str](agent.state for agent in overview.agents)
        yield _family("agents", "Agents by state.", "state", states)
        unread = {HUMAN: overview.human_unread, **{agent.name: agent.unread for agent in overview.agents}}
        yield _family("mail_unread", "Unread letters.", "mailbox", unread)
        needs = Counter[str](need.kind for need in snapshot.needs)
        yield _family("needs_person", "What waits for a person, by kind.", "kind", {"question": 0, **needs})
        yield _gauge("index_pending", "Passages of documents without a vector.", {}, _pending(self._site.hive))
        yield from self._counters()

    def _counters(self) -> Iterator[MetricFamily]:
        index = self._site.index
        restarts = dict.fromkeys(self._site.hive.agents, 0) | {
            agent: count for (agent, _), count in index.counts("restarts").items()
        }
        yield _family("agent_restarts_total", "Processes of an agent that died or were killed.", "agent", restarts)
        ended = {"done": 0, "failed": 0, **{outcome: count for (_, outcome), count in index.counts("tasks").items()}}
        yield _family(
            "tasks_ended_total", "Tasks that ended, by outcome; a task that ends twice counts twice.", "outcome", ended
        )
        landings = tuple(
            ({"root": root, "outcome": outcome}, float(count))
            for (root, outcome), count in index.counts("landings").items()
        )
        yield MetricFamily("hivemind_landings_total", "Branches that landed or came back.", landings)
        used = index.usage_by_agent()
        tokens = tuple(
            ({"agent": agent, "kind": kind}, float(amount))
            for agent, use in used.items()
            for kind, amount in (
                ("input", use.tokens - use.output - use.cached),
                ("cached", use.cached),
                ("output", use.output),
            )
        )
        yield MetricFamily("hivemind_tokens_total", "Tokens of model requests; cached is input from a cache.", tokens)
        yield _family(
            "cost_total", "Money by the price list.", "agent", {agent: use.money for agent, use in used.items()}
        )


def _pending(hive: Hive) -> int:
    """Return the number of passages that still lack a vector; 0 without an embedder."""
    with suppress(EmbedderUnavailable):  # `status` says why
        if hive.embedder is not None:
            embedded, total, _ = embedding_progress(hive, hive.embedder)
            return total - embedded
    return 0


def _gauge(name: str, text: str, labels: Labels, value: float) -> MetricFamily:
    return MetricFamily(f"hivemind_{name}", text, ((labels, value),))


def _family(name: str, text: str, label: str, values: Mapping[str, float]) -> MetricFamily:
    return MetricFamily(f"hivemind_{name}", text, tuple(({label: key}, value) for key, value in values.items()))


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _readiness_problems(snapshot: Snapshot) -> Iterator[str]:
    """Yield each reason why the hive cannot work on new tasks now, as a sentence."""
    overview = snapshot.overview
    if overview.supervisor is None:
        yield "no swarm runs: hivemind up"
    if overview.disk_full:
        yield "the disk is full"
    for agent in overview.agents:
        if agent.problem:
            yield f"{agent.name}: {agent.problem}"
    if overview.supervisor is not None and not any(agent.pid for agent in overview.agents):
        yield "no agent has a process yet"
