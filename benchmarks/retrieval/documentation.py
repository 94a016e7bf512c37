"""Questions over public documentation (QUESTIONS.md): how often the first, and one of three, answers; the right file; what is
refused. The trees are given as a folder with a checkout of each repository under its tree's name; nothing of them is here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.retrieval.kept import Kept
from hivemind.documents import Docmem, Knowledge
from hivemind.documents.passages import PassagePart, read_parts
from hivemind.embedding import Embedder, FineEmbedder, embed_packed, open_embedder
from hivemind.layout import Layout
from hivemind.search import merge_hits
from hivemind.search.words import Stemmer, bm25_scores, rarity, significant_words, words_of

__all__ = ["SYSTEMS", "Question", "Tree", "build", "main", "questions", "show"]

_FOLDERS = {
    "handbook": ("pages", [""], ".md"),
    "redis": ("", ["commands", "docs"], ".md"),
    "scrapy": ("docs", [""], ".rst"),
}
_K = 60  # of reciprocal rank fusion, as is usual
_DEPTH = 10
_DRAWN = 4_000  # samples of a bootstrap
_TARGET = re.compile(r"\]\([^)]*\)")
_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the fingerprints of what answers it: (file, how many words, their hash); none where nothing does."""

    tree: str
    kind: str
    half: str
    text: str
    answers: tuple[tuple[str, int, str], ...]

    def is_right_file(self, path: str) -> bool:
        return any(path == file for file, _, _ in self.answers)

    def is_answered_by(self, path: str, text: str) -> bool:
        """Whether a text from a file (relative as in the questions) has the words that answer."""
        words = _WORD.findall(_TARGET.sub("]", text).lower())
        return any(path == file and wanted in _prints(words, many) for file, many, wanted in self.answers)


def _prints(words: Sequence[str], many: int) -> set[str]:
    runs = (" ".join(words[at : at + many]) for at in range(len(words) - many + 1))
    return {hashlib.blake2b(run.encode(), digest_size=6).hexdigest() for run in runs}


def questions(half: str | None = None) -> list[Question]:
    """The questions of a half ("tune", "held"), or all."""
    found = []
    for line in (Path(__file__).parent / "questions.jsonl").read_text().splitlines():
        told = json.loads(line)
        answers = tuple((os.path.normpath(one["file"]), one["words"], one["print"]) for one in told["answers"])
        found.append(Question(told["tree"], told["kind"], told["half"], told["question"], answers))
    return [one for one in found if half in (None, one.half)]


class Tree:
    """One tree's files in a hive's knowledge folder, all passages embedded."""

    def __init__(self, name: str, source: Path, folder: Path, embedder: Embedder) -> None:
        self.layout = Layout.at(folder / name)
        for one in self.layout.folders():
            one.mkdir(parents=True, exist_ok=True)
        base, below, suffix = _FOLDERS[name]
        self.files = _copy(source / base, below, suffix, self.layout.knowledge)
        self.embedder = embedder
        self.docmem = Docmem(self.layout.documents_db, embedder=embedder, durable=False)
        self.knowledge = Knowledge(self.docmem, self.layout)
        self.knowledge.sync()
        while self.docmem.embed_pending(1_000_000):
            pass
        with self.docmem.database.read() as sql:
            leads = [
                seq
                for (seq,) in sql.execute("SELECT n.seq FROM nodes n JOIN places p ON p.node_id = n.id WHERE p.leads")
            ]
            self.parts: list[PassagePart] = list(read_parts(sql, leads).values())
            rows = dict(sql.execute("SELECT key, vector FROM vectors").fetchall())
        import numpy

        self.vectors = numpy.array([numpy.frombuffer(rows[part.lead], dtype="<f4") for part in self.parts])
        self._stems = Stemmer()
        words = [self._stems(words_of(" ".join((*part.titles, part.text)))) for part in self.parts]
        self._tallies, self._lengths = [Counter(own) for own in words], [len(own) for own in words]
        self._often = Counter(stem for own in self._tallies for stem in own)

    def relative(self, path: str) -> str:
        """The path of a passage as questions have it."""
        return os.path.relpath(self.layout.root / path, self.layout.knowledge)

    def by_words(self, question: str) -> list[float]:
        """BM25 over the same passages with their titles, for each."""
        weights = {
            stem: rarity(self._often[stem], len(self.parts))
            for stem in self._stems(significant_words(question))
            if self._often[stem]
        }
        return bm25_scores(weights, self._tallies, self._lengths)

    def by_meaning(self, question: str) -> Any:
        """MiniLM's cosine for each passage."""
        import numpy

        (packed,) = embed_packed(self.embedder, [question])
        return self.vectors @ numpy.frombuffer(packed, dtype="<f4")

    def first(self, scores: Iterable[float]) -> list[tuple[str, str]]:
        """(path, text) of the best passages."""
        best = sorted(enumerate(scores), key=lambda one: (-one[1], one[0]))[:_DEPTH]
        return [(self.relative(self.parts[at].file.path), self.parts[at].text) for at, _ in best]


