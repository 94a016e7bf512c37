"""The quotes of a published result: changes of their files, and texts of a person that call quotes wrong."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hivemind.boundary import boundary
from hivemind.documents import Citation, Verdict
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import open_inside
from hivemind.layout import HUMAN, Layout
from hivemind.names import check_name
from hivemind.presence.parts import Parts
from hivemind.tasks import Task, read_outcome
from hivemind.tasks.attempts import ATTEMPTS
from hivemind.tasks.folder import ended_folder

_QUOTE = re.compile(
    r"(?P<text>(?:^>.*\n)+)\n?— `(?P<path>(?s:.{1,4096}?)):(?P<first>[0-9]{1,9})(?:-(?P<last>[0-9]{1,9}))?`"
    r"(?: \(sha256 (?P<digest>[0-9a-f]{12})\))?$",
    re.MULTILINE,
)

_PLACE = re.compile(
    r"(?P<path>[^\s:`'\"()]*[^\W\d][^\s:`'\"()]*):(?P<first>[0-9]{1,9})(?:-(?P<last>[0-9]{1,9}))?(?![\w/])"
)


def quotes_in(result: str) -> list[Citation]:
    """Return the quotes of a result.md. Their digests are only the beginnings of the files' digests."""
    return [_citation(match) for match in _QUOTE.finditer(result) if match["digest"]]


def mark_quotes(answer: str, verify: Callable[[Citation], Verdict]) -> str:
    """Return a mind's answer with a note behind each quote that is not word for word at its cited place."""

    def mark(match: re.Match[str]) -> str:
        verdict = verify(_citation(match))
        reason = re.split(r"; | \(", verdict.reason)[0]  # the citation has no whole digest: the file seems changed
        return match[0] if verdict.is_confirmed else f"{match[0]} (not confirmed: {reason})"

    return _QUOTE.sub(mark, answer)


def _citation(match: re.Match[str]) -> Citation:
    with boundary("quote of a result"):
        lines = int(match["first"]), int(match["last"] or match["first"])
    text = re.sub("(?m)^> ?", "", match["text"]).strip("\n")
    return Citation(match["path"], *lines, match["digest"] or "", text)


def stale_sources(hive: Parts, task: Task) -> Iterator[str]:
    """Yield a sentence for each quoted file of a result that was changed or deleted after the result was published. Results of a
    linked hive are not checked."""
    if task.kept.get("hive"):
        return
    own_folder, folder = rf"^tasks/(?:active|done)/{re.escape(task.id)}/", f"{hive.layout.relative(task.path)}/"
    digests = {quote.path: quote.digest for quote in quotes_in(read_outcome(task.path) or "")}
    for path, quoted_digest in digests.items():
        present_path = re.sub(own_folder, lambda _: folder, path)  # the task has moved since, or is archived
        try:
            with open(open_inside(present_path, hive.layout.root, hive.config.read_roots(hive.layout)), "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except (OSError, UserError):
            yield f"{path} was deleted, or cannot be read, since it was quoted"
            continue
        if not digest.startswith(quoted_digest):
            yield f"{path} was changed since it was quoted"


def _named_quotes(text: str, result: str) -> Sequence[Citation]:
    """Return the quotes of a result that a text names by their file or lines; all quotes if it names none.

    Raises UserError if the text names lines that are not quoted, or if it names none and the quotes answer several questions.
    """
    quotes, named_quotes = quotes_in(result), list[Citation]()
    places = ", ".join(quote.place for quote in quotes)
    for match in _PLACE.finditer(text) if quotes else ():
        with boundary("place"):
            first, last = int(match["first"]), int(match["last"] or match["first"])
        before = text[: match.end("path")]  # a path may have spaces
        matches = [
            quote
            for quote in quotes
            if quote.start_line <= last and first <= quote.end_line
            and (f"/{quote.path}".endswith(f"/{match['path']}") or before.endswith(quote.path))
        ]  # fmt: skip
        if not matches:
            raise UserError(f"{match[0]} is not quoted", remedy=f"name one of the quotes, or none for all: {places}")
        named_quotes += matches
    named_quotes = named_quotes or [quote for quote in quotes if quote.path in text]
    answers = [section for section in re.split(r"(?m)^## ", result) if quotes_in(section)]
    if len(answers) > 1 and not named_quotes:
        raise UserError(f"{len(answers)} questions have quotes", remedy=f"name the wrong quotes: {places}")
    return named_quotes or quotes


def _latest_result(layout: Layout, task_id: str, ended: Path | None) -> str:
    """Return the result of a task that is over, else that of its latest attempt with a result; "" without any."""
    if ended is not None:
        return read_outcome(ended) or ""
    folders = (layout.inbox / task_id, layout.active / task_id)
    results = [result for folder in folders for result in (folder / ATTEMPTS).glob("[0-9]*/result.md")]
    results.sort(key=lambda result: (len(result.parent.name), result))
    results += filter(Path.exists, (folder / "result.md" for folder in folders))  # it is set aside at the next claim
    return results[-1].read_text("utf-8", "replace") if results else ""


@frozen
class SaidText:
    """A text that was added to a task: the task's folder, and the places of the quotes that the text calls wrong.

    If `answering_hive` is None, this hive does not use these quotes again. Else that linked hive has answered, and only it can
    exclude them.
    """

    path: Path
    wrong_places: tuple[str, ...] = ()
    answering_hive: str | None = None

    @property
    def consequence(self) -> str:
        """Return a sentence on the quotes, or "" if there are none."""
        places = ", ".join(self.wrong_places)
        if self.answering_hive:
            return f"{self.answering_hive} may quote this again until it is called wrong there: {places}"
        return places and f"Not quoted again until the file changes (tasks/wrong-quotes.yaml): {places}"


def say(hive: Parts, task_id: str, text: str, *, by: str = HUMAN) -> SaidText:
    """Add a text to a task, and return what this changes. A task that is over goes back to the inbox with the text.

    If the text calls the latest result wrong, the quotes that it names (all, if it names none) are not used again. Raises
    UserError if it names a place that is not quoted, or names none and the quotes answer several questions.
    """
    from hivemind.documents.wrong_quotes import WrongQuote, add_wrong_quotes, calls_wrong  # late: `task show` is fast

    place = ended_folder(hive.layout, check_name(task_id, "task id"))
    if place is not None and not text.strip():
        raise UserError("the text to add is empty", location=task_id)
    answering_hive, named_quotes = None, list[Citation]()
    if calls_wrong(text):
        named_quotes += _named_quotes(text, _latest_result(hive.layout, task_id, place))
    if named_quotes and not (answering_hive := hive.tasks.get(task_id).kept.get("hive")):
        wrong_quotes = [
            WrongQuote(quote.path, quote.start_line, quote.end_line, quote.digest, quote.text, task_id, text.strip())
            for quote in named_quotes
        ]
        add_wrong_quotes(hive.layout, wrong_quotes)
    add_text = hive.tasks.say if place is None else hive.tasks.active.reopen
    return SaidText(add_text(task_id, text, by=by), tuple(quote.place for quote in named_quotes), answering_hive)
