"""Messages from one process to another: composed, delivered, woken for, headers read (baselines, *Messages*).

Run it with `python -m benchmarks.messages [--quick]`. Every figure is compared with baselines of the same run: Python on
raw inotify; a C program, where there is a compiler (`cc`); Redis, where its server and its Python client are installed.
Fresh folders are used for each case, and no tree is removed in between.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.hives import placed
from benchmarks.rivals import redis_server
from benchmarks.table import Row, show
from hivemind.fs import Doorbell, fsync_folder
from hivemind.fs.watch import Inotify
from hivemind.layout import Layout
from hivemind.mail import Intake, Mail

_CONTEXT = get_context("fork")
_BODY = "A line of a message as agents write them, with some words in it.\n" * 12
_FLOOR = Path(__file__).with_name("messages_floor.c")


def _mail(root: Path, durable: bool) -> Mail:
    return Mail(Layout.at(placed(root, durable=durable)), "hive", agents=lambda: ("alice", "bob"))


@contextmanager
def _child(target: Callable[..., None], *args: object) -> Iterator[Connection]:
    """Fork a process and wait until it is ready; its figures arrive on the connection."""
    connection, child = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=target, args=(child, *args), daemon=True)
    process.start()
    child.close()
    if connection.recv() != "ready":
        raise RuntimeError(f"{target.__name__} did not start")
    yield connection
    process.join(20)


# -- one message at a time: latency


def _receive_mail(pipe: Connection, root: Path, durable: bool, number: int) -> None:
    layout = Layout.at(root)
    mail = _mail(root, durable)
    intake = Intake(mail, "bob", layout.agent_state("bob"))
    times: list[int] = []
    with Doorbell(layout.doorbells, "bob") as bell:
        pipe.send("ready")
        while len(times) < number:
            bell.wait(10)
            for message in intake.new_messages():
                if message.subject:
                    times.append(time.monotonic_ns())
                intake.mark_taken(message)
            pipe.send(len(times))
    pipe.send(times)


def _paced(number: int, send: Callable[[int], object], receive: Callable[..., None], *args: object) -> list[float]:
    """Return the delivery time of each message in ms; each is sent after the last was read."""
    send_times: list[int] = []
    with _child(receive, *args, number) as pipe:
        for at in range(number):
            send_times.append(time.monotonic_ns())
            send(at)
            while pipe.recv() <= at:
                continue
            time.sleep(0.0005)
        read_times = pipe.recv()
    return [(read - began) / 1e6 for began, read in zip(send_times, read_times, strict=True)]


def _latency_of_mail(root: Path, durable: bool, number: int) -> list[float]:
    mail = _mail(root, durable)
    for box in ("alice", "bob"):
        mail.ensure(box)

    def send(at: int) -> None:
        mail.send("alice", "bob", f"message {at}", _BODY)

    return _paced(number, send, _receive_mail, root, durable)


def _receive_raw(pipe: Connection, folder: Path, number: int) -> None:
    import select

    watch = Inotify()
    watch.add(folder / "new")
    poll = select.poll()
    poll.register(watch.fd, select.POLLIN)
    pipe.send("ready")
    times: list[int] = []
    while len(times) < number:
        poll.poll()
        for _ in watch.read():
            pass
        for name in os.listdir(folder / "new"):
            with open(folder / "new" / name, "rb") as file:
                file.read()
            times.append(time.monotonic_ns())
            os.rename(folder / "new" / name, folder / "cur" / name)
        pipe.send(len(times))
    pipe.send(times)


def _latency_of_raw(root: Path, durable: bool, number: int) -> list[float]:
    """Python on raw inotify without composing or parsing: create, (fsync,) rename, (fsync)."""
    for name in ("tmp", "new", "cur"):
        (root / name).mkdir(parents=True)
    content = _BODY.encode()

    def send(at: int) -> None:
        file = os.open(root / "tmp" / str(at), os.O_WRONLY | os.O_CREAT)
        os.write(file, content)
        if durable:
            os.fsync(file)
        os.close(file)
        os.rename(root / "tmp" / str(at), root / "new" / str(at))
        if durable:
            fsync_folder(root / "new")

    return _paced(number, send, _receive_raw, root)


def _floor_program(folder: Path) -> Path | None:
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    program = folder / "floor"
    subprocess.run([compiler, "-O2", "-o", program, _FLOOR], check=True)
    return program


def _floor(program: Path, root: Path, durable: bool, number: int, paced: bool) -> list[float]:
    """The C program's figures: latencies in ms, or one rate a second where it is not paced."""
    root.mkdir(parents=True)
    command = [program, root, str(int(durable)), str(number), str(int(paced))]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(line) for line in answer.split()]


# -- many messages: throughput and losses


def _send_many(pipe: Connection, root: Path, durable: bool, number: int) -> None:
    mail = _mail(root, durable)
    pipe.send("ready")
    pipe.recv()
    for at in range(number):
        mail.send("alice", "bob", f"message {at}", _BODY)
    pipe.send("sent")


