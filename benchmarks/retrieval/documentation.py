"""Questions over public documentation (QUESTIONS.md): hit rates at 1 and 3, the right file, and
refusals. The trees are given as a folder with a checkout of each repository under its tree's name; none is shipped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import re
import shutil
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.hives import placed
from benchmarks.retrieval.kept import CachedEmbedder
from hivemind.agent.knowledge import PER_QUESTION
from hivemind.documents import Docmem, Knowledge
from hivemind.documents.passages import PassagePart, read_parts
from hivemind.embedding import Embedder, FineEmbedder, embed_packed, open_embedder
from hivemind.layout import Layout
from hivemind.minds.extractive.quote import Quote, quotes_for
from hivemind.search.answers import SURE_THRESHOLD
from hivemind.search.words import Stemmer, bm25_scores, rarity, significant_words, words_of

__all__ = ["SYSTEMS", "Question", "Tree", "build", "main", "questions", "show"]

_FOLDERS = {
    "handbook": ("pages", [""], ".md"),
    "redis": ("", ["commands", "docs"], ".md"),
    "scrapy": ("docs", [""], ".rst"),
    "borg": ("", [""], ".html"),
    "debian-reference-de": ("", [""], ".html"),
    "npm": ("", [""], ".md"),
    "vim": ("", [""], ".txt"),
    "celery": ("", [""], ".rst"),
    "exim": ("", [""], ".html"),
    "gimp-fr": ("", [""], ".html"),
    "supervisor": ("", [""], ".rst"),
    "privoxy": ("", [""], ".html"),
    "installation-de": ("", [""], ".html"),
}
_K = 60  # of reciprocal rank fusion, as is usual
_DEPTH = 10
_SAMPLES = 4_000  # samples of a bootstrap
_Z = 1.645  # of Wilson's interval: its lower end is exceeded with 95 %, both ends hold 90 %
_TARGET = re.compile(r"\]\([^)]*\)")
_SOURCES = ("questions.jsonl", "shipped.jsonl", "fresh.jsonl", "packages.jsonl")


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the fingerprints of its answers: (file, number of words, their hash); none if unanswerable."""

    tree: str
    kind: str
    half: str
    text: str
    answers: tuple[tuple[str, int, str], ...]
    source: str

    def is_right_file(self, path: str) -> bool:
        return any(path == file for file, _, _ in self.answers)

    def is_answered_by(self, path: str, text: str) -> bool:
        """Check that a text from a file (relative as in the questions) has the words that answer."""
        if self.source == "questions.jsonl":
            words = re.findall(r"[a-z0-9]+", _TARGET.sub("]", text).lower())
        else:
            words = re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text).casefold())
        return any(path == file and digest in _prints(words, length) for file, length, digest in self.answers)


def _prints(words: Sequence[str], length: int) -> set[str]:
    runs = (" ".join(words[at : at + length]) for at in range(len(words) - length + 1))
    return {hashlib.blake2b(run.encode(), digest_size=6).hexdigest() for run in runs}


def questions(half: str | None = None) -> list[Question]:
    """The questions of a half ("tune", "held"), or all."""
    pool = []
    for source in _SOURCES:
        for line in (Path(__file__).parent / source).read_text().splitlines():
            row = json.loads(line)
            answers = tuple((os.path.normpath(span["file"]), span["words"], span["print"]) for span in row["answers"])
            pool.append(Question(row["tree"], row["kind"], row["half"], row["question"], answers, source))
    return [question for question in pool if half in (None, question.half)]


class Tree:
    """One tree's files in a hive's knowledge folder, all passages embedded."""

    def __init__(self, name: str, source: Path, folder: Path, embedder: Embedder) -> None:
        self.layout = Layout.at(folder / name)
        for subfolder in self.layout.folders():
            subfolder.mkdir(parents=True, exist_ok=True)
        base, below, suffix = _FOLDERS[name]
        self.files = _copy(source / base, below, suffix, self.layout.knowledge)
        self.embedder = embedder
        self.docmem = Docmem(placed(self.layout.documents_db), embedder=embedder)
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
        self._tallies, self._lengths = [Counter(stems) for stems in words], [len(stems) for stems in words]
        self._often = Counter(stem for tally in self._tallies for stem in tally)

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

        (packed_question,) = embed_packed(self.embedder, [question])
        return self.vectors @ numpy.frombuffer(packed_question, dtype="<f4")

    def first(self, scores: Iterable[float]) -> list[tuple[str, str]]:
        """(path, text) of the best passages."""
        best = sorted(enumerate(scores), key=lambda place_and_score: (-place_and_score[1], place_and_score[0]))[:_DEPTH]
        return [(self.relative(self.parts[at].file.path), self.parts[at].text) for at, _ in best]


