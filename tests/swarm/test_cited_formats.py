"""Documents of every format go the whole way: task, quote, review, result; then each cited place is opened."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence

from tests.cited import FORMATS, SOURCES, VARIATIONS, cited_in, has, opened, pages_of
from tests.sample import IS_WHOLE, sampled

_SHARE = 8 if IS_WHOLE else 3  # pages of each source


def ask(hive, task: str, questions: Sequence[str]) -> None:
    hive.drop(f"{task}.md", "".join(f"* {question}\n" for question in questions))


def check(hive, task: str, files: Sequence[str]) -> None:
    """There are quotes, of each of the files; and each place that is cited has the quote."""
    result = hive.result(task)
    cited = cited_in(result)
    for quote, path, first, last in cited:
        assert has(opened(hive.root / path, first, last), quote), (path, first, last, quote)
    assert cited
    assert not set(files) - {path for _, path, _, _ in cited}
    assert "every quote is at its cited place" in result
    assert "Not confirmed" not in result


@sampled
def test_quotes_of_every_format_and_of_shipped_pages_stand_where_the_result_says(hive) -> None:
    hive.configure(embedder="none", durability="relaxed")
    asked: dict[str, tuple[list[str], list[str]]] = {}
    for form, document in FORMATS.items():
        questions, files = asked.setdefault(form, ([], []))
        for number, (how, vary) in enumerate(VARIATIONS.items()):
            if form != "pdf" or how in ("plain", "no end of line"):
                name = f"zeppelin{number}{form}"
                (hive.root / "knowledge" / f"{name}.{form}").write_bytes(vary(document(name)))
                questions.append(f"Who is the captain of the {name}?")
                files.append(f"knowledge/{name}.{form}")
    for source in SOURCES:
        pages = [page for page in pages_of(source, 1) if page.stat().st_size < 100_000]
        for page in pages[:: max(1, len(pages) // _SHARE)]:
            text = " ".join(opened(page, 1, page.read_bytes().count(b"\n") + 1).split())
            words = re.findall(r"[a-z]{3,}", text[len(text) // 2 :])[:10]
            task = source.lower().replace(" ", "-")
            shutil.copyfile(page, hive.root / "knowledge" / f"{task}-{page.name}")
            asked.setdefault(task, ([], []))[0].append(" ".join(words))
    for task, (questions, _) in asked.items():
        ask(hive, task, questions)
    printed = hive.run("up", "--until-idle", status=None)
    assert {task: hive.task(task) for task in asked} == dict.fromkeys(asked, "done"), printed
    for task, (_, files) in asked.items():
        check(hive, task, files)
