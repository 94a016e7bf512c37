"""`python -m benchmarks.retrieval locomo.json [--every N] [--weights] [--postgresql]`, or `documentation TREES`: the tables of
docs/retrieval.md."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarks.retrieval import documentation
from benchmarks.retrieval.baselines import Fusion, Meaning, Words
from benchmarks.retrieval.hivemind_system import Labelled, OnServer, Plain, System
from benchmarks.retrieval.locomo import MEASURES, Conversation, load, measured
from hivemind.search import Weights
from tests.postgres import Server

WITHOUT: Mapping[str, Mapping[str, float]] = {
    "sentences": {"sentence": 0.0},
    "neighbours": {"neighbour": 0.0, "answer": 0.0, "said_before": 0.0, "said_after": 0.0},
    "neighbours' words": {"said_before": 0.0, "said_after": 0.0},
    "answers to questions": {"answer": 0.0},
    "speaker and first person": {"speaker": 0.0, "first_person": 0.0},
    "first person": {"first_person": 0.0},
    "session": {"session": 0.0},
    "date and day": {"date": 0.0, "day": 0.0},
    "time asked for": {"time": 0.0},
    "name asked for": {"name": 0.0},
    "questions count less": {"asking": 0.0},
}
VALUES: Mapping[str, Sequence[float]] = {  # of each weight: about half, itself, half as much again
    "sentence": (0.2, 0.4, 0.6),
    "meaning": (1.0, 2.0, 3.0),
    "neighbour": (0.15, 0.3, 0.45),
    "answer": (0.1, 0.2, 0.3),
    "said_before": (0.4, 0.8, 1.2),
    "said_after": (0.2, 0.4, 0.6),
    "speaker": (0.1, 0.2, 0.3),
    "first_person": (0.05, 0.1, 0.15),
    "session": (0.1, 0.2, 0.3),
    "date": (0.2, 0.4, 0.6),
    "day": (0.1, 0.2, 0.3),
    "time": (0.05, 0.1, 0.15),
    "name": (0.05, 0.1, 0.15),
    "asking": (-0.05, -0.1, -0.15),
}
Built = list[tuple[Conversation, System]]
Rows = list[list[tuple[float, ...]]]
"""For each conversation, for each of its questions, the measures."""


def build(kind: type[System], conversations: Sequence[Conversation]) -> Built:
    """Index each conversation in a separate system."""
    systems = []
    for conversation in conversations:
        system = kind()
        system.index(conversation.items)
        systems.append((conversation, system))
    return systems


def ask(built: Built, every: int, weights: Weights | None = None) -> Rows:
    """Ask a system all questions; return the measures of its rankings."""
    rows = []
    for conversation, system in built:
        system.store._engine.weights = weights or Weights()
        items = {item[0]: item for item in conversation.items}
        questions = conversation.questions[::every]
        rows.append([measured(system.search(question.text, 400), question.evidence, items) for question in questions])
    return rows


def show(name: str, rows: Rows) -> Rows:
    """Print the measures, per cent: over all questions, and for each conversation recall@10 and in 2,000 tokens."""
    recalls = " ".join(f"{_mean(part, 1):.0f}/{_mean(part, 4):.0f}" for part in rows)
    together = [row for part in rows for row in part]
    means = " | ".join(f"{_mean(together, at):.1f}" for at in range(len(MEASURES)))
    print(f"| {name} | {means} | {recalls} |", flush=True)
    return rows


def _mean(rows: Sequence[tuple[float, ...]], at: int) -> float:
    return 100 * sum(row[at] for row in rows) / len(rows)


def parts(conversations: Sequence[Conversation], built: Built, every: int) -> None:
    """Print the contribution of each part."""
    for kind, name in ((Words, "BM25"), (Meaning, "MiniLM"), (Fusion, "both, by reciprocal rank")):
        show(f'{name}, "Speaker: text"', ask(build(kind, conversations), every))
    show("**search(), texts alone**", ask(build(Plain, conversations), every))
    show('**search(), texts as "Speaker: text"**', ask(build(Labelled, conversations), every))
    show("**search(), with metadata and links**", ask(built, every))
    for name, changes in WITHOUT.items():
        show(f"without {name}", ask(built, every, replace(Weights(), **changes)))


def weights(built: Built, every: int) -> None:
    """Print the measures of other weights, each alone; then, on each conversation, of the weights that are best on the
    others: for each weight its value with the highest sum of recall@10 and recall in 2,000 tokens there."""
    usual = ask(built, every)
    trials = {
        (name, value): usual
        if value == getattr(Weights(), name)
        else show(f"{name} {value}", ask(built, every, replace(Weights(), **{name: value})))
        for name, values in VALUES.items()
        for value in values
    }
    left_out: Rows = []
    for place, held_out in enumerate(built):

        def worth(name: str, value: float, place: int = place) -> float:
            rows = [row for at, part in enumerate(trials[name, value]) if at != place for row in part]
            return _mean(rows, 1) + _mean(rows, 4)

        best = {name: max(values, key=lambda value: worth(name, value)) for name, values in VALUES.items()}
        left_out += ask([held_out], every, replace(Weights(), **best))
    show("**each with the weights best on the others**", left_out)
    show("**the same with those that are used**", usual)


def on_server(conversations: Sequence[Conversation], built: Built, every: int) -> None:
    """Compare the search in a file and on a fresh PostgreSQL server: each finds words and vectors its own way."""
    show("in a file", ask(built, every))
    with Server() as server:
        OnServer.url = server.new_database()
        server_systems = build(OnServer, conversations)
        show("on a PostgreSQL server", ask(server_systems, every))
        for _, system in server_systems:
            system.store.close()


def main() -> None:
    if sys.argv[1:2] == ["documentation"]:
        documentation.main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retrieval", description=__doc__)
    parser.add_argument("data", help="locomo10.json, or some of its conversations")
    parser.add_argument("--every", type=int, default=1, help="ask only every Nth question")
    parser.add_argument("--weights", action="store_true", help="other weights, and the ones chosen on the others")
    parser.add_argument("--postgresql", action="store_true", help="compare with a PostgreSQL server")
    arguments = parser.parse_args()
    conversations = load(arguments.data)
    print(f"| | {' | '.join(MEASURES)} | recall@10/in 2,000 of each |\n|{'---|' * (len(MEASURES) + 2)}")
    built = build(System, conversations)
    if arguments.postgresql:
        on_server(conversations, built, arguments.every)
    elif arguments.weights:
        weights(built, arguments.every)
    else:
        parts(conversations, built, arguments.every)


if __name__ == "__main__":
    main()
