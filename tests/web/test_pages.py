"""What the pages show, and what a person does on them."""

from __future__ import annotations

import hashlib
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.coordination import Steps
from hivemind.coordination.step import Receipt
from tests.cited import pdf
from tests.cli.conftest import make_hive
from tests.waiting import until
from tests.web.conftest import Site, claimed, events, filled, serving

pytest.importorskip("starlette")

from hivemind.web.index import PageIndex
from hivemind.web.render import PageRenderer
from tests.program import run


def test_hivemind_web_prints_a_link_that_leads_in_and_ends_in_order(tmp_path: Path) -> None:
    root = make_hive(tmp_path / "hive")
    command = [sys.executable, "-m", "hivemind", "web", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root)
    assert process.stdout is not None
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/s/[\w-]{40,}/\n", process.stdout.readline())
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode in (0, 130)


def test_the_first_page_says_who_waits_for_a_person_what_agents_do_and_how_tasks_stand(site: Site) -> None:
    shown = site.get("/").text
    assert "<title>(2) Now" in shown  # a question and a failure
    assert "Red or blue?" in shown
    assert '<a class="main" href="./tasks/paint">Paint the boats</a>' in shown.partition('id="agents"')[0]
    assert all(name in shown for name in ("analyst", "researcher", "reviewer"))
    assert all(f'href="./tasks/{one}"' in shown for one in ("lease", "count", "paint", "later"))


def test_the_board_is_filtered_sorted_and_paged(site: Site) -> None:
    board = site.get("/?state=done", **{"HX-Request": "true", "HX-Target": "board"}).text
    assert board.lstrip().startswith('<section id="board"')
    assert '"./tasks/lease"' in board
    assert '"./tasks/count"' not in board
    assert '"./tasks/lease"' in site.get("/?q=LEASE").text
    assert '"./tasks/lease"' not in site.get("/?state=waiting&q=lea%25se").text.partition('id="board"')[2]


def test_a_task_shows_its_result_with_sources_its_steps_turns_and_what_it_used(site: Site) -> None:
    shown = site.get("/tasks/lease").text
    assert 'href="./files?path=knowledge%2Flease.md&amp;first=3&amp;last=3"' in shown
    assert "3 turns, 3,150 tokens, 0.03" in shown
    assert "50 % cached" in shown
    assert "I read file 2." in shown
    assert 'class="drawing timeline"' in shown
    lines = site.get("/files?path=knowledge/lease.md&first=3&last=3").text
    assert 'class="row quoted"' in lines
    assert "A lease is the right" in lines


QUOTE = """> Leases
> ------
>
>     lease = renew(step,
>                   <b>generation</b>)
> # A comment
"""


@pytest.mark.parametrize("place", ["lease.txt:1-6", "lease.c:1", "lease.pdf:2", "lease.html:3-4` Leases / `Late"])
def test_a_quote_of_what_is_no_markdown_keeps_its_lines(place: str) -> None:
    shown = PageRenderer().render_markdown(f"{QUOTE}\n— `knowledge/{place}` (sha256 12)\n\n## Sources\n")
    lines = "Leases\n------\n\n    lease = renew(step,\n                  &lt;b&gt;generation&lt;/b&gt;)\n# A comment"
    assert f"<blockquote><pre>{lines}</pre></blockquote>" in shown
    assert "<h1>" not in shown
    assert "<h2>Sources</h2>" in shown


def test_a_source_with_spaces_in_its_path_is_a_link() -> None:
    html = PageRenderer().render_markdown("— `knowledge/python how to/a&b %41 #1….md:126-128`")
    assert (
        'href="./files?path=knowledge%2Fpython+how+to%2Fa%26b+%2541+%231%E2%80%A6.md&amp;first=126&amp;last=128"'
        in html
    )


def test_a_quote_of_a_markdown_file_is_markdown_as_is_what_nobody_cites() -> None:
    assert "<h2>Leases</h2>" in PageRenderer().render_markdown(f"{QUOTE}\n— `knowledge/lease.md:1-6` (sha256 12)\n")
    assert "<h2>Leases</h2>" in PageRenderer().render_markdown(f"{QUOTE}\nSo it stands there.\n")


