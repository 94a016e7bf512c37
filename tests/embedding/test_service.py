"""One process embeds for all: started by whoever is first, done without when it fails, gone when nobody needs it."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from hivemind.embedding import Embedder, EmbedderUnavailable, HashingEmbedder, SharedEmbedder, open_embedder, service
from hivemind.embedding.service import Server, connect, listen, lock_of, users_folder
from hivemind.fs.sockets import wait_for_input

TEXTS = ["a cat on the mat", "", "x" * 100_000, "\udc80 half a character", "a cat on the mat"]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def shared(folder: Path, clock: Clock | None = None, silent_s: float = 20.0) -> SharedEmbedder:
    return SharedEmbedder(folder, "hashing", "hashing-384", 384, silent_s=silent_s, clock=clock or Clock())


def pid_of(folder: Path) -> int:
    holder = lock_of(os.fspath(folder), "hashing").holder()
    assert holder is not None
    pid = holder["pid"]
    assert isinstance(pid, int)
    return pid


def wait_for(pid: int) -> None:
    """Until a process that is not our child is gone."""
    file = os.pidfd_open(pid)
    wait_for_input([file], 20)
    os.close(file)


def test_the_first_to_ask_starts_the_process_and_all_get_the_same_vectors(folder: Path) -> None:
    one, other = shared(folder), shared(folder)
    rows = one.embed(TEXTS)
    assert [list(row) for row in other.embed(TEXTS)] == [list(row) for row in rows]
    wanted = HashingEmbedder().embed(TEXTS)
    for row, want in zip(rows, wanted, strict=True):
        length = sum(value * value for value in want) ** 0.5
        assert max(abs(a - b / length) for a, b in zip(row, want, strict=True)) < 1e-6
    assert pid_of(folder) != os.getpid()


def test_more_texts_than_one_request_takes_come_back_in_their_order(folder: Path) -> None:
    texts = [f"text number {number}" for number in range(150)]
    rows = shared(folder).embed(texts)
    assert len(rows) == 150
    assert list(rows[149]) == list(shared(folder).embed([texts[149]])[0])
    assert shared(folder).embed([]) == []


def test_a_killed_process_is_started_again_by_the_next_question(folder: Path) -> None:
    clock = Clock()
    embedder = shared(folder, clock)
    embedder.embed(["a"])
    first = pid_of(folder)
    os.kill(first, signal.SIGKILL)
    wait_for(first)
    assert len(embedder.embed(["a"])) == 1  # its connection was cut: that is noticed and mended at once
    assert pid_of(folder) != first


def test_a_process_that_hangs_is_given_up_killed_and_replaced_after_a_pause(folder: Path) -> None:
    clock = Clock()
    embedder = shared(folder, clock, silent_s=0.3)
    patient = shared(folder)
    patient.embed(["a"])
    hung = pid_of(folder)
    os.kill(hung, signal.SIGSTOP)
    with pytest.raises(EmbedderUnavailable, match="did not answer"):
        embedder.embed(["a"])
    wait_for(hung)
    with pytest.raises(EmbedderUnavailable, match="a moment ago"):
        embedder.embed(["a"])
    clock.now += 1.01
    again = shared(folder, clock)
    assert len(again.embed(["a"])) == 1
    assert pid_of(folder) != hung


def test_pauses_double_up_to_a_minute_and_end_with_success(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    embedder = shared(folder, clock)
    monkeypatch.setattr(sys, "executable", "/does/not/exist")
    for pause in (1, 2, 4, 8, 16, 32, 60, 60):
        with pytest.raises(EmbedderUnavailable, match="does not start"):
            embedder.embed(["a"])
        clock.now += pause - 0.01
        with pytest.raises(EmbedderUnavailable, match="a moment ago"):
            embedder.embed(["a"])
        clock.now += 0.02
    monkeypatch.undo()
    assert len(embedder.embed(["a"])) == 1


def test_garbage_from_the_socket_is_no_vector(folder: Path) -> None:
    with listen(os.fspath(folder), "hashing") as listening:

        def talk() -> None:
            with contextlib.suppress(OSError):  # they leave
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                        connection.recv(1)

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        with pytest.raises(EmbedderUnavailable, match="embedding process failed"):
            shared(folder).embed(["a"])


@pytest.mark.parametrize("nonsense", [b"GET / HTTP/1.1", b"[]", b'{"texts": 3}', b'{"texts": [1]}', b"\xff"])
def test_who_talks_nonsense_is_left_and_nobody_else_suffers(folder: Path, nonsense: bytes) -> None:
    good = shared(folder)
    good.embed(["a"])
    with connect(os.fspath(folder), "hashing", 20.0) as bad:
        bad.recv_bytes()
        bad.send_bytes(nonsense)
        with pytest.raises((EOFError, ConnectionError)):
            bad.recv_bytes()
    assert len(good.embed(["b"])) == 1


def test_another_model_in_the_place_is_told_to_end(folder: Path) -> None:
    shared(folder).embed(["a"])
    first = pid_of(folder)
    with pytest.raises(EmbedderUnavailable, match="was asked to end"):
        SharedEmbedder(folder, "hashing", "another", 384).embed(["a"])
    wait_for(first)


def _ask(folder: Path, start: object, answers: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    rows = shared(folder).embed(["hello"])
    answers.put((pid_of(folder), list(rows[0])))  # type: ignore[attr-defined]


def test_of_many_starters_one_wins_and_all_are_served(folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start, answers = context.Event(), context.Queue()
    asking = [context.Process(target=_ask, args=(folder, start, answers)) for _ in range(4)]
    for process in asking:
        process.start()
    start.set()
    got = [answers.get(timeout=60) for _ in asking]
    for process in asking:
        process.join()
    assert len({pid for pid, _ in got}) == 1
    assert all(row == got[0][1] for _, row in got)


def test_a_fork_makes_a_connection_of_its_own(folder: Path) -> None:
    embedder = shared(folder)
    before = list(embedder.embed(["one"])[0])
    child = os.fork()
    if child == 0:
        same = list(embedder.embed(["two"])[0]) == list(shared(folder).embed(["two"])[0])
        os._exit(0 if same else 1)
    assert list(embedder.embed(["one"])[0]) == before
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_process_inherits_nothing_of_who_started_it(folder: Path, tmp_path: Path) -> None:
    with open(tmp_path / "mine", "w") as mine:
        os.set_inheritable(mine.fileno(), True)
        shared(folder).embed(["a"])
        pid = pid_of(folder)
        held = {os.path.realpath(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    assert os.fspath(tmp_path / "mine") not in held
    assert os.getsid(pid) != os.getsid(0)


def test_all_hives_of_a_user_name_the_same_folder_which_is_the_users_own() -> None:
    pytest.importorskip("onnxruntime")
    one, other = open_embedder("auto", use_service=True), open_embedder("auto", use_service=True)
    assert isinstance(one, SharedEmbedder)
    assert isinstance(other, SharedEmbedder)
    assert one._folder == other._folder == users_folder()
    assert str(os.getuid()) in users_folder()


@contextmanager
def serving(folder: Path, clock: Clock, embedder: Embedder | None = None) -> Iterator[Server]:
    """A server in a thread of this process, whose clock is ours."""
    with listen(os.fspath(folder), "hashing") as listening:
        server = Server(embedder or HashingEmbedder(384), listening, clock=clock)
        thread = threading.Thread(target=server.serve)
        thread.start()
        yield server
        clock.now += 1e6
        thread.join()


def test_it_ends_a_minute_after_its_last_use_though_clients_are_connected(folder: Path) -> None:
    clock = Clock()
    with serving(folder, clock) as server:
        clock.now += 59
        assert not server.is_over()
        assert len(shared(folder).embed(["a"])) == 1
        clock.now += 59
        assert not server.is_over()
        clock.now += 2
        assert server.is_over()


def test_it_ends_when_its_socket_is_taken_away(folder: Path) -> None:
    with serving(folder, Clock()) as server:
        assert not server.is_over()
        (folder / "hashing.socket").unlink()
        assert server.is_over()


def test_a_question_does_not_wait_behind_a_library(folder: Path) -> None:
    asked: list[str] = []
    begun, answered = threading.Event(), threading.Event()

    class Slow(HashingEmbedder):
        def embed(self, texts: list[str]) -> list[list[float]]:
            asked.extend(texts)
            begun.set()
            answered.wait(0.0 if "short" in texts else 1.0)  # a library takes its time
            return list(super().embed(texts))  # type: ignore[arg-type]

    with serving(folder, Clock(), Slow(384)):
        library = threading.Thread(target=lambda: shared(folder).embed(["long"] * 300))
        library.start()
        begun.wait(20)
        with closing(connect(os.fspath(folder), "hashing", 20.0)) as question:
            question.recv_bytes()
            question.send_bytes(b'{"texts": ["short"]}')
            assert len(question.recv_bytes()) == 1 + 4 * 384
            answered.set()
        library.join()
    assert asked.index("short") < 300 - 16


class Gated(HashingEmbedder):
    """Notes each text, and embeds it when `gate` lets it."""

    def __init__(self) -> None:
        super().__init__(384)
        self.seen: list[str] = []
        self.gate = threading.Semaphore(0)
        self.begun = threading.Event()

    def embed(self, texts: list[str]) -> list[list[float]]:
        self.seen.extend(texts)
        self.begun.set()
        self.gate.acquire()
        return list(super().embed(texts))  # type: ignore[arg-type]


@contextmanager
def gated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Gated, Callable[..., Connection]]]:
    """A server with one worker, which is at the text "first"; and a function that sends a request."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    embedder = Gated()
    with serving(folder, Clock(), embedder) as server, contextlib.ExitStack() as connections:

        def ask(*texts: str, **options: object) -> Connection:
            connection = connections.enter_context(closing(connect(os.fspath(folder), "hashing", 20.0)))
            connection.recv_bytes()
            waiting = server._queue.qsize() + len(texts) if embedder.seen else 0
            connection.send_bytes(json.dumps({"texts": texts, **options}).encode())
            while server._queue.qsize() < waiting:
                os.sched_yield()
            return connection

        ask("first")
        embedder.begun.wait(20)
        yield embedder, ask
        embedder.gate.release(100)
        server._is_ended = True