def _copy(source: Path, below: Sequence[str], suffix: str, target: Path) -> int:
    files = sorted(path for subfolder in below for path in (source / subfolder).rglob(f"*{suffix}"))
    for path in files:
        copy = target / path.relative_to(source)
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    return len(files)


def build(data: Path, folder: Path, embedder: Embedder, names: Collection[str] = ()) -> dict[str, Tree]:
    """The trees that `data` has (of these names, if there are any); what a folder has already is used again."""
    present = [name for name in _FOLDERS if (data / name).is_dir() and (not names or name in names)]
    return {name: Tree(name, data / name, folder, embedder) for name in present}


def _fused(tree: Tree, question: str) -> list[tuple[str, str]]:
    scores = [0.0] * len(tree.parts)
    for part_scores in (tree.by_words(question), tree.by_meaning(question)):
        for place, at in enumerate(sorted(range(len(part_scores)), key=lambda at: -part_scores[at])):
            scores[at] += 1 / (_K + place)
    return tree.first(scores)


def _passages(tree: Tree, question: str) -> list[tuple[str, str]]:
    return [(tree.relative(passage.path), passage.text) for passage in tree.knowledge.search(question, limit=_DEPTH)]


def answer(tree: Tree, question: str) -> list[Quote]:
    """The quotes of the product's answer, best first."""
    entries = [
        {
            "content": passage.cite().text,
            "metadata": {
                "answers": {question: round(passage.confidence.value, 2)},
                "why": passage.confidence.reason,
                "citation": asdict(passage.cite()),
            },
        }
        for passage in tree.knowledge.search(question, limit=PER_QUESTION)
    ]
    return quotes_for(question, entries)


def _quotes(tree: Tree, question: str) -> list[tuple[str, str]]:
    return [(tree.relative(quote.path), quote.text) for quote in answer(tree, question)]


Search = Callable[[Tree, str], list[tuple[str, str]]]
SYSTEMS: dict[str, Search] = {
    "BM25": lambda tree, question: tree.first(tree.by_words(question)),
    "MiniLM": lambda tree, question: tree.first(tree.by_meaning(question)),
    "both, by reciprocal rank": _fused,
    "hivemind, passages": _passages,
    "hivemind, quotes": _quotes,
}


def show(trees: Mapping[str, Tree], half: str, systems: Mapping[str, Search] = SYSTEMS) -> None:
    """Print the tables of one half."""
    half_questions = [question for question in questions(half) if question.tree in trees]
    answerable = [question for question in half_questions if question.answers]
    print(f"\n{half}: {len(answerable)} questions with an answer, {len(half_questions) - len(answerable)} without\n")
    print("| | hit@1 | hit@3 | hit@10 | right file@3 |\n|---|---|---|---|---|")
    ranks: dict[str, list[int]] = {}
    for name, search in systems.items():
        rankings = [search(trees[question.tree], question.text) for question in answerable]
        ranks[name] = [_rank(question, ranking) for question, ranking in zip(answerable, rankings, strict=True)]
        files = [
            any(question.is_right_file(path) for path, _ in ranking[:3])
            for question, ranking in zip(answerable, rankings, strict=True)
        ]
        rows = [[rank < depth for rank in ranks[name]] for depth in (1, 3, _DEPTH)] + [files]
        print(f"| {name} | {' | '.join(map(_interval, rows))} |", flush=True)
    show_answers(trees, half_questions)


def _rank(question: Question, ranking: Sequence[tuple[str, str]]) -> int:
    return next((at for at, (path, text) in enumerate(ranking) if question.is_answered_by(path, text)), _DEPTH)


