"""`python -m benchmarks.opening MIRROR [tune] [held] [new] [--relevance] [--pool]`: openings, compared with judgements."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from benchmarks.table import Row, show
from hivemind import Hive
from hivemind.agent.knowledge import RELEVANT
from hivemind.agent.opening import source_of
from hivemind.agent.preview import Preview, preview_context
from hivemind.tools.memory import namespaces_of

AGENT = "w"
_NAMES = {
    "GIT_AUTHOR_NAME": "p",
    "GIT_AUTHOR_EMAIL": "p@localhost",
    "GIT_COMMITTER_NAME": "p",
    "GIT_COMMITTER_EMAIL": "p@localhost",
}


@dataclass
class Opening:
    """The passages that an opening shows, the places that count as right and as needed, and the opening's own tokens."""

    task: str
    places: Mapping[str, frozenset[str]]
    needed_places: frozenset[str]
    relevant: frozenset[str]
    tokens: int
    system_tokens: int
    texts: Mapping[str, str] = field(default_factory=dict)

    def is_right(self, source: str) -> bool:
        return bool(self.places[source] & self.relevant)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.opening", description=__doc__)
    parser.add_argument("mirror", type=Path, help="a folder with a git directory OWNER+NAME/repo for each repository")
    parser.add_argument("halves", nargs="*", metavar="HALF", help="tune, held, new (default: all)")
    parser.add_argument("--relevance", action="store_true", help="compare with and without learned relevance instead")
    parser.add_argument("--pool", action="store_true", help="print each passage that is shown, for judging")
    arguments = parser.parse_args()
    if arguments.relevance:
        from benchmarks.opening.stream import compare

        show("Learned relevance, the second half of each stream", compare(arguments.mirror))
        return 0
    for half in arguments.halves or ("tune", "held", "new"):
        openings = [opening for plan in plans(half) for _, _, opening in measure(plan, arguments.mirror)]
        if arguments.pool:
            _print_pool(openings)
        show(f"{half}, gate {RELEVANT}", rows(openings))
    return 0


def plans(half: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load(Path(__file__).with_name(f"{half}.yaml").read_text("utf-8")))


def measure(
    plan: Mapping[str, Any], mirror: Path, settings: str = "", weights: bytes = b""
) -> Iterator[tuple[Hive, Preview, Opening]]:
    """Build a hive that has the plan's knowledge, further settings and weights of relevance, and yield the opening of each of
    its tasks."""
    with tempfile.TemporaryDirectory(prefix="opening-") as folder:
        top = Path(folder)
        checkout = _check_out(plan, mirror, top / "project")
        hive = _hive(plan, mirror, checkout, top / "hive", settings)
        if weights:
            hive.layout.relevance.write_bytes(weights)
        for number, task in enumerate(plan["tasks"], 1):
            name = f"t{number:02}"
            (hive.layout.inbox / f"{name}.md").write_text(task["text"])
            needed_places = frozenset(task.get("needed", ()))
            relevant = needed_places | frozenset(task.get("relevant", ())) | frozenset(task.get("judged", ()))
            preview = preview_context(hive, AGENT, name)
            yield hive, preview, _opening(hive, preview, task["text"], needed_places, relevant)
            (hive.layout.inbox / f"{name}.md").unlink()


def _opening(hive: Hive, preview: Preview, text: str, needs: frozenset[str], relevant: frozenset[str]) -> Opening:
    system, opening = (message.text for message in preview.messages)
    system = system.partition("\n# From rom/")[0]
    instructions = re.findall(r"<instructions from=.*?</instructions>", opening, re.DOTALL)
    count = hive.count_tokens
    own_tokens = count(opening) - count(text) - sum(map(count, instructions))
    places = {source_of(entry): _places(hive, entry) for entry in preview.selected.entries}
    texts = {source_of(entry): str(entry["content"]) for entry in preview.selected.entries}
    return Opening(text.partition("\n")[0], places, needs, relevant, own_tokens, count(system), texts)


def _places(hive: Hive, entry: Mapping[str, Any]) -> frozenset[str]:
    """Return the places that an entry shows, as the judgements name them: `PATH#HEADING`, `memory:KEY`, `task:ID`."""
    source = str(entry["metadata"].get("path") or entry["metadata"].get("source") or entry["id"])
    if source.startswith("memory:"):
        return frozenset({f"memory:{source.rpartition('/')[2]}"})
    path = source.partition(" ")[0]
    if path.startswith("tasks/done/"):
        return frozenset({f"task:{path.split('/')[2]}"})
    first, _, last = str(entry["metadata"].get("lines", "1-1")).partition("-")
    lines = (hive.layout.root / path).read_text("utf-8").splitlines()
    heading, headings = "", set[str]()
    for number, (line, underline) in enumerate(zip(lines, [*lines[1:], ""], strict=True), 1):
        if match := re.match(r"#+ (.+)", line):
            heading = match[1].strip()
        elif path.endswith(".rst") and line.strip() and re.fullmatch(r"([=\-~^])\1{3,}", underline.strip()):
            heading = line.strip()
        if int(first) <= number <= int(last or first) and line.strip():
            headings.add(f"{path.removeprefix('knowledge/')}#{heading}")
    return frozenset(headings)