def test_queries_come_first_then_questions_in_their_order_then_the_background(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gated(folder, monkeypatch) as (embedder, ask):
        background = ask("old 1", "old 2", background=True)
        ask("one 1", "one 2", parts="kept")
        ask("two 1", "two 2", parts="kept")
        ask("query", parts="asked")
        embedder.gate.release(8)
        assert [len(background.recv_bytes()) for _ in range(2)] == [1 + 4 * 384] * 2
    assert embedder.seen == ["first", "query", "one 1", "one 2", "two 1", "two 2", "old 1", "old 2"]


def test_background_waits_only_so_long(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_MAX_YIELD_S", 0.01)
    with gated(folder, monkeypatch) as (embedder, ask):
        background = ask("old", background=True)
        question = ask(*(f"new {number}" for number in range(8)))
        while not background.poll(0.02):
            embedder.gate.release()
        assert embedder.seen.index("old") < 9
        embedder.gate.release(20)
        assert len(question.recv_bytes()) == 1 + 4 * 384


def test_what_two_questions_want_is_embedded_once_also_after_one_of_them_was_killed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gated(folder, monkeypatch) as (embedder, ask):
        ask("shared", "other", background=True).close()
        question = ask("shared", parts=None)
        embedder.gate.release(20)
        assert len(question.recv_bytes()) == 1 + 4 * 384
        assert len(shared(folder).embed(["other"])) == 1
    assert sorted(embedder.seen) == ["first", "other", "shared"]


def test_who_waits_for_others_gets_signs_of_life(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_ALIVE_S", 0.01)
    with gated(folder, monkeypatch) as (embedder, ask):
        ask(*(f"one {number}" for number in range(50)))
        patient = ask("two")
        while not patient.poll(0.02):
            embedder.gate.release()
        assert patient.recv_bytes() == b"."
        assert "two" not in embedder.seen


def test_an_embedder_that_fails_says_so_to_who_asked(folder: Path) -> None:
    class Broken(HashingEmbedder):
        def embed(self, texts: list[str]) -> list[list[float]]:
            return [[float("nan")] * 384 for _ in texts]

    with serving(folder, Clock(), Broken(384)), pytest.raises(EmbedderUnavailable, match="invalid vector"):
        shared(folder).embed(["a"])