def test_a_result_shows_the_lines_of_the_text_file_that_it_quotes(own_site: Site) -> None:
    task = claimed(own_site.hive, "analyst", "When?", id="when")
    own_site.hive.tasks.finish(task, f"{QUOTE}\n— `knowledge/lease.txt:1-6` (sha256 12)\n")
    assert "<pre>Leases\n------\n" in own_site.get("/tasks/when").text


def test_a_criterion_is_ticked_once_it_is_confirmed(own_site: Site) -> None:
    steps = Steps(own_site.hive.journal)
    [step] = steps.plan("paint", [{"title": "Paint", "success_criteria": ["it is blue"]}])
    assert "○ it is blue" in own_site.get("/tasks/paint").text
    steps.verify(step.id, checkpoints=["criteria"])
    assert "✓ it is blue" in own_site.get("/tasks/paint").text


def test_a_step_shows_which_of_its_receipts_is_a_proof(own_site: Site) -> None:
    steps = Steps(own_site.hive.journal)
    [step] = steps.plan("paint", [{"title": "Pump"}])
    steps.capture(step.id, [Receipt("CMD", "pump --dry", 0), Receipt("CMD", "pump --wet", 1)])
    shown = own_site.get("/tasks/paint").text
    assert re.search('<span class="ok">proof</span> .{0,20}pump --dry', shown)
    assert re.search('<span class="bad">against</span> .{0,20}pump --wet', shown)


def test_mailboxes_have_folders_a_search_and_threads(site: Site) -> None:
    assert "Which colour?" in site.get("/mail").text
    assert "Which colour?" not in site.get("/mail/human?q=nowhere").text
    assert "Which colour?" in site.get("/mail/reviewer?folder=sent").text
    assert "Red or blue?" in site.get("/mail/human/ask.paint.s1.7%40hive").text


def test_a_letter_from_an_unknown_address_says_that_its_answer_leaves_by_a_mail_program(own_site: Site) -> None:
    box = own_site.hive.layout.mailboxes / "human"
    (box / "new" / "1790000000.M1P1.elsewhere").write_text(
        "From: ann@elsewhere.example\nMessage-ID: <boat@elsewhere.example>\nSubject: A boat\n\nIs it yours?\n"
    )
    shown = own_site.get("/mail/human/boat%40elsewhere.example").text
    assert "Is it yours?" in shown
    assert "does not know ann@elsewhere.example: answer with a mail program" in shown
    refused = own_site.post("reply", id="boat@elsewhere.example", text="It is")
    assert refused.status == 400, refused.text
    assert "ann@elsewhere.example" in refused.text
    assert "Re: A boat" not in [one.subject for one in own_site.hive.mail.list("human", "sent")]


def test_what_is_archived_of_a_mailbox_is_shown_by_month(own_site: Site) -> None:
    box = own_site.hive.layout.mailboxes / "human"
    (box / "cur" / "1600000000.M1P1.elsewhere:2,S").write_text("From: ann@x\nSubject: An old boat\n\nIs it yours?\n")
    run(["--hive", own_site.hive.layout.root, "archive", "--older-than", "1000d"], check=True, capture_output=True)
    assert "An old boat" not in own_site.get("/mail/human").text
    assert "folder=archive%2F2020-09" in own_site.get("/mail/human?folder=archive").text
    assert "An old boat" in own_site.get("/mail/human?folder=archive%2F2020-09").text


def test_an_agent_shows_what_its_context_would_be_and_why(site: Site) -> None:
    shown = site.get("/agents/reviewer").text
    assert 'class="drawing budget"' in shown
    assert "tokens" in shown


def test_the_journal_is_filtered_and_paged(site: Site) -> None:
    assert "task.claimed" in site.get("/journal").text or "task." in site.get("/journal").text
    assert "lease" in site.get("/journal?task=lease").text
    assert "No such event" in site.get("/journal?kind=nothing").text