def _copy(source: Path, below: Sequence[str], suffix: str, target: Path) -> int:
    files = sorted(path for one in below for path in (source / one).rglob(f"*{suffix}"))
    for path in files:
        copy = target / path.relative_to(source)
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    return len(files)


def build(data: Path, folder: Path, embedder: Embedder) -> dict[str, Tree]:
    """All trees; what a folder has already is used again."""
    return {name: Tree(name, data / name, folder, embedder) for name in _FOLDERS}


def _fused(tree: Tree, question: str) -> list[tuple[str, str]]:
    scores = [0.0] * len(tree.parts)
    for own in (tree.by_words(question), tree.by_meaning(question)):
        for place, at in enumerate(sorted(range(len(own)), key=lambda at: -own[at])):
            scores[at] += 1 / (_K + place)
    return tree.first(scores)


def _passages(tree: Tree, question: str) -> list[tuple[str, str]]:
    return [(tree.relative(one.path), one.text) for one in tree.knowledge.search(question, limit=_DEPTH)]


def _quotes(tree: Tree, question: str) -> list[tuple[str, str]]:
    passages = merge_hits(
        [tree.knowledge.search(question, limit=_DEPTH)],
        _DEPTH,
        confidence=lambda passage: passage.confidence,
        text=lambda passage: passage.cite().text,
        origin=lambda passage: passage.path,
    )
    return [(tree.relative(passage.path), passage.cite().text) for passage in passages]


SYSTEMS: dict[str, Callable[[Tree, str], list[tuple[str, str]]]] = {
    "BM25": lambda tree, question: tree.first(tree.by_words(question)),
    "MiniLM": lambda tree, question: tree.first(tree.by_meaning(question)),
    "both, by reciprocal rank": _fused,
    "hivemind, passages": _passages,
    "hivemind, quotes": _quotes,
}


def show(trees: Mapping[str, Tree], half: str) -> None:
    """Print the tables of one half."""
    asked = questions(half)
    answerable = [one for one in asked if one.answers]
    print(f"\n{half}: {len(answerable)} questions with an answer, {len(asked) - len(answerable)} without\n")
    print("| | hit@1 | hit@3 | hit@10 | right file@3 | hit@3 beside BM25 |\n|---|---|---|---|---|---|")
    ranks: dict[str, list[int]] = {}
    for name, search in SYSTEMS.items():
        found = [search(trees[one.tree], one.text) for one in answerable]
        ranks[name] = [_rank(one, own) for one, own in zip(answerable, found, strict=True)]
        files = [
            any(one.is_right_file(path) for path, _ in own[:3]) for one, own in zip(answerable, found, strict=True)
        ]
        rows = [[rank < most for rank in ranks[name]] for most in (1, 3, _DEPTH)] + [files]
        better = [int(mine < 3) - int(its < 3) for mine, its in zip(ranks[name], ranks["BM25"], strict=True)]
        print(f"| {name} | {' | '.join(map(_interval, rows))} | {_interval(better)} |", flush=True)
    _show_kinds(answerable, ranks)
    _show_refusals(trees, asked)


def _rank(question: Question, found: Sequence[tuple[str, str]]) -> int:
    return next((at for at, (path, text) in enumerate(found) if question.is_answered_by(path, text)), _DEPTH)


