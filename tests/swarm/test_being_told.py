"""People are told of tasks that are done, failed or parked: once by letter, at least once by a program or a webhook."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.swarm.due import do_due
from tests.program import run
from tests.slow_server import slow_server
from tests.swarm.conftest import Swarm

WRITES = ["sh", "-c", 'cat >> told.jsonl; echo >> told.jsonl; printf "%s|%s\\n" "$1" "$2" >> told.txt', "told"]


def opened(tmp_path: Path, settings: dict) -> Hive:
    root = tmp_path / "hive"
    Hive.init(root)
    (root / "hive.yaml").write_text(json.dumps({"durability": "relaxed", "settle_ms": 0, **settings}))  # JSON is YAML
    return Hive.open(root)


def opened_again(hive: Hive, settings: dict) -> Hive:
    (hive.layout.root / "hive.yaml").write_text(json.dumps({"durability": "relaxed", "settle_ms": 0, **settings}))
    return Hive.open(hive.layout.root)


def claimed(hive: Hive, text: str = "What has a keel?", **fields: object):
    hive.tasks.add(text, **fields)
    task = hive.tasks.claim("researcher")
    assert task is not None
    return task


def letters(hive: Hive) -> list[str]:
    return [one.subject for one in hive.mail.list("human")]


def programs_told(hive: Hive) -> list[dict]:
    path = hive.layout.root / "told.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


@pytest.mark.shows("promise: P53")
def test_a_swarm_tells_of_what_failed_by_a_letter_and_of_what_it_is_asked_to_by_a_program(hive: Swarm):
    hive.drop("fails.md", "---\nsteps: [{run: 'exit 3'}]\n---\nMend the boat\n")
    hive.drop("broken.md", "---\nnonsense: 1\n---\nx\n")
    hive.drop("good.md", "What has a keel?\n")
    hive.drop("watched.md", "---\nnotify: [done]\n---\nWhat is moved with oars?\n")
    hive.drop("quiet.md", "---\nnotify: never\nsteps: [{run: 'exit 3'}]\n---\nNobody cares\n")
    hive.drop("asks.md", "---\nsteps: [{wait: {human: 'Which boat?'}}]\nnotify: [parked]\n---\nAsk\n")
    hive.configure(notify={"program": WRITES})
    hive.run("up", "--until-idle", status=1)
    told = sorted(
        (one["event"], one["task"]) for one in map(json.loads, (hive.root / "told.jsonl").read_text().splitlines())
    )
    assert told == [("done", "watched"), ("failed", "broken"), ("failed", "fails"), ("parked", "asks")]
    assert "Failed: Mend the boat|fails: the command `exit 3`" in (hive.root / "told.txt").read_text()
    subjects = sorted(one["subject"] for one in json.loads(hive.run("mail", "list", "human", "--json")))
    assert [one for one in subjects if one.startswith(("Done", "Failed", "Parked"))] == [
        "Done: What is moved with oars?",
        "Failed: Mend the boat",
        "Failed: broken",
    ], "of a question its own letter tells"
    assert json.loads(hive.run("status", "--json"))["untold"] == 0


def test_nothing_is_told_before_the_end_of_a_task_nor_of_what_agents_or_people_ended_themselves(tmp_path: Path):
    hive = opened(tmp_path, {"notify": {"events": ["done", "failed"]}})
    task = claimed(hive)
    hive.tasks.outbox.put("done", task.id, None, None)  # as the agent did that was killed before the end was written
    assert do_due(hive).notified == ()
    following = do_due(hive).next
    assert following is not None
    record = json.loads((hive.layout.root / ".hive/due.json").read_text())
    assert datetime.fromisoformat(record["at"]) == following
    hive.tasks.finish(task, "A sailing boat.")
    assert do_due(hive).notified == (f"letter: {task.id} done",)
    hive.tasks.add("x", by="analyst")
    own = hive.tasks.claim("researcher")
    assert own is not None
    hive.tasks.fail(own, "no")
    hive.tasks.add("y", id="y")
    hive.tasks.cancel("y")
    assert do_due(hive).notified == ()
    assert not list((hive.layout.root / ".hive/outbox").glob("*.json"))


@pytest.mark.shows("promise: P53")
def test_killed_while_telling_a_letter_comes_once_and_a_program_is_told_again_under_the_same_id(tmp_path: Path):
    hive = opened(tmp_path, {"notify": {"program": WRITES}})
    hive.tasks.fail(claimed(hive), "no wind")
    command = ["--hive", str(hive.layout.root), "due"]
    for times in (1, 2, 3):  # after the letter, after the program, and once more after the program
        dead = run(command, env={**os.environ, "HIVEMIND_CRASH_AT": "due.sent"}, capture_output=True)
        assert dead.returncode != 0, times
    run(command, check=True, capture_output=True)
    run(command, check=True, capture_output=True)
    assert letters(hive) == ["Failed: What has a keel?"]
    told = programs_told(hive)
    assert len(told) >= 1
    assert len({one["id"] for one in told}) == 1


def test_what_others_wrote_is_one_argument_that_is_no_option_and_has_no_secret(tmp_path: Path):
    hive = opened(tmp_path, {"notify": {"program": ["sh", "-c", 'printf "%s\\0" "$@" > words', "told"]}})
    secret = "sk-ant-api03-" + "a1B2c3D4" * 8
    task = claimed(hive, title="--icon=/etc/passwd \x1b[31m $(touch gone)", text=f"x {secret}")
    hive.tasks.fail(task, f"--help {secret}\n\nmore")
    do_due(hive)
    words = (hive.layout.root / "words").read_text().split("\0")[:-1]
    assert len(words) == 2
    assert words[0].startswith("Failed: --icon=/etc/passwd ")
    assert words[1].startswith(f"{task.id}: ")
    assert not any(one in "".join(words) for one in ("\x1b", secret))
    assert not (hive.layout.root / "gone").exists()


class Receiver(BaseHTTPRequestHandler):
    """Remembers requests, and answers what the test says."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.requests.append((dict(self.headers), body))
        self.send_response(self.server.answers)
        self.send_header("location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def receiver() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    server.requests, server.answers = [], 200
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def slow() -> Iterator[str]:
    """The address of a server that answers a byte in a tenth of a second, for ever."""
    with slow_server() as url:
        yield url


@pytest.mark.slow
def test_a_webhook_is_signed_tried_again_ever_later_and_given_up_after_a_day_in_words(
    tmp_path: Path, receiver: HTTPServer, monkeypatch: pytest.MonkeyPatch
):
    key = b"a secret of 24 bytes ..."
    monkeypatch.setenv("HOOK_SECRET", f"whsec_{base64.b64encode(key).decode()}")
    url = f"http://127.0.0.1:{receiver.server_port}/hook"
    told = {"notify": {"events": ["done"], "letter": False, "webhook": {"url": url, "secret_env": "HOOK_SECRET"}}}
    hive = opened(tmp_path, told)
    hive.tasks.finish(claimed(hive), "A sailing boat.")
    now = datetime.now(UTC)
    receiver.answers = 302  # is not followed
    pauses, moment = [], now
    while moment < now + timedelta(hours=25):
        following = do_due(hive, lambda: moment).next  # noqa: B023 - called at once
        if following is None:
            break
        assert do_due(hive, lambda: moment).notified == ()  # noqa: B023 - and not before its time
        pauses.append((following - moment).total_seconds())
        moment = following
    assert pauses[:4] == [30, 60, 120, 240]
    assert max(pauses) == 3600
    assert len(receiver.requests) == len(pauses) + 1
    assert letters(hive) == ["Not sent by webhook: what-has-a-keel"]

    receiver.answers = 200
    hive.tasks.retry("what-has-a-keel")
    again = hive.tasks.claim("researcher")
    assert again is not None
    hive.tasks.finish(again, "A sailing boat.")
    receiver.requests.clear()
    assert do_due(hive).notified == ("webhook: what-has-a-keel done",)
    headers, body = receiver.requests[0]
    headers = {name.lower(): value for name, value in headers.items()}
    text = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    signature = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{signature}"
    assert json.loads(body)["id"] == headers["webhook-id"]
    assert json.loads(body)["where"] == "tasks/done/what-has-a-keel"


def test_a_way_that_is_broken_keeps_no_task_and_no_other_way(tmp_path: Path):
    hook = {"url": "http://127.0.0.1:1/", "secret_env": "NONE"}
    hive = opened(tmp_path, {"notify": {"events": ["done"], "program": "false", "webhook": hook}})
    for number in range(3):
        hive.tasks.finish(claimed(hive, f"What is {number}?"), "That.")
    assert len(do_due(hive).notified) == 3
    assert len(letters(hive)) == 3
    assert hive.tasks.outbox.count == 3


def test_a_notice_that_no_program_takes_is_tried_again_alone_and_the_others_are_told(tmp_path: Path):
    refuses = ["sh", "-c", 'case "$2" in stubborn*) exit 3;; esac; echo "$2" >> told.txt', "told"]
    hive = opened(tmp_path, {"notify": {"program": refuses, "webhook": {"url": "http://127.0.0.1:1/"}}})
    for name in ("stubborn", "one", "two"):
        hive.tasks.fail(claimed(hive, id=name), "no wind")
    assert sorted(do_due(hive).notified) == sorted(
        [f"letter: {name} failed" for name in ("stubborn", "one", "two")]
        + ["program: one failed", "program: two failed"]
    )
    assert hive.tasks.outbox.count == 3
    refuses[2] = refuses[2].replace("exit 3", "")
    hive = opened_again(hive, {"notify": {"program": refuses}})
    assert do_due(hive, lambda: datetime.now(UTC) + timedelta(minutes=1)).notified == ("program: stubborn failed",)
    assert hive.tasks.outbox.count == 0


def test_what_is_told_has_a_bound(tmp_path: Path):
    hive = opened(tmp_path, {"notify": {"program": WRITES}})
    hive.tasks.fail(claimed(hive, title="t" * 200_000, text="x", id="huge"), "no wind, " * 30_000)
    hive.tasks.fail(claimed(hive, id="small"), "no wind")
    assert len(do_due(hive).notified) == 4
    huge, small = programs_told(hive)
    assert {len(huge[name]) for name in ("title", "summary")} == {2001}
    assert small["why"] == "no wind"


def test_a_webhook_that_answers_a_byte_at_a_time_has_the_whole_time_of_a_request_and_no_more(
    tmp_path: Path, slow: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("hivemind.swarm.due._WEBHOOK_S", 1.0)
    hive = opened(tmp_path, {"notify": {"webhook": {"url": slow}}})
    hive.tasks.fail(claimed(hive), "no wind")
    assert do_due(hive).notified == ("letter: what-has-a-keel failed",)
    assert "did not answer within 1 s" in caplog.text


def test_a_record_that_cannot_be_read_is_set_aside_and_the_others_are_told(tmp_path: Path):
    hive = opened(tmp_path, {})
    hive.tasks.fail(claimed(hive), "no wind")
    (hive.layout.root / ".hive/outbox/evil.done.json").write_text("{")
    assert len(do_due(hive).notified) == 1
    assert hive.tasks.outbox.count == 0