def _senders(root: Path, durable: bool, number: int, senders: int) -> list[Connection]:
    """Start processes that together send this many messages; each reports when it is ready and when it is done."""
    mail = _mail(root, durable)
    for box in ("alice", "bob"):
        mail.ensure(box)
    pipes = []
    for _ in range(senders):
        connection, child = _CONTEXT.Pipe()
        _CONTEXT.Process(target=_send_many, args=(child, root, durable, number // senders), daemon=True).start()
        connection.recv()
        pipes.append(connection)
    return pipes


def _throughput(root: Path, durable: bool, number: int, senders: int) -> tuple[float, int]:
    """(messages/s until the last is read, messages missed)."""
    layout, pipes = Layout.at(root), _senders(root, durable, number, senders)
    intake = Intake(_mail(root, durable), "bob", layout.agent_state("bob"))
    total, seen, idle = number // senders * senders, set[str](), 0
    with Doorbell(layout.doorbells, "bob") as bell:
        began = time.monotonic()
        for pipe in pipes:
            pipe.send("go")
        while len(seen) < total and idle < 20:
            idle = 0 if bell.wait(0.25) else idle + 1
            while messages := intake.new_messages(limit=500):
                for message in messages:
                    seen.add(message.id)
                    intake.mark_taken(message)
    return total / (time.monotonic() - began), total - len(seen)


def _send_rate(root: Path, durable: bool, number: int, senders: int) -> float:
    """Messages/s that processes send while nobody reads."""
    pipes = _senders(root, durable, number, senders)
    began = time.monotonic()
    for pipe in pipes:
        pipe.send("go")
    for pipe in pipes:
        pipe.recv()
    return number // senders * senders / (time.monotonic() - began)


# -- Redis


def _receive_redis(pipe: Connection, path: str, number: int) -> None:
    import redis

    client = redis.Redis(unix_socket_path=path)
    client.ping()
    pipe.send("ready")
    times: list[int] = []
    while len(times) < number:
        client.brpop(["bob"], timeout=10)
        times.append(time.monotonic_ns())
        pipe.send(len(times))
    pipe.send(times)


def _latency_of_redis(path: str, number: int) -> list[float]:
    import redis

    client, content = redis.Redis(unix_socket_path=path), _BODY.encode()
    return _paced(number, lambda _: client.lpush("bob", content), _receive_redis, path)


# -- the table


def _p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]


def _latencies(folder: Path, program: Path | None, number: int, rounds: int) -> Iterator[Row]:
    for durable in (False, True):
        word = "durable" if durable else "relaxed"
        mail: list[float] = []
        rivals: dict[str, list[float]] = {"Python on raw inotify": [], "C floor": [], "Redis list": []}
        for turn in range(rounds):  # interleaved: a machine that slows down slows all of them
            place = folder / f"{word}-{turn}"
            mail += _latency_of_mail(place / "mail", durable, number)
            rivals["Python on raw inotify"] += _latency_of_raw(place / "raw", durable, number)
            if program is not None:
                rivals["C floor"] += _floor(program, place / "floor", durable, number, paced=True)
            if find_spec("redis"):
                with redis_server(durable=durable) as path:
                    rivals["Redis list"] += [] if path is None else _latency_of_redis(path, number)
        targets = {"C floor": 2.5} if durable else {"Python on raw inotify": 1.2}
        for name, times in rivals.items():
            if not times:
                yield Row(f"whole way, {word}, median", statistics.median(mail), "ms", f"{name}: not installed")
                continue
            baseline_ms = statistics.median(times)
            target = targets[name] * baseline_ms if name in targets else None
            yield Row(f"whole way, {word}, median", statistics.median(mail), "ms", name, baseline_ms, target=target)
            yield Row(f"whole way, {word}, p99", _p99(mail), "ms", name, _p99(times))


def _rates(folder: Path, program: Path | None, number: int) -> Iterator[Row]:
    for durable, target in ((False, 4000), (True, 1200)):
        word = "durable" if durable else "relaxed"
        for senders in (1, 4):
            name = f"sent a second, {word}, {senders} sender{'s' if senders > 1 else ''}"
            send_rate = _send_rate(folder / f"send-{word}-{senders}", durable, number, senders)
            yield Row(name, send_rate, "messages/s", better="more", target=target)
        read, missed = _throughput(folder / f"through-{word}", durable, number, 1)
        name, floor = "", None
        if program is not None:
            name, floor = "C floor", _floor(program, folder / f"floor-{word}", durable, number, paced=False)[0]
        yield Row(f"sent and read at once, {word}, 1 sender", read, "messages/s", name, floor, "more")
        yield Row(f"of {number}, never read, {word}", missed, "messages", target=0)


def run(quick: bool = False) -> list[Row]:
    """The figures; `quick` takes a hundredth of the messages. Leaves its folders to the system's temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="hivemind-messages-"))
    program = _floor_program(folder)
    rows = list(_latencies(folder, program, 20 if quick else 1000, 1 if quick else 3))
    rows += _rates(folder, program, 100 if quick else 8000)
    burst = 500 if quick else 50_000
    read, missed = _throughput(folder / "burst", False, burst, 4)
    rows.append(Row(f"burst of {burst}, 4 senders: read a second", read, "messages/s", "", None, "more"))
    rows.append(Row(f"burst of {burst}: never read", missed, "messages", target=0))
    return rows


if __name__ == "__main__":
    show("Messages", run(quick="--quick" in sys.argv))