def _show_kinds(asked: Sequence[Question], ranks: Mapping[str, Sequence[int]]) -> None:
    kinds = sorted({one.kind for one in asked})
    print(f"\n| hit@3 by kind (how many) | {' | '.join(kinds)} |\n|{'---|' * (len(kinds) + 1)}")
    for name, own in ranks.items():
        cells = []
        for kind in kinds:
            mine = [rank < 3 for rank, one in zip(own, asked, strict=True) if one.kind == kind]
            cells.append(f"{100 * sum(mine) / len(mine):.0f} ({len(mine)})")
        print(f"| {name} | {' | '.join(cells)} |")


def _show_refusals(trees: Mapping[str, Tree], asked: Sequence[Question]) -> None:
    print(
        "\n| refusals | AUROC | unanswerable refused | answerable refused | sure, and right in three | likely | weak |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, embedder in (("words alone", False), ("words and meaning", True)):  # that is how the trees stay
        for tree in trees.values():
            tree.docmem.meanings.embedder = tree.embedder if embedder else None
        answers = [trees[one.tree].knowledge.search(one.text, limit=3) for one in asked]
        trust = [max((one.confidence.value for one in own), default=0.0) for own in answers]
        right = [
            any(one.is_answered_by(trees[one.tree].relative(hit.path), hit.text) for hit in own)
            for one, own in zip(asked, answers, strict=True)
        ]
        levels = [
            max((hit.confidence for hit in own), key=lambda c: c.value).level if own else "weak" for own in answers
        ]
        cells = [
            f"{sum(own for own, level in zip(right, levels, strict=True) if level == wanted)} of {levels.count(wanted)}"
            for wanted in ("sure", "likely", "weak")
        ]
        refused = [
            [value < 1 for value, one in zip(trust, asked, strict=True) if bool(one.answers) is there]
            for there in (False, True)
        ]
        pairs = list(zip(trust, (bool(one.answers) for one in asked), strict=True))
        print(f"| {name} | {_auroc_interval(pairs)} | {' | '.join(map(_interval, refused))} | {' | '.join(cells)} |")


def _auroc(pairs: Sequence[tuple[float, bool]]) -> float:
    there = [value for value, answered in pairs if answered]
    absent = [value for value, answered in pairs if not answered]
    wins = sum((one > two) + (one == two) / 2 for one in there for two in absent)
    return wins / (len(there) * len(absent)) if there and absent else 0.5


def _auroc_interval(pairs: Sequence[tuple[float, bool]]) -> str:
    chance = random.Random(1)
    drawn = sorted(_auroc(chance.choices(pairs, k=len(pairs))) for _ in range(_DRAWN // 4))
    return f"{_auroc(pairs):.2f} [{drawn[len(drawn) // 40]:.2f}, {drawn[-len(drawn) // 40]:.2f}]"


def _interval(values: Sequence[float]) -> str:
    """The mean in per cent, with the middle 95 % of what as many drawn from them have (bootstrap)."""
    chance = random.Random(1)
    drawn = sorted(sum(chance.choices(values, k=len(values))) for _ in range(_DRAWN))
    low, high = (100 * one / len(values) for one in (drawn[_DRAWN // 40], drawn[-_DRAWN // 40]))
    return f"{100 * sum(values) / len(values):.1f} [{low:.0f}, {high:.0f}]"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retrieval documentation", description=__doc__)
    parser.add_argument("data", type=Path, help="a folder with a checkout of each repository: handbook, redis, scrapy")
    parser.add_argument("--hives", type=Path, help="where the indexed trees are kept for the next run")
    given = parser.parse_args(arguments)
    kept = os.environ.get("HIVEMIND_KEPT_EMBEDDINGS")
    embedder: Embedder | None = open_embedder("minilm")
    if embedder is None:
        parser.error("the extra `embed` is not installed")
    with tempfile.TemporaryDirectory(prefix="hivemind-documentation-") as folder:
        trees = build(
            given.data,
            given.hives or Path(folder),
            Kept(embedder, kept) if kept and isinstance(embedder, FineEmbedder) else embedder,
        )
        print("| tree | files | passages |\n|---|---|---|")
        for name, tree in trees.items():
            print(f"| {name} | {tree.files} | {len(tree.parts)} |")
        for half in ("tune", "held"):
            show(trees, half)
