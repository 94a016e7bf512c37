"""Clients that say nothing, too much, go away, or lead elsewhere: the page answers others, and the terminal stays quiet."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.waiting import until
from tests.web.conftest import Site, events, filled, serving

CHUNK = b"100000\r\n" + b"a" * (1 << 20) + b"\r\n"


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the process of the page writes its errors."""
    return tmp_path_factory.mktemp("terminal") / "errors"


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory, terminal: Path) -> Iterator[Site]:
    """A page whose process may have few files open."""
    root = tmp_path_factory.mktemp("web") / "hive"
    filled(root)
    with terminal.open("w") as errors, serving(root, stderr=errors) as site:
        resource.prlimit(site.pid, resource.RLIMIT_NOFILE, (256, 256))
        yield site
    assert terminal.read_text().count("\n") <= 1


def connected(site: Site, head: str = "") -> socket.socket:
    """A client that has sent the beginning of a request; of a form, if it is none."""
    client = socket.create_connection(("127.0.0.1", site.port), timeout=60)
    form = f"POST {site.root}/do/add HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    client.sendall((head or form).encode())
    return client


def test_silent_connections_without_the_secret_hold_up_nobody(crowded: Site, terminal: Path) -> None:
    with ExitStack() as held:
        for number in range(400):
            head = "GET /s/x/ HTTP/1.1\r\nHost: localhost\r\nX-Slow: " if number % 2 else "\r\n"
            held.enter_context(connected(crowded, head))
        assert crowded.get("/").status == 200
        assert "too many connections: the oldest" in terminal.read_text()


@pytest.mark.parametrize("length", ["Content-Length: 41943040", "Transfer-Encoding: chunked"])
def test_a_body_over_the_limit_is_refused_whatever_its_head_says(crowded: Site, length: str) -> None:
    with connected(crowded) as client:
        client.sendall(f"{length}\r\n\r\n".encode())
        answer = threading.Thread(target=lambda: answers.append(client.recv(12)))
        answers: list[bytes] = []
        answer.start()
        while answer.is_alive():
            try:
                client.sendall(CHUNK)
            except ConnectionError:  # it was answered, and has been closed
                break
        answer.join(60)
    assert answers == [b"HTTP/1.1 413"]


def test_a_client_that_goes_away_has_done_nothing_and_leaves_nothing(crowded: Site, terminal: Path) -> None:
    before, said = events(crowded.hive), terminal.read_text()
    for length in ("Content-Length: 1000", "Transfer-Encoding: chunked"):
        with connected(crowded) as client:
            client.sendall(f"{length}\r\n\r\n3\r\nabc\r\n".encode())
    with connected(crowded, f"GET {crowded.root}/live?of=tasks HTTP/1.1\r\nHost: localhost\r\n\r\n") as client:
        assert client.recv(12) == b"HTTP/1.1 200"
    assert crowded.get("/").status == 200
    assert events(crowded.hive) == before
    assert terminal.read_text() == said


ELSEWHERE = ("/\t/evil.example", "//evil.example", "/\\evil.example", "/%09/evil.example?token=x", "http://evil.example",
             "x\r\nLocation: http://evil.example", "../../..//evil.example")  # fmt: skip


@pytest.mark.parametrize("path", ELSEWHERE)
def test_no_path_leads_to_another_host(crowded: Site, path: str) -> None:
    for root in ("", crowded.root):
        got = crowded.ask("GET", root + quote(path if path.startswith("/") else f"/{path}", safe="/%?=\\"))
        assert got.status in (401, 404)
        assert "location" not in got.headers
    [letter] = [one for one in crowded.hive.mail.list("human") if one.subject == "Which colour?"]
    got = crowded.post("read", box="human", id=letter.id, **{"from": path})
    assert got.status == 303
    assert got.headers["location"].startswith("../")
    assert set(got.headers["location"]) <= {chr(code) for code in range(33, 127)} - {"\\"}


def test_a_form_that_is_sent_three_times_is_done_once(crowded: Site) -> None:
    form = {"number": crowded.number(), "text": "Bail out the boat", "title": "Bail"}
    answers: list[str] = []
    senders = [
        threading.Thread(target=lambda: answers.append(crowded.followed(crowded.send("/do/add", form)))) for _ in "123"
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(60)
    assert [answer.count("bail waits in the inbox.") for answer in answers] == [1, 1, 1]
    assert [task.id for task in crowded.hive.tasks.list() if task.id.startswith("bail")] == ["bail"]
    other = crowded.send("/do/add", {**form, "text": "Sink the boat"})
    assert (other.status, "sent before with other content: bail waits" in other.text) == (400, True)


def test_a_form_that_was_refused_can_be_mended_and_sent_again(crowded: Site) -> None:
    number = crowded.number()
    assert crowded.send("/do/say", {"number": number, "task": "paint", "text": " "}).status == 400
    assert "Added to paint." in crowded.followed(
        crowded.send("/do/say", {"number": number, "task": "paint", "text": "Blue"})
    )


def test_a_long_text_is_shown_in_part_and_does_not_hold_the_page(crowded: Site) -> None:
    crowded.hive.tasks.add("[[](" * 250_000, id="brackets", title="Brackets")
    until(lambda: "brackets" in crowded.get("/").text)
    got = crowded.get("/tasks/brackets")
    assert got.status == 200
    assert "… 960k characters more" in got.text
    assert len(got.text) < 200_000