def test_the_journal_has_times_and_leaves_heartbeats_to_who_asks_for_them(own_site: Site) -> None:
    journal = own_site.hive.journal
    journal.append("boat.found", time=1_600_000_000)
    journal.append("boat.lost")
    for _ in range(300):
        journal.append("agent.heartbeat", agent_id="analyst", time=1_600_000_000)
    shown = own_site.get("/journal").text
    assert "boat.lost" in shown
    assert shown.count('<time datetime="2020-09-13T') == 2  # that of `boat.lost` is the one before it
    assert "agent.heartbeat" not in shown.partition("<tbody")[2]
    assert "agent.heartbeat" in own_site.get("/journal?kind=agent.heartbeat").text.partition("<tbody")[2]
    assert "boat.found" in own_site.get("/journal?kind=boat").text


def test_what_agents_and_tasks_write_into_the_journal_has_a_time(own_site: Site) -> None:
    task = own_site.hive.tasks.add("Look out")
    assert claimed(own_site.hive, "analyst", "Look round", id="round").id == "round"
    own_site.post("cancel", task=task)
    kinds = {event.kind for event in own_site.hive.journal.read() if "time" in event.payload}
    assert {"task.claimed", "human.did"} <= kinds


def test_costs_stand_by_agent_task_and_model(site: Site) -> None:
    until(lambda: "3,150" in site.get("/costs?days=365").text)
    assert 'href="./tasks/lease"' in site.get("/costs?by=task&days=365").text
    assert "Indexing ended tasks" not in site.get("/costs").text
    assert "test:model" in site.get("/costs?by=model&days=365").text


def test_a_person_adds_answers_retries_and_cancels_and_the_journal_says_so(own_site: Site) -> None:
    hive, before = own_site.hive, len(events(own_site.hive))
    added = own_site.followed(own_site.post("add", text="How deep is the lake?"))
    assert "how-deep-is-the-lake waits in the inbox." in added
    answered = own_site.followed(own_site.post("reply", id="ask.paint.s1.7@hive", text="Blue", **{"from": "/"}))
    assert "Answered." in answered
    assert "Red or blue?" not in answered.partition('id="agents"')[0]
    [letter] = [one for one in hive.mail.list("reviewer") if one.sender == "human"]
    assert hive.mail.read("reviewer", letter.id, mark=False).body.strip() == "Blue"
    assert "is back in the inbox" in own_site.followed(own_site.post("retry", task="count"))
    assert "is cancelled" in own_site.followed(own_site.post("cancel", task="later"))
    assert "Added to paint." in own_site.followed(own_site.post("say", task="paint", text="The big ones first"))
    assert "Sent to analyst" in own_site.followed(
        own_site.post("send", to="analyst", subject="Hello", text="How is it?")
    )
    assert [one["act"] for one in events(hive)[before:]] == [
        "task add",
        "mail reply",
        "task retry",
        "task cancel",
        "task say",
        "mail send",
    ]
    assert {one["agent_id"] for one in events(hive)} == {"human"}


@pytest.mark.parametrize("name", ["ferry.pdf", "ferry.txt", "wide.txt"])
def test_the_quoted_line_of_a_pdf_or_of_another_encoding_is_shown(own_site: Site, name: str) -> None:
    text = "The café opens.\nIt closes at nine."
    content = {"ferry.pdf": pdf("One page.", "It closes\nat nine."), "ferry.txt": text.encode("latin-1")}
    (own_site.hive.layout.knowledge / name).write_bytes(content.get(name, text.encode("utf-16")))
    page = own_site.get(f"/files?path=knowledge/{name}&first=2&last=2").text
    quoted_line = page.partition('class="row quoted"')[2]
    assert "It closes at nine." in quoted_line
    assert ("One page." if name.endswith("pdf") else "The café opens.") in page.partition('class="row quoted"')[0]