def show_answers(trees: Mapping[str, Tree], half_questions: Sequence[Question]) -> None:
    """Print the product's answers: for each tree and for all, the shares of right, refused and promised ones."""
    print(
        "\n| answers | right first | within three | refused wrongly | refused | refused or weak | AUROC |"
        " sure, right | of the answerable sure | likely, right | likely or better | weak, right |\n" + "|---" * 12 + "|"
    )
    outcomes = {question: Outcome.of(trees[question.tree], question) for question in half_questions}
    for name in (*trees, "all"):
        rows = [row for question, row in outcomes.items() if name in (question.tree, "all")]
        present, absent = ([row for row in rows if row.is_answerable], [row for row in rows if not row.is_answerable])
        levels = [[row for row in rows if row.level == level] for level in ("sure", "likely", "weak")]
        cells = [
            _wilson([row.rank < 1 for row in present]),
            _wilson([row.rank < 3 for row in present]),
            _wilson([row.level == "none" for row in present]),
            _wilson([row.level == "none" for row in absent]),
            _wilson([row.level in ("none", "weak") for row in absent]),
            _auroc_interval([(row.value, row.is_answerable) for row in rows]),
            _wilson([row.rank < 1 for row in levels[0]]),
            _wilson([row.level == "sure" for row in present]),
            _wilson([row.rank < 1 for row in levels[1]]),
            _wilson([row.level in ("sure", "likely") for row in present]),
            _wilson([row.rank < 1 for row in levels[2]]),
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The product's answer to a question: the rank of the first right quote, and the first quote's confidence."""

    is_answerable: bool
    rank: int
    level: str
    value: float

    @classmethod
    def of(cls, tree: Tree, question: Question) -> Outcome:
        quotes = answer(tree, question.text)
        rank = _rank(question, [(tree.relative(quote.path), quote.text) for quote in quotes])
        if not quotes:
            return cls(bool(question.answers), rank, "none", 0.0)
        first = quotes[0].confidence
        return cls(bool(question.answers), rank, first.level, first.value)


_PENALTY = 10.0  # of large weights: the questions are few


def fit(trees: Mapping[str, Tree]) -> None:
    """Print the numbers of `search/answers.py`, fitted to all questions, and how often answers are right with them.

    The cuts are the least with which likely answers are right in 60 % and sure ones in 92 % (two more than is promised,
    because the cut is chosen by the same questions), in the fit and with each tree rated by weights fitted to the others.
    """
    import numpy

    rows = []
    for question in questions():
        tree = trees.get(question.tree)
        for passage in tree.knowledge.search(question.text, limit=1) if tree else ():
            if passage.confidence.features:
                is_right = question.is_answered_by(tree.relative(passage.path), passage.cite().text)
                can_be_sure = not re.search("it has no number|does not name", passage.confidence.reason)
                rows.append((question.tree, is_right, can_be_sure, passage.confidence.features))
    names, rights, are_eligible, features = (numpy.array(column) for column in zip(*rows, strict=True))
    base, weights = _logistic(features, rights)
    columns = numpy.array([base + features @ weights] * 2)  # the first is rated again, leaving out a tree at a time
    for name in trees:
        tree_base, tree_weights = _logistic(features[names != name], rights[names != name])
        columns[0, names == name] = tree_base + features[names == name] @ tree_weights
    sure_columns = numpy.where(are_eligible, columns, -numpy.inf)
    sure = _least_cut(sure_columns, rights, 0.92, 0.75)
    likely_columns = numpy.where(sure_columns >= sure, -numpy.inf, columns)
    likely = _least_cut(likely_columns, rights, 0.6, 0)
    levels = [level for pair in zip(sure_columns >= sure, likely_columns >= likely, strict=True) for level in pair]
    print("\n| | left out: sure, right | likely, right | in the fit: sure | likely |\n" + "|---" * 5 + "|")
    for name in (*trees, "all"):
        is_of_tree = (names == name) | (name == "all")
        print(f"| {name} | {' | '.join(_wilson(rights[is_of_tree & level]) for level in levels)} |")
    stretch = math.log(SURE_THRESHOLD) / (sure - likely)
    print(f"{len(rows)} questions, chances", *(f"{1 / (1 + math.exp(-cut)):.2f}" for cut in (sure, likely)))
    print(f"_BASE, _FEATURE_WEIGHTS = {stretch * (base - likely):.2f}, {tuple((stretch * weights).round(2).tolist())}")


def _least_cut(columns: Any, rights: Any, share: float, low: float) -> float:
    """Return the least score from which, in each column, this share is right, by Wilson's lower end `low`."""
    for cut in sorted(columns[0]):
        groups = [rights[column >= cut] for column in columns]
        if all(len(group) and group.mean() >= share and _wilson_ends(group)[0] >= low for group in groups):
            return float(cut)
    raise ValueError(f"no score from which {share:.0%} are right")


def _logistic(features: Any, rights: Any) -> tuple[float, Any]:
    """Return the base and the weights of the logistic model, by Newton's method with a penalty on scaled weights."""
    import numpy

    means, scales = features.mean(axis=0), features.std(axis=0)
    matrix = numpy.c_[numpy.ones(len(features)), (features - means) / scales]
    penalty = numpy.diag([0.0, *[_PENALTY] * len(means)])
    weights = numpy.zeros(matrix.shape[1])
    for _ in range(30):
        shares = 1 / (1 + numpy.exp(-matrix @ weights))
        slope = (matrix.T * (shares * (1 - shares))) @ matrix + penalty
        weights -= numpy.linalg.solve(slope, matrix.T @ (shares - rights) + penalty @ weights)
    return float(weights[0] - (weights[1:] / scales) @ means), weights[1:] / scales


def _auroc(pairs: Sequence[tuple[float, bool]]) -> float:
    answerable = [value for value, is_answerable in pairs if is_answerable]
    absent = [value for value, is_answerable in pairs if not is_answerable]
    wins = sum((positive > negative) + (positive == negative) / 2 for positive in answerable for negative in absent)
    return wins / (len(answerable) * len(absent)) if answerable and absent else 0.5


def _auroc_interval(pairs: Sequence[tuple[float, bool]]) -> str:
    chance = random.Random(1)
    samples = sorted(_auroc(chance.choices(pairs, k=len(pairs))) for _ in range(_SAMPLES // 4))
    return f"{_auroc(pairs):.2f} [{samples[len(samples) // 40]:.2f}, {samples[-len(samples) // 40]:.2f}]"


def _interval(values: Sequence[float]) -> str:
    """The mean in per cent, with the middle 95 % of what as many drawn from them have (bootstrap)."""
    chance = random.Random(1)
    samples = sorted(sum(chance.choices(values, k=len(values))) for _ in range(_SAMPLES))
    low, high = (100 * end / len(values) for end in (samples[_SAMPLES // 40], samples[-_SAMPLES // 40]))
    return f"{100 * sum(values) / len(values):.1f} [{low:.0f}, {high:.0f}]"


def _wilson(values: Sequence[bool]) -> str:
    """The share in per cent, with Wilson's interval of 90 % and how many there are."""
    if not len(values):
        return "–"
    low, high = _wilson_ends(values)
    return f"{100 * sum(values) / len(values):.0f} [{100 * low:.0f}, {100 * high:.0f}] of {len(values)}"


def _wilson_ends(values: Sequence[bool]) -> tuple[float, float]:
    size, share = len(values), sum(values) / len(values)
    middle, half = share + _Z**2 / (2 * size), _Z * math.sqrt(share * (1 - share) / size + (_Z / (2 * size)) ** 2)
    return (middle - half) / (1 + _Z**2 / size), (middle + half) / (1 + _Z**2 / size)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retrieval documentation", description=__doc__)
    parser.add_argument(
        "data", type=Path, help="a folder with the folder of each tree; trees that are missing are left out"
    )
    parser.add_argument("--hives", type=Path, help="where the indexed trees are kept for the next run")
    parser.add_argument("--half", choices=("tune", "held"), default="tune")
    parser.add_argument("--trees", nargs="*", default=[], help="only these trees")
    parser.add_argument("--fit", action="store_true", help="fit the confidence, and print its numbers")
    parser.add_argument("--answers", action="store_true", help="only what the product answers, without comparisons")
    options = parser.parse_args(arguments)
    cache_path = os.environ.get("HIVEMIND_KEPT_EMBEDDINGS")
    embedder: Embedder | None = open_embedder("minilm")
    if embedder is None:
        parser.error("the extra `embed` is not installed")
    with tempfile.TemporaryDirectory(prefix="hivemind-documentation-") as folder:
        trees = build(
            options.data,
            options.hives or Path(folder),
            CachedEmbedder(embedder, cache_path) if cache_path and isinstance(embedder, FineEmbedder) else embedder,
            options.trees,
        )
        print("| tree | files | passages |\n|---|---|---|")
        for name, tree in trees.items():
            print(f"| {name} | {tree.files} | {len(tree.parts)} |")
        if options.fit:
            fit(trees)
        else:
            show(trees, options.half, {} if options.answers else SYSTEMS)
