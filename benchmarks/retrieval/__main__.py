"""`python -m benchmarks.retrieval locomo.json [--every N]`: the table of docs/retrieval.md."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.retrieval.baselines import Fusion, Meaning, Words
from benchmarks.retrieval.hivemind_system import Labelled, Plain, System
from benchmarks.retrieval.locomo import MEASURES, Conversation, load, measured
from hivemind.longterm.ranking import Weights

WITHOUT = {
    "neighbours": {"neighbour": 0.0, "complement": 0.0},
    "words that neighbours add": {"complement": 0.0},
    "speaker and first person": {"speaker": 0.0, "first_person": 0.0},
    "first person": {"first_person": 0.0},
    "session": {"session": 0.0},
    "date and day": {"date": 0.0, "day": 0.0},
    "time asked for": {"time": 0.0},
    "name asked for": {"name": 0.0},
    "length": {"length": 0.0},
    "questions count less": {"asking": 0.0},
}
DIFFERENT = {
    "meaning 1.5": {"meaning": 1.5},
    "meaning 3": {"meaning": 3.0},
    "neighbours 0.2": {"neighbour": 0.2},
    "neighbours 0.4": {"neighbour": 0.4},
    "words that neighbours add 0.3": {"complement": 0.3},
    "words that neighbours add 0.9": {"complement": 0.9},
    "speaker 0.3": {"speaker": 0.3},
    "session 0.3": {"session": 0.3},
}
Built = list[tuple[Conversation, System]]


def build(kind: type[System], conversations: Sequence[Conversation]) -> Built:
    """Each conversation in a system of its own."""
    found = []
    for conversation in conversations:
        system = kind()
        system.index(conversation.items)
        found.append((conversation, system))
    return found


def row(name: str, built: Built, every: int, weights: Weights | None = None) -> None:
    """Print the measures of one system, per cent: over all questions, and recall@10 for each conversation."""
    rows, by_conversation, took = [], [], []
    for conversation, system in built:
        system.store._searcher.weights = weights or Weights()
        items = {item[0]: item for item in conversation.items}
        own = []
        for question in conversation.questions[::every]:
            started = time.perf_counter()
            ranking = system.search(question.text, 400)
            took.append(time.perf_counter() - started)
            own.append(measured(ranking, question.evidence, items))
        rows += own
        by_conversation.append(100 * sum(found[1] for found in own) / len(own))
    means = [100 * sum(found[at] for found in rows) / len(rows) for at in range(len(MEASURES))]
    each = " ".join(f"{value:.0f}" for value in by_conversation)
    print(f"| {name} | " + " | ".join(f"{value:.1f}" for value in means) + f" | {each} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retrieval", description=__doc__)
    parser.add_argument("data", help="locomo10.json, or some of its conversations")
    parser.add_argument("--every", type=int, default=1, help="ask only every Nth question")
    arguments = parser.parse_args()
    conversations = load(arguments.data)
    print(f"| | {' | '.join(MEASURES)} | recall@10 of each conversation |\n|{'---|' * (len(MEASURES) + 2)}")
    for kind, name in ((Words, "BM25"), (Meaning, "MiniLM"), (Fusion, "both, by reciprocal rank")):
        row(f'{name}, "Speaker: text"', build(kind, conversations), arguments.every)
    row("**search(), texts alone**", build(Plain, conversations), arguments.every)
    row('**search(), texts as "Speaker: text"**', build(Labelled, conversations), arguments.every)
    built = build(System, conversations)
    row("**search(), with metadata and links**", built, arguments.every)
    for name, changed in WITHOUT.items():
        row(f"without {name}", built, arguments.every, replace(Weights(), **changed))
    for name, changed in DIFFERENT.items():
        row(name, built, arguments.every, replace(Weights(), **changed))


if __name__ == "__main__":
    main()