def test_a_person_calls_a_result_wrong_on_the_page_and_sees_what_is_not_quoted_again(own_site: Site) -> None:
    hive = own_site.hive
    source = hive.layout.knowledge / "lease.md"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    task = claimed(hive, "analyst", "What is a right?", id="right")
    hive.tasks.finish(task, f"> A lease is the right\n\n— `knowledge/lease.md:3` (sha256 {digest})\n")
    assert "Say what is wrong" in own_site.get("/tasks/right").text
    assert "was changed since it was quoted" not in own_site.get("/tasks/right").text
    source.write_text("# Leases\n")
    assert "knowledge/lease.md was changed since it was quoted" in own_site.get("/tasks/right").text
    page = own_site.followed(own_site.post("say", task="right", text="That is wrong."))
    assert "right is back in the inbox with what you said." in page
    assert "Not quoted again until the file changes (tasks/wrong-quotes.yaml): knowledge/lease.md:3" in page
    assert "lease.md" in hive.layout.wrong_quotes.read_text()


def test_a_failed_task_is_put_away_on_the_page(own_site: Site) -> None:
    own_site.hive.tasks.fail(claimed(own_site.hive, "analyst", "Mend it", id="leak"), "no tar")
    until(lambda: ">Mend it</a>" in own_site.get("/").text.partition('id="agents"')[0])
    assert '/do/archive"' in own_site.get("/").text.partition('id="agents"')[0]
    assert '/do/archive"' in own_site.get("/tasks/leak").text
    page = own_site.followed(own_site.post("archive", task="leak"))
    assert "leak is archived." in page
    assert ">Mend it</a>" not in page.partition('id="agents"')[0]
    assert '/do/archive"' not in own_site.get("/tasks/leak").text
    assert events(own_site.hive)[-1]["act"] == "archive"


def test_what_cannot_be_done_is_said_and_changes_nothing(own_site: Site) -> None:
    before = events(own_site.hive)
    refused = (
        "retry task=paint",
        "cancel task=lease",
        "add text=",
        "reply id=no",
        "nothing",
        "cancel",
        "send to=nobody",
        "forget key=x",
    )
    for act, *fields in (one.split() for one in refused):
        form = dict(field.split("=") for field in fields)
        got = own_site.post(act, **form)
        assert got.status == 400, act
        assert "Traceback" not in got.text
    assert events(own_site.hive) == before


def test_files_that_are_dropped_on_the_page_go_with_the_task(own_site: Site) -> None:
    fields = (
        f'--b\r\nContent-Disposition: form-data; name="number"\r\n\r\n{own_site.number()}\r\n'
        '--b\r\nContent-Disposition: form-data; name="text"\r\n\r\nCount the boats\r\n'
        '--b\r\nContent-Disposition: form-data; name="files"; filename="../../boats.csv"\r\n\r\nred,3\r\n--b--\r\n'
    )
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    own_site.followed(own_site.ask("POST", f"{own_site.root}/do/add", fields.encode(), headers))
    task = own_site.hive.tasks.claims.claim_one("analyst", "count-the-boats")
    assert task is not None
    assert [path.name for path in task.attachments] == ["boats.csv"]
    assert task.attachments[0].read_text() == "red,3"


def test_a_person_remembers_and_forgets(own_site: Site) -> None:
    assert "created" in own_site.followed(own_site.post("remember", text="Ann prefers tea", key="ann"))
    assert "Ann prefers tea" in own_site.get("/memory?q=tea").text
    assert "is forgotten" in own_site.followed(own_site.post("forget", key="ann"))
    assert "Ann prefers tea" not in own_site.get("/memory").text


def test_the_page_is_told_what_changes_as_it_changes(own_site: Site) -> None:
    heard: list[str] = []
    opened, told = threading.Event(), threading.Event()

    def listen() -> None:
        for topic in own_site.listening("index", "mail"):
            heard.append(topic)
            (opened if topic == "open" else told).set()
            if topic == "mail" and len(heard) > 3:
                return

    listener = threading.Thread(target=listen)
    listener.start()
    assert opened.wait(60)
    assert told.wait(60)  # each folder is looked at once when the watch begins
    while listener.is_alive():
        own_site.hive.mail.send("analyst", "human", "News", "There is some.")
        listener.join(1.0)
    assert "mail" in heard