def _check_out(plan: Mapping[str, Any], mirror: Path, checkout: Path) -> Path:
    """Check out the repository, and commit on it what the plan's earlier tasks have landed."""
    source = _mirrored(mirror, plan["repository"])
    _git("clone", "--quiet", "--shared", "--no-checkout", str(source), str(checkout))
    _git("-C", str(checkout), "checkout", "--quiet", "-B", "main", plan["commit"])
    for earlier in plan["earlier"]:
        for name in earlier["files"]:
            with open(checkout / name, "a") as file:
                file.write("\n")
        message = f"{earlier['title']}\n\nHive-Task: {earlier['id']}\n"
        _git("-C", str(checkout), "commit", "--quiet", "--all", "--no-verify", "-m", message)
    return checkout


def _mirrored(mirror: Path, repository: str) -> Path:
    return mirror / repository.replace("/", "+") / "repo"


def _git(*words: str) -> str:
    environment = {"PATH": "/usr/bin:/bin", **_NAMES}
    return subprocess.run(["git", *words], check=True, env=environment, capture_output=True, text=True).stdout


def _hive(plan: Mapping[str, Any], mirror: Path, checkout: Path, root: Path, settings: str) -> Hive:
    """Make a hive with the plan's documents, the project's copied ones, memories and results of earlier tasks."""
    hive = Hive.init(root)
    for path in hive.layout.agents.glob("*.yaml"):
        path.unlink()
    hive.layout.config.write_text(
        f"durability: relaxed\nroots: [{{path: {checkout}, worktree: true, check: [make check]}}]\n{settings}"
    )
    (root / "none.jsonl").touch()
    hive.layout.agent_config(AGENT).write_text(
        "mind: {scripted: none.jsonl}\ntoolset: coder\ncommands: [git, python]\n"
    )
    shutil.rmtree(hive.layout.knowledge / "manual", ignore_errors=True)  # the program's, not the hive's
    files = {**plan["documents"], **{name: (checkout / name).read_text("utf-8") for name in plan["copied"]}}
    for foreign in plan["foreign"]:
        source = _mirrored(mirror, foreign["repository"])
        files |= {
            f"others/{name}": _git("-C", str(source), "show", f"{foreign['commit']}:{name}")
            for name in foreign["files"]
        }
    for name, text in files.items():
        path = hive.layout.knowledge / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for earlier in plan["earlier"]:
        folder = hive.layout.done / earlier["id"]
        folder.mkdir()
        (folder / "task.md").write_text(f"{earlier['title']}\n")
        worked = "## How it came about\n\n* Worked on by w: 9 turns, 81,204 tokens, 311 s.\n"
        (folder / "result.md").write_text(f"# {earlier['title']}\n\n{earlier['result']}\n\n{worked}")
    hive = Hive.open(root)
    _, shared_namespace = namespaces_of(hive, AGENT)
    for key, text in plan["memories"].items():
        hive.memory.put(shared_namespace, key, text)
    hive.knowledge.sync()
    hive.documents.embed_pending()  # as idle agents do
    return hive


def rows(openings: Sequence[Opening]) -> list[Row]:
    showings = [(opening, source) for opening in openings for source in opening.places]
    right = sum(opening.is_right(source) for opening, source in showings)
    without = [opening for opening in openings if not opening.relevant]
    needed_places = [(place, opening) for opening in openings for place in opening.needed_places]
    needed_hits = sum(any(place in places for places in opening.places.values()) for place, opening in needed_places)
    empty = sum(not opening.places for opening in without)
    mid = median(opening.tokens for opening in openings)
    figures = [
        ("shown passages that are relevant", right, len(showings), 80),
        ("openings with none where none is relevant", empty, len(without), 100),
        ("needed ones that are shown", needed_hits, len(needed_places), 70),
    ]
    peak, system = max(opening.tokens for opening in openings), openings[0].system_tokens
    return [
        *(
            Row(name, 100 * part / max(1, total), "%", better="more", note=f"{part} of {total}", target=target)
            for name, part, total, target in figures
        ),
        Row("tokens beside text and instructions, median", mid, "tokens", note=f"most {peak}", target=700),
        Row(
            "with the system message", mid + system, "tokens", note=f"{system} of it are the system message", target=700
        ),
    ]


def _print_pool(openings: Sequence[Opening]) -> None:
    for opening in openings:
        print(f"\n== {opening.task}   needed: {', '.join(sorted(opening.needed_places)) or '-'}")
        for source, places in opening.places.items():
            mark = "right" if opening.is_right(source) else "WRONG"
            print(f"{mark} {source} {sorted(places)}: {' '.join(opening.texts[source].split())[:300]}")


if __name__ == "__main__":
    sys.exit(main())