def test_the_index_is_a_cache_that_may_be_damaged_and_taken_away(tmp_path: Path) -> None:
    hive = filled(tmp_path / "hive")
    index = PageIndex(hive.layout.root)
    assert index.sync(60)
    assert index.progress == (2, 2)
    index.close()
    place = tmp_path / "hive" / ".hive" / "web.db"
    place.write_bytes(b"no database at all" * 100)
    index = PageIndex(hive.layout.root)
    assert index.sync(60)
    [lease], total = index.ended_tasks(["done"], "lease", "newest", 10, 0)
    assert (total, lease.title, lease.tokens) == (1, "What is a lease?", 3_150)
    Hive.open(hive.layout.root).tasks.retry("lease")
    assert index.sync(60)
    assert index.ended_tasks(["done"], "", "newest", 10, 0) == ([], 0)
    index.close()


def test_what_an_archived_task_used_still_counts_though_it_is_not_on_the_board(tmp_path: Path) -> None:
    hive = filled(tmp_path / "hive")
    index = PageIndex(hive.layout.root)
    assert index.sync(60)
    used = {what: index.usage_by(what, 0) for what in ("agent", "model", "task")}
    assert {sum(one.tokens for one in found.values()) for found in used.values()} == {3_150}
    place = hive.layout.archive / "2026-11/done"
    place.mkdir(parents=True)
    (hive.layout.done / "lease").rename(place / "lease")
    for _ in range(2):
        assert index.sync(60)
        assert index.ended_tasks(["done"], "", "newest", 10, 0) == ([], 0)
        assert {what: index.usage_by(what, 0) for what in used} == used
        index.close()
        (hive.layout.root / ".hive/web.db").unlink()
        index = PageIndex(hive.layout.root)
    index.close()


def test_nothing_of_the_page_is_imported_by_another_command() -> None:
    seen = "[name for name in sys.modules if name.split('.')[0] in ('starlette', 'uvicorn', 'jinja2')]"
    code = f"import sys; from hivemind.cli.main import build_parser; build_parser(); print({seen})"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_a_person_stops_and_starts_an_agent(own_site: Site) -> None:
    asks = own_site.get("/agents/analyst").text.partition("This ends what it runs now")
    assert ("<details>" in asks[0][-200:], ">Stop analyst</button>" in asks[2]) == (True, True)
    assert "analyst has stopped." in own_site.followed(own_site.post("stop", agent="analyst"))
    assert "analyst is started" in own_site.followed(own_site.post("start", agent="analyst"))
    assert "analyst was not stopped." in own_site.followed(own_site.post("start", agent="analyst"))
    assert own_site.post("stop", agent="nobody").status == 400


def test_a_person_answers_a_coding_agent_that_asks_for_permission(own_site: Site) -> None:
    from hivemind.web.snapshot import Need

    question = own_site.hive.mail.send("analyst", ["human"], "Permission: A task", "analyst wants to do this: make\n")
    letter = own_site.hive.mail.read("human", question.message_id, mark=False)
    need = Need("question", "a-task", letter.subject, letter.date, letter)
    assert need.is_permission
    assert not need.is_review
    own_site.post("reply", id=letter.id, verdict="always")
    own_site.post("reply", id=letter.id, verdict="deny", text="use make test")
    texts = [path.read_text() for path in (own_site.hive.layout.mailbox("analyst") / "new").iterdir()]
    assert [sum(f"\n\n{answer}\n" in text for text in texts) for answer in ("always", "deny use make test")] == [1, 1]


def test_the_page_of_a_file_that_became_no_task_shows_why_and_the_file(tmp_path: Path) -> None:
    hive = Hive.open(make_hive(tmp_path / "hive"))
    (hive.layout.inbox / "bad.md").write_text("---\npriority: [\n---\nx\n")
    assert hive.tasks.claim("analyst") is None
    with serving(hive.layout.root) as site:
        result, _, rest = site.get("/tasks/bad").text.partition('id="asked-head"')
    assert "bad.md could not become a task" in result
    assert "None yet." not in result.partition('id="result-head"')[2]
    assert "tasks/failed/bad/bad.md" in rest
